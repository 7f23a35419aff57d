//! The Task API: questions to a fresh instance about its tasks.

use std::sync::Arc;

use envharness_wire::frame::{Answer, Op};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::answer::{Body, detail, detail_text, internal_error, json_text};
use crate::live::Ended;
use crate::server::Shared;

/// The member names of a body, whether each must be there, and whether it is a number.
type Fields = &'static [(&'static str, bool, bool)];

/// A route's method of the environment and the fields of its body.
pub(crate) fn route(name: &str) -> Option<(&'static str, Fields)> {
    Some(match name {
        "tasks" => ("list_tasks", &[("split", true, false)]),
        "num_tasks" => ("num_tasks", &[("split", true, false)]),
        "task" => ("get_task", &[("split", true, false), ("index", true, true)]),
        "task_range" => ("get_task_range", &[("split", true, false), ("start", false, true), ("stop", false, true)]),
        _ => return None,
    })
}

/// Answers `GET /{env}/splits`.
pub(crate) async fn splits(shared: &Arc<Shared>, env: &str) -> Response<Body> {
    if let Some(refusal) = unknown(shared, env) {
        return refusal;
    }
    ask(shared, "list_splits", &[], |value| value.to_vec()).await
}

/// Answers `POST /{env}/{route}`.
pub(crate) async fn post(
    shared: &Arc<Shared>,
    env: &str,
    name: &str,
    (method, fields): (&'static str, Fields),
    body: &str,
) -> Response<Body> {
    let value: Value = match envharness_wire::json::scan(body).map(|_| serde_json::from_str(body)) {
        Err(error) => return crate::http::not_json(&error),
        Ok(value) => value.unwrap_or(Value::Null),
    };
    let arguments = match arguments(&value, fields) {
        Ok(arguments) => arguments,
        Err(items) => return detail_text(StatusCode::UNPROCESSABLE_ENTITY, items.to_string().as_bytes()),
    };
    if let Some(refusal) = unknown(shared, env) {
        return refusal;
    }
    let env_name = json!(shared.served().name).to_string();
    ask(shared, method, &arguments, |value| {
        let key = match name {
            "num_tasks" => "num_tasks",
            "task" => "task",
            _ => "tasks",
        };
        let mut out = format!("{{\"{key}\":").into_bytes();
        out.extend_from_slice(value);
        if name == "tasks" {
            out.extend_from_slice(format!(",\"env_name\":{env_name}").as_bytes());
        }
        out.push(b'}');
        out
    })
    .await
}

fn unknown(shared: &Shared, env: &str) -> Option<Response<Body>> {
    (!shared.served().name.eq_ignore_ascii_case(env)).then(|| detail(StatusCode::NOT_FOUND, format!("unknown environment '{env}'")))
}

fn arguments(value: &Value, fields: Fields) -> Result<Vec<Value>, Value> {
    let empty = Map::new();
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Err(json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}])),
        other => {
            return Err(json!([{"type": "model_attributes_type", "loc": ["body"],
                "msg": "Input should be a valid dictionary or object to extract fields from", "input": other}]));
        }
    };
    let map = if map.is_empty() { &empty } else { map };
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for (name, required, number) in fields {
        let item = |kind: &str, message: &str, input: &Value| json!({"type": kind, "loc": ["body", name], "msg": message, "input": input});
        match map.get(*name) {
            None if *required => problems.push(item("missing", "Field required", value)),
            None | Some(Value::Null) if !*required => found.push(Value::Null),
            Some(given) if *number => {
                let text = given.as_str().and_then(|text| text.trim().parse::<i64>().ok());
                match given.as_i64().or(text) {
                    Some(whole) => found.push(json!(whole)),
                    None if given.is_string() => {
                        problems.push(item("int_parsing", "Input should be a valid integer, unable to parse string as an integer", given));
                    }
                    None => problems.push(item("int_type", "Input should be a valid integer", given)),
                }
            }
            Some(given @ Value::String(_)) => found.push(given.clone()),
            Some(given) => problems.push(item("string_type", "Input should be a valid string", given)),
            None => {}
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(Value::Array(problems)) }
}

async fn ask(shared: &Arc<Shared>, method: &str, arguments: &[Value], shape: impl Fn(&[u8]) -> Vec<u8>) -> Response<Body> {
    let payload = json!({"method": method, "args": arguments}).to_string();
    match shared.served().host.ask(Op::Task, payload.as_bytes()).await {
        Err(failure) => crate::http::unavailable(&Ended::of(failure, None)),
        Ok(reply) if reply.kind == Answer::Ok => json_text(StatusCode::OK, shape(&reply.payload)),
        Ok(reply) => {
            let told: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
            let message = told["message"].as_str().unwrap_or_default();
            match told["code"].as_str() {
                Some("NOT_IMPLEMENTED") => detail(StatusCode::NOT_IMPLEMENTED, message),
                Some("INVALID_INDEX") => detail(StatusCode::BAD_REQUEST, message),
                _ => {
                    tracing::warn!("{method} raised: {message}\n{}", told["traceback"].as_str().unwrap_or_default());
                    internal_error()
                }
            }
        }
    }
}
