//! JSON by `jsonc-parser`, set to strict JSON.

use jsonc_parser::ast::Value as Json;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Budget, Entries, Key, Lines, Node, Position, Value};
use crate::error::SpecError;

/// Strict JSON: no comments, no trailing commas, no other leniency.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parses one JSON document; an empty one is [`Value::Null`].
pub fn parse_json(text: &str, file: &str) -> Result<Node, SpecError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut budget = Budget::new(file, text)?;
    let parsed = parse_to_ast(text, &CollectOptions::default(), &STRICT).map_err(|error| {
        let at = Lines::new(text).position(error.range().start);
        SpecError::new(file, format!("not valid JSON: {}", error.kind())).at(at, "")
    })?;
    match parsed.value {
        None => Ok(Node { value: Value::Null, at: Position { line: 1, column: 1 } }),
        Some(value) => convert(&value, &Lines::new(text), file, 0, &mut budget),
    }
}

fn convert(json: &Json<'_>, lines: &Lines<'_>, file: &str, depth: usize, budget: &mut Budget<'_>) -> Result<Node, SpecError> {
    let at = lines.position(json.range().start);
    budget.add(1, depth, at)?;
    let value = match json {
        Json::NullKeyword(_) => Value::Null,
        Json::BooleanLit(lit) => Value::Bool(lit.value),
        Json::NumberLit(lit) => Value::Number(lit.value.to_owned()),
        Json::StringLit(lit) => Value::String(lit.value.clone().into_owned()),
        Json::Array(array) => {
            Value::List(array.elements.iter().map(|element| convert(element, lines, file, depth + 1, budget)).collect::<Result<_, _>>()?)
        }
        Json::Object(object) => {
            let mut entries = Entries::default();
            for property in &object.properties {
                let at = lines.position(property.range.start);
                let key = Key { text: property.name.as_str().to_owned(), at };
                let node = convert(&property.value, lines, file, depth + 1, budget)?;
                entries.insert(key, node, file)?;
            }
            Value::Map(entries.list)
        }
    };
    Ok(Node { value, at })
}
