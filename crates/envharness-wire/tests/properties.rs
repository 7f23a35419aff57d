//! The scanner against a parser of values: both read the same texts, and members hold the same values.

use envharness_wire::json::{Outer, scan};
use proptest::prelude::*;
use serde_json::Value;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..5).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in value(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        match scan(&text).unwrap() {
            Outer::Object(members) => {
                let map = value.as_object().unwrap();
                prop_assert_eq!(members.len(), map.len());
                for member in members {
                    prop_assert_eq!(serde_json::from_str::<Value>(member.value).unwrap(), serde_json::from_str::<Value>(&map[member.key.as_ref()].to_string()).unwrap());
                }
            }
            Outer::Other(rest) => prop_assert_eq!(rest, text.trim()),
        }
    }

    #[test]
    fn any_text_is_judged_as_by_a_strict_parser(text in "[\\[\\]{}\",:0-9eE+.\\-nulltrefas \\\\u]{0,24}") {
        let strict = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(scan(&text).is_ok(), strict);
    }
}
