//! Files that are not in envharness's own form, and the choice of a reader.

mod environment_yml;
mod pylock;
mod pyproject;
pub(crate) mod requirements_txt;
mod script;

use serde_json::{Map, Value as Json, json};

use crate::error::SpecError;
use crate::normalize;
use crate::source::{Node, Value, parse_json, parse_toml, parse_yaml};
use crate::spec::Spec;

/// Reads files that a spec includes; implemented by the caller, since this crate does no I/O.
pub trait Files {
    /// Reads `path`, relative to the file that names it.
    ///
    /// # Errors
    /// A message for a person.
    fn read(&self, path: &str) -> Result<String, String>;
}

/// A [`Files`] that has none.
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        Err(format!("`{path}` cannot be included here: the spec is not in a file"))
    }
}

/// The formats a spec is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A spec in YAML.
    Yaml,
    /// A spec in TOML.
    Toml,
    /// A spec in JSON.
    Json,
    /// `requirements.txt`.
    Requirements,
    /// `pyproject.toml`.
    Pyproject,
    /// conda's `environment.yml`.
    EnvironmentYml,
    /// A Python script with a PEP 723 block.
    Script,
    /// PEP 751 `pylock.toml`.
    Pylock,
}

impl Format {
    /// The format of a file by its name.
    pub fn of_file(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let file = lower.rsplit('/').next().unwrap_or(&lower);
        Some(match file {
            "pyproject.toml" => Self::Pyproject,
            "environment.yml" | "environment.yaml" => Self::EnvironmentYml,
            _ if file == "pylock.toml" || (file.starts_with("pylock.") && file.ends_with(".toml")) => Self::Pylock,
            _ if file.ends_with(".yaml") || file.ends_with(".yml") => Self::Yaml,
            _ if file.ends_with(".toml") => Self::Toml,
            _ if file.ends_with(".json") => Self::Json,
            _ if file.ends_with(".txt") || file.ends_with(".in") => Self::Requirements,
            _ if file.ends_with(".py") => Self::Script,
            _ => return None,
        })
    }
}

/// Reads a spec in any format; the default name comes from the file's.
pub(crate) fn read(text: &str, format: Format, file: &str, files: &dyn Files) -> Result<Spec, SpecError> {
    let name = default_name(file);
    let mut spec = match format {
        Format::Yaml => {
            let root = parse_yaml(text, file)?;
            if environment_yml::is_one(&root) {
                environment_yml::read(&root, file, &name, files)?
            } else {
                normalize::spec_from_node(&root, file, &name, files)?
            }
        }
        Format::Json => normalize::spec_from_node(&parse_json(text, file)?, file, &name, files)?,
        Format::Toml => normalize::spec_from_node(&parse_toml(text, file)?, file, &name, files)?,
        Format::Requirements => requirements_txt::read(text, file, &name, files)?,
        Format::Pyproject => pyproject::read(text, file, &name, files)?,
        Format::EnvironmentYml => environment_yml::read(&parse_yaml(text, file)?, file, &name, files)?,
        Format::Script => script::read(text, file, &name, files)?,
        Format::Pylock => pylock::read(text, file, &name)?,
    };
    normalize::finish(&mut spec, file)?;
    Ok(spec)
}

/// A valid spec name made of a file's stem.
fn default_name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    let stem = base.split('.').next().unwrap_or(base);
    let name: String =
        stem.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '-' }).take(63).collect();
    if name.trim_matches('-').is_empty() { "env".into() } else { name }
}

/// A tree as JSON, numbers as they were written where JSON can hold them.
pub fn to_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Number(text) => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        Value::String(text) => json!(text),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Map(entries) => Json::Object(entries.iter().map(|(k, v)| (k.text.clone(), to_json(v))).collect::<Map<_, _>>()),
    }
}
