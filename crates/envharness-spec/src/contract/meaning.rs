//! What a JSON Schema means, without what it says to people.

use serde_json::{Map, Value};

use super::canonical::canonical;

/// The keywords that only speak to people. `default` is none of them: it says what a missing key stands for.
const ANNOTATIONS: [&str; 5] = ["title", "description", "examples", "$comment", "deprecated"];

/// Keywords whose value is an object of schemas by name.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose value is a schema, or a list of schemas.
const NESTED: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// The schema reduced to what decides which values are accepted and how they are read; the digest is over this.
///
/// * Left out, wherever a schema stands: `title`, `description`, `examples`, `$comment` and `deprecated`.
///   A *property* of such a name is no keyword and stays.
/// * Sorted, since their order means nothing: `required`, the names in `dependentRequired`, and `type` where it is a
///   list. A list of one type is that type, and an empty `required` is none.
/// * Kept as it is: everything else. So `default`, `format`, `readOnly`, `discriminator`, keywords of a model
///   library's own, the names under `$defs`, and the order of `enum`, `anyOf` and `oneOf` (by which an agent may
///   number its choices) all count.
pub fn meaning(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in map {
        let keyword = key.as_str();
        if ANNOTATIONS.contains(&keyword) {
            continue;
        }
        let value = match value {
            Value::Object(schemas) if NAMED.contains(&keyword) => {
                Value::Object(schemas.iter().map(|(name, schema)| (name.clone(), meaning(schema))).collect())
            }
            Value::Array(schemas) if NESTED.contains(&keyword) => Value::Array(schemas.iter().map(meaning).collect()),
            value if NESTED.contains(&keyword) => meaning(value),
            Value::Array(names) if keyword == "required" && names.is_empty() => continue,
            Value::Array(names) if keyword == "required" => sorted(names),
            Value::Array(names) if keyword == "type" => match names.as_slice() {
                [one] => one.clone(),
                _ => sorted(names),
            },
            Value::Object(lists) if keyword == "dependentRequired" => {
                let lists = lists.iter().map(|(name, list)| (name.clone(), list.as_array().map_or_else(|| list.clone(), |l| sorted(l))));
                Value::Object(lists.collect())
            }
            value => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

fn sorted(values: &[Value]) -> Value {
    let mut values = values.to_vec();
    values.sort_by_cached_key(canonical);
    values.dedup();
    Value::Array(values)
}
