//! One thing that is wrong with a value, in the shape in which pydantic reports it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One step on the way to a value: an object key or an array index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Loc {
    /// An index into an array, from 0.
    Index(usize),
    /// A key of an object.
    Key(String),
}

impl From<&str> for Loc {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Loc {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Key(key) => f.write_str(key),
        }
    }
}

/// One way in which a value breaks its schema.
///
/// The JSON form, `{"type", "loc", "msg", "input"}`, and the words in it are those of a pydantic
/// error item (without `url` and `ctx`), so that a client reads the same list whether a model or a
/// contract judged its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The error type as pydantic names it (`missing`, `int_type`, `extra_forbidden`), or
    /// `json_schema` for a rule that pydantic has no name for.
    #[serde(rename = "type")]
    pub kind: String,
    /// The way from the whole value to the place; empty for the whole value.
    pub loc: Vec<Loc>,
    /// One sentence that says what is wanted.
    pub msg: String,
    /// The value found there; for a missing key the object that lacks it.
    pub input: Value,
}

impl Problem {
    /// A problem at a place.
    pub fn new(kind: &str, loc: Vec<Loc>, msg: impl Into<String>, input: Value) -> Self {
        Self { kind: kind.to_owned(), loc, msg: msg.into(), input }
    }
}

impl fmt::Display for Problem {
    /// Writes `action.target[2]: Input should be a valid integer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.loc.iter().enumerate() {
            match part {
                Loc::Index(index) => write!(f, "[{index}]")?,
                Loc::Key(key) if at == 0 => f.write_str(key)?,
                Loc::Key(key) => write!(f, ".{key}")?,
            }
        }
        if !self.loc.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.msg)
    }
}
