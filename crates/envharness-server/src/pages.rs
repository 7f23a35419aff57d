//! `/openapi.json` and the page that shows it.

use serde_json::{Map, Value, json};

use crate::config::RunMode;
use crate::server::Shared;

/// The description of the HTTP routes (OpenAPI 3.1).
pub(crate) fn openapi(shared: &Shared) -> Value {
    let served = shared.served();
    let contract = &served.contract;
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let any = json!({"type": "object", "additionalProperties": true});
    let step_like = json!({"title": "StepResponse", "type": "object", "required": ["observation"], "properties": {
        "observation": reference("Observation"),
        "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": null},
        "done": {"type": "boolean", "default": false},
        "metadata": {"anyOf": [any, {"type": "null"}], "default": null}}});
    let step = json!({"title": "StepRequest", "type": "object", "required": ["action"], "properties": {
        "action": reference("Action"),
        "timeout_s": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}], "default": null},
        "request_id": {"anyOf": [{"type": "string", "maxLength": 255}, {"type": "null"}], "default": null}}});
    let body = |schema: Value| json!({"required": true, "content": {"application/json": {"schema": schema}}});
    let ok = |schema: Value| json!({"200": {"description": "Successful Response", "content": {"application/json": {"schema": schema}}}});
    let refused = |responses: Value| {
        let mut responses = responses;
        responses["422"] = json!({"description": "Validation Error", "content": {"application/json": {"schema": any}}});
        responses
    };
    let mut paths = Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        let entry = paths.entry(path.to_owned()).or_insert_with(|| json!({}));
        entry[method] = operation;
    };
    let plain = |tag: &str, summary: &str| json!({"tags": [tag], "summary": summary, "responses": ok(any.clone())});
    add("/health", "get", plain("Health", "Whether the server answers"));
    add("/ready", "get", plain("Health", "Whether it takes new sessions, and how many"));
    add("/metadata", "get", plain("Environment Info", "What the environment says of itself"));
    add("/schema", "get", plain("Schema", "The JSON Schemas of action, observation and state"));
    add("/contract", "get", plain("Schema", "The contract with its version and digest"));
    if shared.config.mode == RunMode::Simulation {
        let reset = json!({"required": false, "content": {"application/json": {"schema": reference("ResetRequest")}}});
        add(
            "/reset",
            "post",
            json!({"tags": ["Environment Control"], "summary": "Reset a fresh environment", "requestBody": reset,
            "responses": refused(ok(reference("StepResponse")))}),
        );
        add(
            "/step",
            "post",
            json!({"tags": ["Environment Control"], "summary": "Step a fresh environment",
            "requestBody": body(reference("StepRequest")), "responses": refused(ok(reference("StepResponse")))}),
        );
        add(
            "/state",
            "get",
            json!({"tags": ["State Management"], "summary": "The state of a fresh environment",
            "responses": ok(reference("State"))}),
        );
    }
    add(
        "/mcp",
        "post",
        json!({"tags": ["MCP"], "summary": "JSON-RPC: tools", "requestBody": body(any.clone()), "responses": ok(any.clone())}),
    );
    add(
        "/list_environments",
        "get",
        json!({"tags": ["Task API"], "summary": "The environment's name",
        "responses": ok(json!({"type": "array", "items": {"type": "string"}}))}),
    );
    let env = json!([{"name": "env_name", "in": "path", "required": true, "schema": {"type": "string"}}]);
    for (route, summary) in [("tasks", "Tasks of a split"), ("num_tasks", "How many"), ("task", "One task"), ("task_range", "Some of them")]
    {
        add(
            &format!("/{{env_name}}/{route}"),
            "post",
            json!({"tags": ["Task API"], "summary": summary, "parameters": env,
            "requestBody": body(any.clone()), "responses": refused(ok(any.clone()))}),
        );
    }
    add(
        "/{env_name}/splits",
        "get",
        json!({"tags": ["Task API"], "summary": "Splits", "parameters": env, "responses": ok(json!({"type": "array"}))}),
    );
    let mut schemas = Map::new();
    for (name, schema) in [
        ("Action", &contract.action),
        ("Observation", &contract.observation),
        ("State", &contract.state),
        ("ResetRequest", &contract.reset),
    ] {
        schemas.insert(name.to_owned(), moved(schema, name));
    }
    schemas.insert("StepRequest".to_owned(), step);
    schemas.insert("StepResponse".to_owned(), step_like);
    json!({"openapi": "3.1.0", "info": {"title": "OpenEnv Environment HTTP API", "version": "1.0.0",
        "description": format!("{}: sessions are held over the WebSocket `/ws`; each HTTP call has an environment of its own.", served.name)},
        "paths": paths, "components": {"schemas": schemas}})
}

/// A schema below `components`: its references to its own `$defs` follow it there.
fn moved(schema: &Value, name: &str) -> Value {
    match schema {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| match (key.as_str(), value.as_str()) {
                    ("$ref", Some(target)) => {
                        let target =
                            target.strip_prefix('#').map_or_else(|| target.to_owned(), |rest| format!("#/components/schemas/{name}{rest}"));
                        (key.clone(), Value::String(target))
                    }
                    _ => (key.clone(), moved(value, name)),
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(|item| moved(item, name)).collect()),
        other => other.clone(),
    }
}

/// The page: routes and schemas, without anything from elsewhere.
pub(crate) fn docs(shared: &Shared) -> String {
    let description = openapi(shared);
    let mut routes = String::new();
    for (path, methods) in description["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let summary = escape(operation["summary"].as_str().unwrap_or_default());
            routes.push_str(&format!(
                "<tr><td><b>{}</b></td><td><code>{}</code></td><td>{summary}</td></tr>\n",
                method.to_uppercase(),
                escape(path)
            ));
        }
    }
    let mut schemas = String::new();
    for (name, schema) in description["components"]["schemas"].as_object().into_iter().flatten() {
        schemas.push_str(&format!("<details><summary>{}</summary><pre>{}</pre></details>\n", escape(name), escape(&format!("{schema:#}"))));
    }
    let served = shared.served();
    PAGE.replace("{name}", &escape(&served.name))
        .replace("{digest}", &escape(&served.digest))
        .replace("{routes}", &routes)
        .replace("{schemas}", &schemas)
}

const PAGE: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>OpenEnv Environment HTTP API</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark; }
td { padding: .2rem .8rem .2rem 0; vertical-align: top; } pre { overflow: auto; padding: .8rem; border: 1px solid #8886; }
</style></head><body>
<h1>{name}</h1>
<p>OpenEnv Environment HTTP API 1.0.0, described by <a href="/openapi.json">/openapi.json</a>. Contract <code>{digest}</code>.</p>
<h2>Sessions</h2>
<p>A session is a WebSocket at <code>/ws</code>: JSON texts, one reply to each request, in order.</p>
<pre>{"type": "reset", "data": {"seed": 1}}
{"type": "step", "data": {…the action…}}
{"type": "state"}
{"type": "close"}</pre>
<h2>Routes</h2><table>
{routes}</table>
<h2>Schemas</h2>
{schemas}</body></html>
"#;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
