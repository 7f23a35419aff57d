//! `pyproject.toml`: `[project]` dependencies, and `[tool.envharness]` for the rest.

use crate::error::SpecError;
use crate::import::Files;
use crate::normalize;
use crate::source::{Key, Node, Position, Value, parse_toml};
use crate::spec::Spec;

pub(super) fn read(text: &str, file: &str, name: &str, files: &dyn Files) -> Result<Spec, SpecError> {
    let root = parse_toml(text, file)?;
    let (project, tool) = (root.get("project"), root.get("tool").and_then(|tool| tool.get("envharness")));
    if project.is_none() && tool.is_none() {
        return Err(SpecError::new(file, "has neither `[project]` nor `[tool.envharness]`")
            .hint("declare dependencies in `[project]`, or write a task_spec.yaml"));
    }
    if let Some(node) = project.and_then(|p| p.get("dynamic")).filter(|node| names(node).iter().any(|name| name == "dependencies")) {
        return Err(SpecError::new(file, "the dependencies are `dynamic`: only a build knows them")
            .at(node.at, "project.dynamic")
            .hint("name the folder as a package instead: `deps: [.]`"));
    }
    let sources = root.get("tool").and_then(|tool| tool.get("uv")).and_then(|uv| uv.get("sources"));
    if let Some(Value::Map(entries)) = sources.map(|node| &node.value)
        && let Some((key, _)) = entries.first()
    {
        // Without its source the name would be taken from the public index.
        return Err(SpecError::new(file, "another tool's source for a package is not read")
            .at(key.at, &format!("tool.uv.sources.{}", key.text))
            .hint(
                "name its path or URL among the dependencies: `name @ git+https://...`, or `pip = [\"./path\"]` in `[tool.envharness]`",
            ));
    }
    read_tables(project, tool, file, name, files)
}

fn names(node: &Node) -> Vec<String> {
    match &node.value {
        Value::List(items) => items.iter().filter_map(Node::scalar).collect(),
        _ => Vec::new(),
    }
}

/// Reads the standard keys beside `[tool.envharness]`; PEP 723 blocks have the same two.
pub(super) fn read_tables(
    project: Option<&Node>,
    tool: Option<&Node>,
    file: &str,
    name: &str,
    files: &dyn Files,
) -> Result<Spec, SpecError> {
    let mut entries: Vec<(Key, Node)> = match tool.map(|tool| &tool.value) {
        Some(Value::Map(entries)) => entries.clone(),
        _ => Vec::new(),
    };
    let own = |entries: &[(Key, Node)], key: &str| entries.iter().any(|(k, _)| k.text == key);
    for (from, to) in [("name", "name"), ("requires-python", "python"), ("description", "description")] {
        if let Some(node) = project.and_then(|project| project.get(from)).filter(|_| !own(&entries, to)) {
            entries.push((Key { text: to.into(), at: node.at }, node.clone()));
        }
    }
    if let Some(node) = project.and_then(|project| project.get("dependencies")) {
        entries.push((Key { text: "pip".into(), at: node.at }, node.clone()));
    }
    if entries.is_empty() {
        entries
            .push((Key { text: "pip".into(), at: Position::default() }, Node { value: Value::List(Vec::new()), at: Position::default() }));
    }
    let at = Position { line: 1, column: 1 };
    normalize::spec_from_node(&Node { value: Value::Map(entries), at }, file, name, files)
}
