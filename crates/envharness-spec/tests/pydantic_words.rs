//! The problems of a contract beside those that pydantic reports for the model it was made from.
//!
//! `data/pydantic_problems.json` was recorded from pydantic 2.14 (`model_validate_json`, its `ctx` and `url`
//! left out). Where pydantic would convert a value (`"5"` for an integer) a schema refuses it; no such case is in it.

use envharness_spec::contract::{Problem, Validator, canonical};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Model {
    model: String,
    schema: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    input: Value,
    problems: Vec<Problem>,
}

#[test]
fn problems_are_those_of_pydantic() {
    let models: Vec<Model> = serde_json::from_str(include_str!("data/pydantic_problems.json")).expect("the recording");
    let mut different = Vec::new();
    for Model { model, schema, cases } in models {
        let validator = Validator::compile(&schema).expect("a schema of pydantic's");
        for Case { input, problems: theirs } in cases {
            assert!(!validator.is_valid(&input), "{model} {input}");
            let ours = validator.problems(&input);
            if lines(&ours) != lines(&theirs) {
                different.push(format!("{model} {input}\n  ours {:#?}\n  pydantic {:#?}", lines(&ours), lines(&theirs)));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The order of two fields is pydantic's own business; a schema has none.
fn lines(problems: &[Problem]) -> Vec<String> {
    let mut lines: Vec<String> = problems.iter().map(|p| canonical(&serde_json::to_value(p).expect("JSON"))).collect();
    lines.sort();
    lines
}
