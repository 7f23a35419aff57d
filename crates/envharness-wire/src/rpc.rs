//! JSON-RPC 2.0 as `/mcp` speaks it: to OpenEnv's own clients, and to stock clients of the Model Context Protocol.

use serde_json::{Map, Value, json};

/// The text is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// It is not a request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit.
pub const INVALID_PARAMS: i64 = -32602;
/// The call failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// All sessions are in use.
pub const AT_CAPACITY: i64 = -32000;

/// The revisions of the Model Context Protocol that are spoken, the newest first.
pub const PROTOCOL_VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is asked for.
    pub method: String,
    /// With which parameters.
    pub params: Map<String, Value>,
    /// The id to answer with; none for a notification.
    pub id: Option<Value>,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The code.
    pub code: i64,
    /// Why.
    pub message: String,
    /// More about it.
    pub data: Value,
}

impl Failure {
    /// A failure without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }
}

impl Call {
    /// Reads a request. `pydantic` is the version that links in refusals name; empty for none.
    ///
    /// # Errors
    /// The failure to answer, with the request's id where it has one.
    #[allow(clippy::result_large_err, reason = "a JSON value is larger where another crate has maps keep their order")]
    pub fn parse(text: &str, pydantic: &str) -> Result<Self, (Value, Failure)> {
        let value: Value = match crate::json::scan(text) {
            Err(error) => return Err((Value::Null, Failure::new(PARSE_ERROR, format!("Parse error: {error}")))),
            Ok(_) => match serde_json::from_str(text) {
                Ok(value) => value,
                Err(error) => return Err((Value::Null, Failure::new(PARSE_ERROR, format!("Parse error: {error}")))),
            },
        };
        let Value::Object(map) = value else {
            return Err((Value::Null, Failure::new(INVALID_REQUEST, "Invalid request: not an object")));
        };
        let id = map.get("id").cloned();
        let mut problems = Vec::new();
        match map.get("jsonrpc") {
            None => problems.push(("jsonrpc", "Field required", "missing")),
            Some(version) if version != "2.0" => problems.push(("jsonrpc", "Input should be '2.0'", "literal_error")),
            Some(_) => {}
        }
        match map.get("method") {
            None => problems.push(("method", "Field required", "missing")),
            Some(method) if !method.is_string() => problems.push(("method", "Input should be a valid string", "string_type")),
            Some(_) => {}
        }
        if map.get("params").is_some_and(|params| !params.is_object()) {
            problems.push(("params", "Input should be a valid dictionary", "dict_type"));
        }
        if id.as_ref().is_some_and(|id| !(id.is_string() || id.is_i64() || id.is_u64() || id.is_null())) {
            problems.push(("id", "Input should be a valid string or integer", "union"));
        }
        let known = ["jsonrpc", "method", "params", "id"];
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            problems.push((key, "Extra inputs are not permitted", "extra_forbidden"));
        }
        if !problems.is_empty() {
            let number =
                if problems.len() == 1 { "1 validation error".to_owned() } else { format!("{} validation errors", problems.len()) };
            let lines: String = problems
                .iter()
                .map(|(key, message, kind)| {
                    // A missing key is told of the whole input, any other of its value.
                    let input = map.get(*key).cloned().unwrap_or_else(|| Value::Object(map.clone()));
                    let shown = shorten(&as_python(&input));
                    let link = if pydantic.is_empty() {
                        String::new()
                    } else {
                        format!("\n    For further information visit https://errors.pydantic.dev/{pydantic}/v/{kind}")
                    };
                    format!("\n{key}\n  {message} [type={kind}, input_value={shown}, input_type={}]{link}", python_type(&input))
                })
                .collect();
            return Err((
                id.unwrap_or(Value::Null),
                Failure::new(INVALID_REQUEST, format!("Invalid request: {number} for JsonRpcRequest{lines}")),
            ));
        }
        let method = map.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = map.get("params").and_then(Value::as_object).cloned().unwrap_or_default();
        Ok(Self { method, params, id })
    }
}

/// A value as Python prints it.
fn as_python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
            let mut out = String::from(quote);
            for c in text.chars() {
                match c {
                    '\n' => out.push_str("\\n"),
                    '\t' => out.push_str("\\t"),
                    '\r' => out.push_str("\\r"),
                    '\\' => out.push_str("\\\\"),
                    c if c == quote => out.extend(['\\', c]),
                    c => out.push(c),
                }
            }
            out.push(quote);
            out
        }
        Value::Array(items) => format!("[{}]", items.iter().map(as_python).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| format!("{}: {}", as_python(&Value::String(key.clone())), as_python(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The middle of a long text is left out, as pydantic does it.
fn shorten(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= 50 {
        return text.to_owned();
    }
    chars[..25].iter().chain(&['.', '.', '.']).chain(&chars[chars.len() - 24..]).collect()
}

fn python_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// A reply.
pub fn reply(id: &Value, result: Result<Value, Failure>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(failure) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": failure.code, "message": failure.message, "data": failure.data}})
        }
    }
}

/// Rewrites what an environment's tools answer into the shape that the Model Context Protocol has: camel case, no nulls.
pub fn as_standard(method: &str, result: Value) -> Value {
    let Value::Object(mut map) = result else { return result };
    if method == "tools/call" {
        let mut out = Map::new();
        out.insert("content".to_owned(), without_nulls(map.remove("content").unwrap_or_else(|| json!([]))));
        if let Some(structured) = map.remove("structured_content").filter(Value::is_object) {
            out.insert("structuredContent".to_owned(), structured);
        }
        if let Some(meta) = map.remove("meta").filter(Value::is_object) {
            out.insert("_meta".to_owned(), meta);
        }
        out.insert("isError".to_owned(), map.remove("is_error").unwrap_or(Value::Bool(false)));
        return Value::Object(out);
    }
    without_nulls(Value::Object(map))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| if key == "meta" { ("_meta".to_owned(), value) } else { (key, outer(value)) }).collect())
        }
        other => other,
    }
}

/// Schemas and arguments below the first level may hold meaningful nulls.
fn outer(value: Value) -> Value {
    match value {
        Value::Array(items) if items.iter().all(Value::is_object) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_what_is_wrong_with_them() {
        let call = Call::parse(r#"{"jsonrpc":"2.0","method":"tools/list","id":1}"#, "").unwrap();
        assert_eq!((call.method.as_str(), call.id), ("tools/list", Some(json!(1))));
        let code = |text: &str| Call::parse(text, "2.14").unwrap_err().1.code;
        assert_eq!(code("{"), PARSE_ERROR);
        assert_eq!(code("[]"), INVALID_REQUEST);
        assert_eq!(code("{}"), INVALID_REQUEST);
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":"a","x":1}"#), INVALID_REQUEST);
        let told = Call::parse("{}", "2.14").unwrap_err().1.message;
        let first = "Invalid request: 2 validation errors for JsonRpcRequest\njsonrpc\n  Field required [type=missing, input_value={}, input_type=dict]";
        assert!(
            told.starts_with(&format!("{first}\n    For further information visit https://errors.pydantic.dev/2.14/v/missing\nmethod")),
            "{told}"
        );
    }

    #[test]
    fn standard_results_are_camel_case_without_nulls() {
        let own = json!({"content": [{"type": "text", "text": "hi", "annotations": null, "meta": null}], "structured_content": {"result": null},
            "meta": null, "data": "hi", "is_error": false});
        let standard = json!({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": null}, "isError": false});
        assert_eq!(as_standard("tools/call", own), standard);
    }
}
