//! Contracts by example.

use serde_json::{Value, json};

use super::*;

fn contract() -> Value {
    json!({
        "name": "echo",
        "version": "1.2.0",
        "action": {
            "title": "EchoAction", "type": "object", "additionalProperties": false,
            "properties": {"message": {"title": "Message", "type": "string"}, "n": {"type": "integer", "default": 1}},
            "required": ["message"]
        },
        "observation": {"type": "object", "properties": {"echoed": {"type": "string"}}},
        "reset": {"type": "object"},
        "state": {"type": "object"}
    })
}

fn digest_with(change: impl FnOnce(&mut Value)) -> String {
    let mut document = contract();
    change(&mut document);
    Contract::from_json(&document).expect("a contract").digest().to_string()
}

#[test]
fn a_document_reads_back_and_keeps_its_digest() {
    let read = Contract::from_json(&contract()).expect("a contract");
    let document = read.to_json();
    assert_eq!((&document["contract"], &document["digest"]), (&json!(1), &json!(read.digest().to_string())));
    assert_eq!(Contract::from_json(&document).expect("a contract"), read);
    let text: Value = serde_json::from_str(&read.to_text()).expect("JSON");
    assert_eq!(text, document);
}

/// Frozen: a change of what goes into the digest needs a new format.
#[test]
fn the_digest_is_this_one() {
    assert_eq!(digest_with(|_| ()), "sha256:45f32d73e10062ac73755cb413cce631216af7d8d49601d67e64637711f952a5");
}

#[test]
fn the_digest_ignores_words_and_order_and_nothing_else() {
    let plain = digest_with(|_| ());
    assert_eq!(plain, digest_with(|c| c["action"]["description"] = json!("Says it back.")));
    assert_eq!(plain, digest_with(|c| c["action"]["title"] = json!("SayAction")));
    assert_eq!(plain, digest_with(|c| c["action"]["properties"]["message"]["examples"] = json!(["hi"])));
    assert_eq!(plain, digest_with(|c| c["version"] = json!("2.0.0")));
    assert_eq!(plain, digest_with(|c| c["action"]["properties"]["n"]["default"] = json!(1.0)));
    assert_eq!(plain, digest_with(|c| c["reset"]["required"] = json!([])));
    assert_ne!(plain, digest_with(|c| c["action"]["properties"]["n"]["default"] = json!(2)));
    assert_ne!(plain, digest_with(|c| c["action"]["properties"]["title"] = json!({"type": "string"})));
    assert_ne!(plain, digest_with(|c| c["action"]["properties"]["description"] = json!(true)));
    assert_ne!(plain, digest_with(|c| c["state"]["$defs"] = json!({"title": {}})));
    assert_ne!(plain, digest_with(|c| c["state"]["const"] = json!({"title": "a"})));
    assert_ne!(plain, digest_with(|c| c["observation"] = json!({"type": "object"})));
    assert_ne!(
        digest_with(|c| c["state"]["enum"] = json!([{"description": "a"}])),
        digest_with(|c| c["state"]["enum"] = json!([{"description": "b"}]))
    );
}

#[test]
fn a_bad_contract_names_the_part_and_the_place() {
    let error = |key: &str, value: Value| {
        let mut document = contract();
        document[key] = value;
        Contract::from_json(&document).expect_err("a bad contract").to_string()
    };
    let cases = [
        (error("name", json!(3)), "`name` of the contract is a number, and not a string"),
        (error("state", json!(true)), "`state` of the contract is a boolean, and not a JSON Schema object"),
        (error("contract", json!(2)), "the contract has format 2, and this program reads format 1: update envharness"),
        (error("action", json!({"properties": {"a/b": {"type": "strin"}}})), "the action schema at `/properties/a~1b/type`: "),
        (error("reset", json!({"$ref": "#/$defs/A"})), "the reset schema"),
        (
            error("observation", json!({"properties": {"p": {"$ref": "https://example.com/p.json#/a"}}})),
            "the observation schema at `/properties/p/$ref`: `https://example.com/p.json` is outside the schema and is not fetched",
        ),
        (error("digest", json!("sha256:00")), "the contract says digest `sha256:00`, and its schemas have `sha256:"),
    ];
    for (error, expected) in cases {
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
    let mut document = contract();
    document.as_object_mut().expect("an object").remove("reset");
    assert_eq!(Contract::from_json(&document).expect_err("no reset").to_string(), "`reset` of the contract is missing");
    assert_eq!(Contract::from_json(&json!([])).expect_err("a list").to_string(), "the contract is an array, and not an object");
}

#[test]
fn files_and_other_addresses_are_not_fetched_either() {
    for address in ["file:///schema.json", "http://localhost:1/x", "other.json", "urn:x:y"] {
        let error = Validator::compile(&json!({"$ref": address})).expect_err("an outside address");
        assert!(matches!(error, ContractError::External { .. }), "{address}: {error}");
    }
    let handed_over = Validator::options().document("urn:x:y", json!({"type": "string"})).compile(&json!({"$ref": "urn:x:y"}));
    assert!(!handed_over.expect("a schema").is_valid(&json!(1)));
}

/// The numbers of RFC 8785, appendix B, by their bits, and what this text does otherwise.
#[test]
fn numbers_are_written_as_in_rfc_8785() {
    let cases: [(u64, &str); 22] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        (0x43e0_0000_0000_0000, "9223372036854775808"),
    ];
    for (bits, text) in cases {
        assert_eq!(canonical(&json!(f64::from_bits(bits))), text);
    }
    assert_eq!(canonical(&json!([u64::MAX, i64::MIN, 1e2, 100])), "[18446744073709551615,-9223372036854775808,100,100]");
}

#[test]
fn keys_are_sorted_as_in_rfc_8785() {
    let value = json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7});
    assert_eq!(canonical(&value), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}");
}

#[test]
fn what_pydantic_has_no_name_for_keeps_the_validators_words() {
    let validator = Validator::compile(&json!({"properties": {"a": {"uniqueItems": true}, "b": {"not": {"const": 1}}}})).expect("a schema");
    let problems = validator.problems(&json!({"a": [1, 1], "b": 1}));
    assert_eq!(problems.iter().map(|p| p.kind.as_str()).collect::<Vec<_>>(), ["json_schema", "json_schema"]);
    assert!(problems[0].msg.contains("non-unique"), "{}", problems[0].msg);
    assert_eq!(serde_json::to_value(&problems[1]).expect("JSON")["loc"], json!(["b"]));
}

#[test]
fn a_list_of_problems_has_an_end() {
    let validator = Validator::compile(&json!({"items": {"type": "object", "required": ["x"]}})).expect("a schema");
    let big = json!({"y": "z".repeat(100_000)});
    let problems = validator.problems(&Value::Array(vec![big; 200]));
    assert_eq!(problems.len(), 100);
    assert_eq!(problems[99].input, json!("<too large to repeat>"));
}

#[test]
fn formats_are_a_rule_on_request() {
    let schema = json!({"format": "date-time"});
    assert!(Validator::compile(&schema).expect("a schema").is_valid(&json!("yesterday")));
    let strict = Validator::options().formats(true).compile(&schema).expect("a schema");
    assert!(!strict.is_valid(&json!("yesterday")));
    assert_eq!(strict.problems(&json!("yesterday"))[0].kind, "json_schema");
}
