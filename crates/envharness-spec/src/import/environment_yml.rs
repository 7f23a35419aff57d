//! conda's `environment.yml`: `dependencies` is a list with a `pip` mapping in it.

use crate::error::SpecError;
use crate::import::Files;
use crate::normalize;
use crate::source::{Key, Node, Value};
use crate::spec::Spec;

/// Whether a YAML tree has conda's shape: a list of dependencies with a nested `pip`, or with conda pins.
pub(super) fn is_one(root: &Node) -> bool {
    let Some(Value::List(items)) = root.get("dependencies").map(|node| &node.value) else { return false };
    root.get("channels").is_some() || items.iter().any(|item| item.get("pip").is_some())
}

pub(super) fn read(root: &Node, file: &str, name: &str, files: &dyn Files) -> Result<Spec, SpecError> {
    let Value::Map(entries) = &root.value else {
        return Err(SpecError::new(file, format!("wants a mapping, not {}", root.value.kind())).at(root.at, ""));
    };
    let mut out: Vec<(Key, Node)> = Vec::new();
    for (key, node) in entries {
        match key.text.as_str() {
            // A place on the machine that exported the file: it has no meaning here.
            "prefix" => {}
            "variables" => out.push((Key { text: "env_vars".into(), at: key.at }, node.clone())),
            "dependencies" => dependencies(key, node, file, &mut out)?,
            // conda's word for "no channels of your own", which is how it is here anyway.
            "channels" => {
                let mut node = node.clone();
                if let Value::List(items) = &mut node.value {
                    items.retain(|item| !matches!(&item.value, Value::String(text) if text == "nodefaults"));
                }
                out.push((key.clone(), node));
            }
            _ => out.push((key.clone(), node.clone())),
        }
    }
    normalize::spec_from_node(&Node { value: Value::Map(out), at: root.at }, file, name, files)
}

fn dependencies(key: &Key, node: &Node, file: &str, out: &mut Vec<(Key, Node)>) -> Result<(), SpecError> {
    let Value::List(items) = &node.value else {
        return Err(SpecError::new(file, format!("wants a list, not {}", node.value.kind())).at(node.at, &key.text));
    };
    let (mut conda, mut pip) = (Vec::new(), Vec::new());
    for item in items {
        match &item.value {
            Value::String(text) if python_pin(text).is_some() => {
                let value = Value::String(python_pin(text).unwrap_or_default());
                out.push((Key { text: "python".into(), at: item.at }, Node { value, at: item.at }));
            }
            // pip itself is no package of a context: prefixes are shared and have none.
            Value::String(text) if text == "pip" || text == "python" => {}
            Value::String(_) => conda.push(item.clone()),
            Value::Map(entries) => {
                for (key, node) in entries {
                    match (&node.value, key.text.as_str()) {
                        (Value::List(items), "pip") => pip.extend(items.iter().cloned()),
                        (_, "pip") => return Err(SpecError::new(file, "wants a list").at(node.at, "dependencies.pip")),
                        _ => return Err(SpecError::new(file, "unknown key").at(key.at, &key.text).hint("only `pip` nests here")),
                    }
                }
            }
            other => {
                return Err(SpecError::new(file, format!("wants a package, not {}", other.kind())).at(item.at, "dependencies"));
            }
        }
    }
    for (text, list) in [("conda", conda), ("pip", pip)] {
        if !list.is_empty() {
            out.push((Key { text: text.into(), at: key.at }, Node { value: Value::List(list), at: node.at }));
        }
    }
    Ok(())
}

/// `python=3.9` or `python>=3.9` as a version specifier; `None` for other packages.
fn python_pin(text: &str) -> Option<String> {
    let rest = text.trim().strip_prefix("python")?;
    let rest = rest.trim_start();
    if !rest.starts_with(['=', '<', '>', '!', '~']) {
        return None;
    }
    let version = rest.trim_start_matches('=');
    // conda's `=3.9` means any 3.9, as does ours; a third part is a build string.
    Some(version.split('=').next().unwrap_or(version).trim_end_matches(".*").trim().to_owned())
}
