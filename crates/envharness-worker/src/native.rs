//! Environments compiled in: instances in this process, stepped on the task of their session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use envharness_native::{Descriptor, Env, EnvError, Outcome, ResetArgs};
use envharness_wire::frame::{Answer, DONE, HTTP_SHAPE, Op};
use serde_json::{Map, Value, json};

use crate::session::{Failure, Reply};

/// Hosts one native environment. Clones share its capacity.
#[derive(Debug, Clone)]
pub struct NativeHost {
    descriptor: &'static Descriptor,
    active: Arc<AtomicUsize>,
    most: usize,
}

impl NativeHost {
    /// Hosts up to `most` sessions.
    pub fn new(descriptor: &'static Descriptor, most: usize) -> Self {
        Self { descriptor, active: Arc::default(), most }
    }

    /// What is hosted.
    pub fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.active.load(Ordering::Relaxed), self.most)
    }

    pub(crate) fn open(&self) -> Result<NativeSession, Failure> {
        let taken = self.active.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < self.most).then_some(n + 1));
        taken.map_err(|active| Failure::Capacity { active, most: self.most })?;
        Ok(NativeSession { env: (self.descriptor.make)(), active: Some(self.active.clone()) })
    }

    pub(crate) fn open_passing(&self) -> NativeSession {
        NativeSession { env: (self.descriptor.make)(), active: None }
    }

    pub(crate) fn ask(&self, op: Op, payload: &[u8]) -> Reply {
        if op == Op::Metadata {
            let descriptor = self.descriptor;
            let metadata = json!({"name": descriptor.class_name, "description": descriptor.description, "readme_content": null,
                "version": env!("CARGO_PKG_VERSION"), "author": null, "documentation_url": null});
            return Reply::from(metadata.to_string().into_bytes());
        }
        let request: Value = serde_json::from_slice(payload).unwrap_or_default();
        let method = request["method"].as_str().unwrap_or("this").to_owned();
        failed("NOT_IMPLEMENTED", &format!("{method} is not supported for this environment"))
    }
}

fn failed(code: &str, message: &str) -> Reply {
    Reply { kind: Answer::Failed, ..Reply::from(json!({"code": code, "message": message}).to_string().into_bytes()) }
}

fn invalid(items: &Value) -> Reply {
    Reply { kind: Answer::Invalid, ..Reply::from(items.to_string().into_bytes()) }
}

/// One instance in this process.
pub struct NativeSession {
    env: Box<dyn Env>,
    active: Option<Arc<AtomicUsize>>,
}

impl std::fmt::Debug for NativeSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativeSession").finish_non_exhaustive()
    }
}

impl Drop for NativeSession {
    fn drop(&mut self) {
        if let Some(active) = &self.active {
            active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl NativeSession {
    pub(crate) fn call(&mut self, op: Op, flags: u8, payload: &[u8]) -> Reply {
        let http = flags & HTTP_SHAPE != 0;
        match op {
            Op::Reset => match reset_args(payload) {
                Ok(args) => observed(self.env.reset(&args), http),
                Err(reply) => reply,
            },
            Op::Step if http => match http_action(payload) {
                Ok(action) => observed(self.env.step(action.to_string().as_bytes()), true),
                Err(reply) => reply,
            },
            Op::Step => observed(self.env.step(payload), false),
            Op::State => Reply::from(self.env.state()),
            Op::Mcp => failed("NO_MCP", "Environment does not support MCP"),
            _ => Reply::from(Vec::new()),
        }
    }
}

fn item(kind: &str, key: &str, message: &str, input: &Value) -> Reply {
    invalid(&json!([{"type": kind, "loc": ["body", key], "msg": message, "input": input}]))
}

fn object(payload: &[u8]) -> Result<Map<String, Value>, Reply> {
    if payload.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(payload) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(invalid(&json!([{"type": "model_attributes_type", "loc": ["body"],
            "msg": "Input should be a valid dictionary or object to extract fields from", "input": other}]))),
        Err(error) => Err(failed("EXECUTION_ERROR", &error.to_string())),
    }
}

fn reset_args(payload: &[u8]) -> Result<ResetArgs, Reply> {
    let mut map = object(payload)?;
    let seed = match map.remove("seed") {
        None | Some(Value::Null) => None,
        Some(value) => match value.as_u64() {
            Some(seed) => Some(seed),
            None if value.is_i64() => return Err(item("greater_than_equal", "seed", "Input should be greater than or equal to 0", &value)),
            None => return Err(item("int_type", "seed", "Input should be a valid integer", &value)),
        },
    };
    let episode_id = match map.remove("episode_id") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.chars().count() <= 255 => Some(text),
        Some(value) => return Err(item("string_type", "episode_id", "Input should be a valid string of at most 255 characters", &value)),
    };
    Ok(ResetArgs { seed, episode_id, extra: map })
}

fn http_action(payload: &[u8]) -> Result<Value, Reply> {
    let mut map = object(payload)?;
    match map.get("timeout_s") {
        None | Some(Value::Null) => {}
        Some(value) if value.as_f64().is_some_and(|seconds| seconds > 0.0) => {}
        Some(value) => return Err(item("greater_than", "timeout_s", "Input should be greater than 0", value)),
    }
    match map.remove("action") {
        Some(action @ Value::Object(_)) => Ok(action),
        Some(other) => Err(item("dict_type", "action", "Input should be a valid dictionary", &other)),
        None => Err(item("missing", "action", "Field required", &Value::Object(map))),
    }
}

fn observed(outcome: Result<Outcome, EnvError>, http: bool) -> Reply {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(EnvError::Invalid(problems)) => return invalid(&json!(problems)),
        Err(EnvError::Failed(message)) => return failed("EXECUTION_ERROR", &message),
    };
    let mut out = Vec::with_capacity(outcome.observation.len() + 64);
    out.extend_from_slice(b"{\"observation\":");
    out.extend_from_slice(&outcome.observation);
    out.extend_from_slice(b",\"reward\":");
    // Writing a number to memory does not fail; what is not finite becomes null.
    let _ = serde_json::to_writer(&mut out, &outcome.reward);
    out.extend_from_slice(if outcome.done { b",\"done\":true" } else { b",\"done\":false" });
    out.extend_from_slice(if http { b",\"metadata\":null}" } else { b"}" });
    Reply { flags: if outcome.done { DONE } else { 0 }, ..Reply::from(out) }
}
