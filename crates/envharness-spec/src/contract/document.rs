//! The contract as a document: `contract.json`, and the body of `/contract`.

use std::fmt;

use serde_json::{Map, Value, json};

use super::canonical::canonical;
use super::error::ContractError;
use super::meaning::meaning;
use super::validator::Validator;
use crate::digest::Digest;

/// The version of the document's format, its key `contract`.
pub const FORMAT: u64 = 1;

/// One of the four schemas of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// What an agent sends with a step.
    Action,
    /// What it gets back, with `reward` and `done`.
    Observation,
    /// What a reset takes.
    Reset,
    /// What there is to know of an episode.
    State,
}

impl Part {
    /// All four, in the order of their names.
    pub const ALL: [Self; 4] = [Self::Action, Self::Observation, Self::Reset, Self::State];

    /// Its key in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Observation => "observation",
            Self::Reset => "reset",
            Self::State => "state",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an environment takes and gives: four JSON Schemas, and the package they are of.
#[derive(Debug, Clone, PartialEq)]
pub struct Contract {
    /// The name of the env package.
    pub name: String,
    /// The version of the env package.
    pub version: String,
    /// The schema of an action.
    pub action: Value,
    /// The schema of an observation.
    pub observation: Value,
    /// The schema of the reset arguments.
    pub reset: Value,
    /// The schema of the state.
    pub state: Value,
}

impl Contract {
    /// Reads a contract and checks it.
    ///
    /// `name`, `version` and the four schemas must be there. `contract` and `digest` may be missing, as in a contract
    /// just collected from an environment's models; where they are there they must be right. Other keys are ignored.
    pub fn from_json(value: &Value) -> Result<Self, ContractError> {
        let Value::Object(document) = value else {
            return Err(key_error("", format!("is {}, and not an object", kind(value))));
        };
        match document.get("contract") {
            None => {}
            Some(format) if format.as_u64() == Some(FORMAT) => {}
            Some(format) => return Err(ContractError::Format { found: canonical(format) }),
        }
        let schema = |part: Part| document.get(part.as_str()).cloned().ok_or_else(|| key_error(part.as_str(), "is missing"));
        let contract = Self {
            name: text(document, "name")?,
            version: text(document, "version")?,
            action: schema(Part::Action)?,
            observation: schema(Part::Observation)?,
            reset: schema(Part::Reset)?,
            state: schema(Part::State)?,
        };
        contract.check()?;
        if document.contains_key("digest") {
            let stated = text(document, "digest")?;
            let computed = contract.digest();
            if Digest::parse(&stated).as_ref() != Some(&computed) {
                return Err(ContractError::Digest { stated, computed: computed.to_string() });
            }
        }
        Ok(contract)
    }

    /// Checks that each part is an object and a valid JSON Schema that needs nothing from elsewhere.
    pub fn check(&self) -> Result<(), ContractError> {
        Part::ALL.into_iter().try_for_each(|part| self.validator(part).map(drop))
    }

    /// The schema of a part.
    pub fn schema(&self, part: Part) -> &Value {
        match part {
            Part::Action => &self.action,
            Part::Observation => &self.observation,
            Part::Reset => &self.reset,
            Part::State => &self.state,
        }
    }

    /// Compiles the schema of a part.
    pub fn validator(&self, part: Part) -> Result<Validator, ContractError> {
        let schema = self.schema(part);
        if !schema.is_object() {
            return Err(key_error(part.as_str(), format!("is {}, and not a JSON Schema object", kind(schema))));
        }
        Validator::compile(schema).map_err(|error| error.of(part))
    }

    /// The digest of what is accepted and given: SHA-256 over the [canonical text](canonical) of
    /// `{"action", "observation", "reset", "state"}`, each schema reduced to its [meaning].
    ///
    /// Name, version, titles, descriptions and examples are not in it.
    pub fn digest(&self) -> Digest {
        let parts: Map<String, Value> = Part::ALL.into_iter().map(|part| (part.as_str().to_owned(), meaning(self.schema(part)))).collect();
        Digest::of(canonical(&Value::Object(parts)))
    }

    /// The document, with its format and its digest.
    pub fn to_json(&self) -> Value {
        json!({
            "contract": FORMAT,
            "name": self.name,
            "version": self.version,
            "digest": self.digest().to_string(),
            "action": self.action,
            "observation": self.observation,
            "reset": self.reset,
            "state": self.state,
        })
    }

    /// The document as [canonical](canonical()) text: one line, and the same bytes for the same contract.
    pub fn to_text(&self) -> String {
        canonical(&self.to_json())
    }
}

fn text(document: &Map<String, Value>, key: &str) -> Result<String, ContractError> {
    match document.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(key_error(key, format!("is {}, and not a string", kind(other)))),
        None => Err(key_error(key, "is missing")),
    }
}

fn key_error(key: &str, problem: impl Into<String>) -> ContractError {
    ContractError::Key { key: key.to_owned(), problem: problem.into() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
