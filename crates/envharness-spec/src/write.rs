//! YAML for the canonical form. Strings that YAML could read otherwise are written as JSON strings, which YAML 1.2 contains.

use serde_json::{Map, Value};

/// The order in which people read a spec; other keys follow by name.
const ORDER: [&str; 8] = ["name", "description", "python", "backend", "isolation", "image", "dependencies", "env_vars"];

pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    if let Value::Object(map) = value {
        write_map(map, 0, &mut out);
    }
    out
}

fn write_map(map: &Map<String, Value>, indent: usize, out: &mut String) {
    let mut keys: Vec<&String> = map.keys().collect();
    if indent == 0 {
        keys.sort_by_key(|key| (ORDER.iter().position(|o| o == key).unwrap_or(ORDER.len()), (*key).clone()));
    }
    for key in keys {
        out.push_str(&" ".repeat(indent));
        out.push_str(&scalar(&Value::String(key.clone())));
        out.push(':');
        write_value(&map[key], indent, out);
    }
}

fn write_value(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_map(map, indent + 2, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            for item in items {
                out.push_str(&" ".repeat(indent + 2));
                // A nested collection in a list is written in flow style, which JSON is.
                out.push_str(&format!("- {}\n", if item.is_string() { scalar(item) } else { item.to_string() }));
            }
        }
        other => out.push_str(&format!(" {}\n", scalar(other))),
    }
}

fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b" _.-=<>[],/+!~".contains(&b))
        && !text.ends_with(' ')
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if plain { text.clone() } else { value.to_string() }
}
