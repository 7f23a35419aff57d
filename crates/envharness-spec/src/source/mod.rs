//! One tree with positions for YAML, TOML and JSON.
//!
//! Scalars keep the text they were written with, so that `python: 3.10` is not read as `3.1`.

mod json;
mod toml;
mod yaml;

pub use json::parse_json;
pub use toml::parse_toml;
pub use yaml::parse_yaml;

use std::collections::HashMap;

use crate::error::SpecError;

/// Deepest nesting that is read; deeper documents are refused before they can exhaust the stack.
pub const MAX_DEPTH: usize = 64;
/// Most nodes of one document, aliases expanded; a "billion laughs" document ends here.
pub const MAX_NODES: usize = 100_000;
/// Largest document that is read, in bytes.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A place in a document; line and column count from 1, and 0 means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

impl Position {
    /// `None` for a position that is not known.
    pub fn known(self) -> Option<Self> {
        (self.line > 0).then_some(self)
    }
}

/// Turns byte offsets of one text into positions.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset.min(self.text.len()));
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        // A line can be the whole of a hostile document, so the column of a far place is in bytes.
        let column = if offset - start > 4096 { offset - start } else { self.text[start..offset].chars().count() };
        Position { line, column: column + 1 }
    }
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it begins.
    pub at: Position,
}

/// A mapping's key with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The key.
    pub text: String,
    /// Where it begins.
    pub at: Position,
}

/// The value of a [`Node`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order written; keys are unique.
    Map(Vec<(Key, Node)>),
}

impl Value {
    /// The word for the type in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl Node {
    /// The text of a scalar, as written.
    pub fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(text) | Value::String(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// The entry of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node),
            _ => None,
        }
    }
}

/// Counts what a parser builds and refuses what is too much.
struct Budget<'a> {
    file: &'a str,
    nodes: usize,
}

impl<'a> Budget<'a> {
    fn new(file: &'a str, text: &str) -> Result<Self, SpecError> {
        if text.len() > MAX_BYTES {
            return Err(SpecError::new(file, format!("{} bytes are more than a spec may have ({MAX_BYTES})", text.len())));
        }
        Ok(Self { file, nodes: 0 })
    }

    fn add(&mut self, nodes: usize, depth: usize, at: Position) -> Result<(), SpecError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if depth > MAX_DEPTH {
            return Err(SpecError::new(self.file, format!("nested deeper than {MAX_DEPTH} levels")).at(at, ""));
        }
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values, aliases counted where they stand");
            return Err(SpecError::new(self.file, message).at(at, ""));
        }
        Ok(())
    }
}

/// A mapping being read, in which each key may stand once.
#[derive(Default)]
struct Entries {
    list: Vec<(Key, Node)>,
    seen: HashMap<String, Position>,
}

impl Entries {
    fn insert(&mut self, key: Key, node: Node, file: &str) -> Result<(), SpecError> {
        if let Some(first) = self.seen.insert(key.text.clone(), key.at) {
            let place = first.known().map(|at| format!(" (first on line {})", at.line)).unwrap_or_default();
            return Err(SpecError::new(file, format!("the key stands twice{place}")).at(key.at, &key.text).hint("keep one of the two"));
        }
        self.list.push((key, node));
        Ok(())
    }
}
