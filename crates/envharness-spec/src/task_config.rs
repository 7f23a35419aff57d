//! The spec inside a task's configuration.

use crate::error::SpecError;
use crate::import::Files;
use crate::normalize::known_keys;
use crate::source::{Node, Value, parse_json};
use crate::spec::Spec;
use crate::suggest::nearest;

/// What [`spec_from_config`] found in a task's mapping.
#[derive(Debug)]
pub enum TaskConfig {
    /// `spec: PATH`.
    Path(String),
    /// A spec in the mapping itself or under `spec`.
    Spec(Box<Spec>),
}

/// Takes the spec out of a task's configuration mapping, given as JSON.
///
/// Keys that belong to the task (`script_path`, `output_path`) are left alone; a near miss of a spec key is refused.
///
/// # Errors
/// [`SpecError`] as for any mapping, and for one that holds no spec key at all.
pub fn spec_from_config(json: &str, files: &dyn Files) -> Result<TaskConfig, SpecError> {
    const FILE: &str = "<config>";
    let root = parse_json(json, FILE)?;
    let Value::Map(entries) = root.value else {
        return Err(SpecError::new(FILE, format!("a task's configuration is a mapping, not {}", root.value.kind())));
    };
    if let Some((_, node)) = entries.iter().find(|(key, _)| key.text == "spec") {
        return match &node.value {
            Value::String(path) => Ok(TaskConfig::Path(path.clone())),
            Value::Map(_) => {
                let text = crate::import::to_json(node).to_string();
                Spec::from_mapping(&text, files).map(|spec| TaskConfig::Spec(Box::new(spec)))
            }
            other => Err(SpecError::new(FILE, format!("`spec` is a mapping or a path, not {}", other.kind()))),
        };
    }
    let mut own = Vec::new();
    for (key, node) in entries {
        let word = key.text.replace('-', "_");
        if known_keys().any(|known| known == word) {
            own.push((key, node));
        } else if let Some(near) = nearest(&key.text, known_keys()) {
            return Err(SpecError::new(FILE, "not a spec key, but nearly one")
                .at(crate::source::Position::default(), &key.text)
                .hint(format!("did you mean `{near}`? A task's own key needs another name")));
        }
    }
    if own.is_empty() {
        return Err(SpecError::new(FILE, "holds no spec").hint("add `spec: PATH`, a `spec` mapping, or spec keys such as `dependencies`"));
    }
    let text = crate::import::to_json(&Node { value: Value::Map(own), at: root.at }).to_string();
    Spec::from_mapping(&text, files).map(|spec| TaskConfig::Spec(Box::new(spec)))
}
