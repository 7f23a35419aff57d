//! The words in which pydantic says what is wrong.

use jsonschema::JsonType;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

use super::canonical::canonical;

/// What pydantic says of anything that should be an object.
pub(super) const OBJECT: &str = "Input should be an object";

/// A value of the wrong type; `model` where the object wanted has properties of its own.
pub(super) fn of_type(wanted: JsonType, input: &Value, model: bool) -> (&'static str, String) {
    let (kind, msg) = match wanted {
        JsonType::Integer if input.is_f64() => ("int_from_float", "Input should be a valid integer, got a number with a fractional part"),
        JsonType::Integer => ("int_type", "Input should be a valid integer"),
        JsonType::Number => ("float_type", "Input should be a valid number"),
        JsonType::String => ("string_type", "Input should be a valid string"),
        JsonType::Boolean => ("bool_type", "Input should be a valid boolean"),
        JsonType::Array => ("list_type", "Input should be a valid array"),
        JsonType::Null => ("none_required", "Input should be null"),
        JsonType::Object => (if model { "model_type" } else { "dict_type" }, OBJECT),
    };
    (kind, msg.to_owned())
}

/// A value that is none of those allowed: `Input should be 'UP', 'DOWN' or 3`.
pub(super) fn one_of(values: &[Value]) -> String {
    let mut values: Vec<String> = values.iter().map(python).collect();
    match values.pop() {
        Some(last) if values.is_empty() => format!("Input should be {last}"),
        Some(last) => format!("Input should be {} or {last}", values.join(", ")),
        None => "Input should be one of no values".to_owned(),
    }
}

/// A value beyond a limit; `None` for what is no limit.
pub(super) fn of_limit(kind: &Kind, input: &Value) -> Option<(&'static str, String)> {
    let should = |what: &str, limit: &Value| format!("Input should be {what} {}", canonical(limit));
    let length = match input {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    let items = |what: &str, bound: &str, limit: u64| {
        format!("{what} should have at {bound} {} after validation, not {length}", plural(limit, "item"))
    };
    Some(match kind {
        Kind::Minimum { limit } => ("greater_than_equal", should("greater than or equal to", limit)),
        Kind::ExclusiveMinimum { limit } => ("greater_than", should("greater than", limit)),
        Kind::Maximum { limit } => ("less_than_equal", should("less than or equal to", limit)),
        Kind::ExclusiveMaximum { limit } => ("less_than", should("less than", limit)),
        Kind::MultipleOf { multiple_of } => ("multiple_of", should("a multiple of", &Value::from(*multiple_of))),
        Kind::MinLength { limit } => ("string_too_short", format!("String should have at least {}", plural(*limit, "character"))),
        Kind::MaxLength { limit } => ("string_too_long", format!("String should have at most {}", plural(*limit, "character"))),
        Kind::Pattern { pattern } => ("string_pattern_mismatch", format!("String should match pattern '{pattern}'")),
        Kind::MinItems { limit } => ("too_short", items("List", "least", *limit)),
        Kind::MaxItems { limit } => ("too_long", items("List", "most", *limit)),
        Kind::AdditionalItems { limit } => ("too_long", items("List", "most", u64::try_from(*limit).unwrap_or(u64::MAX))),
        Kind::MinProperties { limit } => ("too_short", items("Dictionary", "least", *limit)),
        Kind::MaxProperties { limit } => ("too_long", items("Dictionary", "most", *limit)),
        _ => return None,
    })
}

/// A value as Python prints it.
pub(super) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n")),
        other => canonical(other),
    }
}

fn plural(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}
