//! The error of everything that reads a spec.

use std::fmt;

use crate::source::Position;

/// A spec that was refused: where, which key, why, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// The file (or `<dict>`, `<string>`) the spec came from.
    pub file: String,
    /// Line and column, both from 1; `None` where the source has no lines (a mapping).
    pub position: Option<Position>,
    /// The key path, such as `environment.dependencies.pip[2]`; empty for the whole document.
    pub key: String,
    /// What is wrong, as a lower-case fragment.
    pub message: String,
    /// What to do, where there is something better than the message.
    pub hint: Option<String>,
}

impl SpecError {
    /// An error for a whole file.
    pub fn new(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), position: None, key: String::new(), message: message.into(), hint: None }
    }

    /// Sets the place.
    #[must_use]
    pub fn at(mut self, position: Position, key: &str) -> Self {
        self.position = position.known();
        self.key = key.to_owned();
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(at) = self.position {
            write!(f, ":{}:{}", at.line, at.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": `{}`", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for SpecError {}
