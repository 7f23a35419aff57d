//! What holds of every contract.

use envharness_spec::contract::{Contract, Validator, canonical, meaning};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Property names, those that look like keywords among them.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,4}",
        prop::sample::select(vec!["title", "description", "examples", "$comment", "deprecated", "properties", "required"])
            .prop_map(str::to_owned)
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec!["integer", "number", "string", "boolean", "null"]).prop_map(|kind| json!({"type": kind}));
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::btree_map(name(), inner.clone(), 0..4).prop_map(|properties| {
                let required: Vec<&String> = properties.keys().collect();
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            prop::collection::vec(inner, 1..4).prop_map(|schemas| json!({"anyOf": schemas})),
        ]
    })
}

/// A value that may or may not fit a schema of [`schema`].
fn instance() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!(1.5)), Just(json!("a")), Just(json!(true)), Just(Value::Null)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// The same schema with words in every place where a schema may have some, and its keys in another order.
fn annotated(schema: &Value, words: &str) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in map.iter().rev() {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                Value::Object(properties.iter().rev().map(|(name, schema)| (name.clone(), annotated(schema, words))).collect())
            }
            ("anyOf", Value::Array(schemas)) => Value::Array(schemas.iter().map(|schema| annotated(schema, words)).collect()),
            ("required", Value::Array(names)) => Value::Array(names.iter().rev().cloned().collect()),
            ("items", schema) => annotated(schema, words),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    for key in ["title", "description", "$comment"] {
        out.insert(key.to_owned(), json!(words));
    }
    out.insert("examples".to_owned(), json!([words]));
    out.insert("deprecated".to_owned(), json!(true));
    Value::Object(out)
}

fn contract(action: Value) -> Contract {
    let any = json!({"type": "object"});
    Contract { name: "n".into(), version: "1".into(), action, observation: any.clone(), reset: any.clone(), state: any }
}

/// The same value with the keys of every object in reverse, and the text to read it from.
fn reversed_text(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(reversed_text).collect::<Vec<_>>().join(" , ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().rev().map(|(key, value)| format!("{}: {}", json!(key), reversed_text(value))).collect();
            format!("{{ {} }}", entries.join(",\n"))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn canonical_text_does_not_depend_on_order_or_white_space(value in value()) {
        let again: Value = serde_json::from_str(&reversed_text(&value)).expect("JSON");
        prop_assert_eq!(canonical(&again), canonical(&value));
    }

    #[test]
    fn canonical_text_reads_back_as_the_same_text(value in value()) {
        let text = canonical(&value);
        let again: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(canonical(&again), text);
    }

    #[test]
    fn whole_doubles_and_integers_have_one_text(number in -(1_i64 << 53)..(1_i64 << 53)) {
        #[expect(clippy::cast_precision_loss, reason = "the range is exact")]
        let double = number as f64;
        prop_assert_eq!(canonical(&json!(double)), number.to_string());
    }

    #[test]
    fn words_do_not_change_the_digest(schema in schema(), words in any::<String>()) {
        prop_assert_eq!(contract(annotated(&schema, &words)).digest(), contract(schema).digest());
    }

    #[test]
    fn a_property_more_changes_the_digest(schema in schema(), name in name()) {
        let with = |properties: Value| json!({"type": "object", "properties": properties});
        prop_assert_ne!(contract(with(json!({name: schema}))).digest(), contract(with(json!({}))).digest());
    }

    #[test]
    fn meaning_accepts_what_the_schema_accepts(schema in schema(), value in instance()) {
        let whole = Validator::compile(&schema).expect("a schema");
        let reduced = Validator::compile(&meaning(&schema)).expect("a schema");
        prop_assert_eq!(whole.is_valid(&value), reduced.is_valid(&value));
        prop_assert_eq!(meaning(&meaning(&schema)), meaning(&schema));
    }

    #[test]
    fn a_value_fits_when_it_has_no_problems(schema in schema(), value in instance()) {
        let validator = Validator::compile(&schema).expect("a schema");
        let problems = validator.problems(&value);
        prop_assert_eq!(validator.is_valid(&value), problems.is_empty(), "{:?}", problems);
    }
}
