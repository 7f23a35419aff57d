//! The error of everything that reads a contract or compiles a schema.

use super::document::Part;

/// A contract or a schema that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// A key of the contract is missing or of the wrong type.
    #[error("{} {problem}", if .key.is_empty() { "the contract".to_owned() } else { format!("`{key}` of the contract") })]
    Key {
        /// The key; empty for the whole document.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The contract was written in a format that this program does not know.
    #[error("the contract has format {found}, and this program reads format {known}: update envharness", known = super::document::FORMAT)]
    Format {
        /// The format found.
        found: String,
    },
    /// The digest in the contract is not that of its schemas.
    #[error("the contract says digest `{stated}`, and its schemas have `{computed}`: it was edited by hand or cut short")]
    Digest {
        /// The digest found.
        stated: String,
        /// The digest of the schemas found.
        computed: String,
    },
    /// A schema is not a valid JSON Schema (2020-12).
    #[error("{}: {message}", place(*.part, .pointer))]
    Schema {
        /// Which schema of the contract; `None` for a schema on its own.
        part: Option<Part>,
        /// The JSON Pointer of the place in the schema; empty for the whole schema.
        pointer: String,
        /// What is wrong there.
        message: String,
    },
    /// A schema refers to a document outside itself; nothing is ever fetched.
    #[error("{}: `{uri}` is outside the schema and is not fetched: put it under `$defs`", place(*.part, .pointer))]
    External {
        /// Which schema of the contract; `None` for a schema on its own.
        part: Option<Part>,
        /// The JSON Pointer of a `$ref` to it; empty where that was not found.
        pointer: String,
        /// The document referred to.
        uri: String,
    },
}

impl ContractError {
    /// Says which schema of a contract it is about.
    #[must_use]
    pub(super) fn of(mut self, of: Part) -> Self {
        if let Self::Schema { part, .. } | Self::External { part, .. } = &mut self {
            *part = Some(of);
        }
        self
    }
}

fn place(part: Option<Part>, pointer: &str) -> String {
    let part = part.map_or_else(|| "the schema".to_owned(), |part| format!("the {part} schema"));
    if pointer.is_empty() { part } else { format!("{part} at `{pointer}`") }
}
