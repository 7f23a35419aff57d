//! A schema compiled, and what it says of values.

use std::collections::BTreeMap;
use std::error::Error;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ReferencingError, Retrieve, Uri, ValidationError};
use serde_json::Value;

use super::error::ContractError;
use super::problem::Problem;
use super::report;

/// A compiled JSON Schema, cheap to ask and free to share between threads.
#[derive(Debug)]
pub struct Validator {
    compiled: jsonschema::Validator,
    schema: Value,
}

impl Validator {
    /// Compiles a schema on its own, `format` being a remark and no rule.
    ///
    /// JSON Schema 2020-12, unless the schema names another draft in `$schema`. Nothing is fetched: a `$ref` that
    /// leads out of the schema is refused.
    pub fn compile(schema: &Value) -> Result<Self, ContractError> {
        Self::options().compile(schema)
    }

    /// Compiles with other choices.
    pub fn options() -> ValidatorOptions {
        ValidatorOptions::default()
    }

    /// Whether the value fits: the quick question.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.compiled.is_valid(value)
    }

    /// What is wrong with the value, in pydantic's words; empty when it fits.
    ///
    /// At most 100 problems are listed, and an input beyond some 64 KiB is not repeated in its problem.
    pub fn problems(&self, value: &Value) -> Vec<Problem> {
        report::problems(&self.schema, value, self.compiled.iter_errors(value))
    }

    /// The schema it was compiled from.
    pub fn schema(&self) -> &Value {
        &self.schema
    }
}

/// How to compile a schema.
#[derive(Debug, Clone, Default)]
pub struct ValidatorOptions {
    formats: bool,
    documents: BTreeMap<String, Value>,
}

impl ValidatorOptions {
    /// Makes `format` a rule: a `date-time` must then be one.
    #[must_use]
    pub fn formats(mut self, asserted: bool) -> Self {
        self.formats = asserted;
        self
    }

    /// Hands over a document that the schema may refer to by this address.
    #[must_use]
    pub fn document(mut self, uri: &str, document: Value) -> Self {
        self.documents.insert(uri.trim_end_matches('#').to_owned(), document);
        self
    }

    /// Compiles a schema.
    pub fn compile(self, schema: &Value) -> Result<Validator, ContractError> {
        let mut options = jsonschema::options().with_retriever(Documents(self.documents));
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft202012);
        }
        if self.formats {
            options = options.should_validate_formats(true);
        }
        let compiled = options.build(schema).map_err(|error| refusal(schema, &error))?;
        Ok(Validator { compiled, schema: schema.clone() })
    }
}

/// The documents that were handed over, in place of a network.
#[derive(Debug)]
struct Documents(BTreeMap<String, Value>);

impl Retrieve for Documents {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let uri = uri.as_str().trim_end_matches('#');
        self.0.get(uri).cloned().ok_or_else(|| "it is not fetched".into())
    }
}

fn refusal(schema: &Value, error: &ValidationError<'_>) -> ContractError {
    let pointer = error.instance_path().as_str().to_owned();
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            let pointer = reference_to(schema, uri).unwrap_or(pointer);
            ContractError::External { part: None, pointer, uri: uri.clone() }
        }
        _ => ContractError::Schema { part: None, pointer, message: error.to_string() },
    }
}

/// The pointer of the first `$ref` or `$schema` that leads to the document, when it is written in full.
fn reference_to(schema: &Value, uri: &str) -> Option<String> {
    let leads_there = |value: &Value| value.as_str().is_some_and(|text| text.split('#').next() == Some(uri));
    let inside = |key: &str, value: &Value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        reference_to(value, uri).map(|rest| format!("/{key}{rest}"))
    };
    match schema {
        Value::Object(map) => {
            let own = ["$ref", "$dynamicRef", "$schema"].into_iter().find(|key| map.get(*key).is_some_and(leads_there));
            own.map(|key| format!("/{key}")).or_else(|| map.iter().find_map(|(key, value)| inside(key, value)))
        }
        Value::Array(items) => items.iter().enumerate().find_map(|(at, value)| inside(&at.to_string(), value)),
        _ => None,
    }
}
