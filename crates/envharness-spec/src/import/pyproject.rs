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
    read_tables(project, tool, file, name, files)
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
