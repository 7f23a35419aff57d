//! Environments compiled in: instances in this process, stepped on the task of their session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use envharness_native::{Descriptor, Env, EnvError, Outcome, RawOutcome, ResetArgs};
use envharness_wire::frame::{Answer, DONE, HTTP_SHAPE, MSGPACK, Op, TENSOR, TERMINATED, TRUNCATED};
use serde::Deserialize as _;
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
        Ok(NativeSession::new(self.descriptor, Some(self.active.clone())))
    }

    pub(crate) fn open_passing(&self) -> NativeSession {
        NativeSession::new(self.descriptor, None)
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
    /// Bytes of a raw observation, where there are raw values.
    observation: Option<usize>,
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

/// How deep a msgpack value may be nested, as in JSON.
const DEPTH: usize = 200;

/// Bytes of a raw answer before its observation.
const RAW_HEAD: usize = 12;

impl NativeSession {
    fn new(descriptor: &Descriptor, active: Option<Arc<AtomicUsize>>) -> Self {
        Self { env: (descriptor.make)(), observation: descriptor.spaces.map(|spaces| spaces().observation.bytes()), active }
    }

    pub(crate) fn call(&mut self, op: Op, flags: u8, payload: &[u8]) -> Reply {
        match op {
            Op::Reset | Op::Step if flags & TENSOR != 0 => self.call_raw(op, payload).unwrap_or_else(|refusal| refusal),
            Op::Reset | Op::Step | Op::State if flags & MSGPACK != 0 => self.call_packed(op, payload).unwrap_or_else(|refusal| refusal),
            Op::Render => failed("NOT_AVAILABLE", "this environment draws nothing"),
            _ => self.call_json(op, flags, payload),
        }
    }

    /// A reset or a step whose observation, and of a step the action, are raw bytes.
    fn call_raw(&mut self, op: Op, payload: &[u8]) -> Result<Reply, Reply> {
        let Some(length) = self.observation else {
            let why = "raw values are not to be had: this environment has no spaces, so that its values are no tensors";
            return Err(failed("NOT_AVAILABLE", why));
        };
        let mut out = vec![0; RAW_HEAD + length];
        let observation = &mut out[RAW_HEAD..];
        let outcome = match op {
            Op::Step => self.env.step_raw(payload, observation),
            _ => self.env.reset_raw(&reset_args(object(payload)?)?, observation),
        };
        let RawOutcome { reward, terminated, truncated } = outcome.map_err(refused)?;
        out[..8].copy_from_slice(&reward.to_le_bytes());
        // No tensor of an environment compiled in has 4 GiB.
        out[8..RAW_HEAD].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        let mut flags = if terminated { DONE | TERMINATED } else { 0 };
        flags |= if truncated { DONE | TRUNCATED } else { 0 };
        Ok(Reply { flags, ..Reply::from(out) })
    }

    /// The same values as in JSON, as msgpack: those of native environments are all of JSON's types.
    fn call_packed(&mut self, op: Op, payload: &[u8]) -> Result<Reply, Reply> {
        let json = if payload.is_empty() { Vec::new() } else { unpacked(payload)?.to_string().into_bytes() };
        let reply = self.call_json(op, 0, &json);
        if reply.kind != Answer::Ok {
            return Err(reply);
        }
        let packed = serde_json::from_slice::<Value>(&reply.payload).map_err(|error| failed("EXECUTION_ERROR", &error.to_string()))?;
        let packed = rmp_serde::to_vec(&packed).map_err(|error| failed("EXECUTION_ERROR", &error.to_string()))?;
        Ok(Reply { flags: reply.flags, ..Reply::from(packed) })
    }

    fn call_json(&mut self, op: Op, flags: u8, payload: &[u8]) -> Reply {
        let http = flags & HTTP_SHAPE != 0;
        match op {
            Op::Reset => match object(payload).and_then(reset_args) {
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

/// Reads msgpack of JSON's types; anything else is refused.
fn unpacked(payload: &[u8]) -> Result<Value, Reply> {
    let refuse =
        |why: String| invalid(&json!([{"type": "msgpack_invalid", "loc": [], "msg": format!("Invalid msgpack: {why}"), "input": null}]));
    let mut reader = rmp_serde::Deserializer::new(std::io::Cursor::new(payload));
    reader.set_max_depth(DEPTH);
    let value = Value::deserialize(&mut reader).map_err(|error| refuse(error.to_string()))?;
    match payload.len() as u64 - reader.position() {
        0 => Ok(value),
        rest => Err(refuse(format!("{rest} bytes follow the value"))),
    }
}

fn reset_args(mut map: Map<String, Value>) -> Result<ResetArgs, Reply> {
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

fn refused(error: EnvError) -> Reply {
    match error {
        EnvError::Invalid(problems) => invalid(&json!(problems)),
        EnvError::Failed(message) => failed("EXECUTION_ERROR", &message),
    }
}

fn observed(outcome: Result<Outcome, EnvError>, http: bool) -> Reply {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return refused(error),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> NativeSession {
        NativeHost::new(envharness_native::find(name).expect("a native environment"), 1).open().expect("a session")
    }

    fn json_of(reply: &Reply) -> Value {
        serde_json::from_slice(&reply.payload).expect("JSON")
    }

    fn packed_of(reply: &Reply) -> Value {
        assert_eq!(reply.kind, Answer::Ok, "{reply:?}");
        unpacked(&reply.payload).expect("msgpack")
    }

    #[test]
    fn an_episode_is_the_same_in_all_three_forms() {
        let [mut json, mut packed, mut raw] = [(); 3].map(|()| session("cartpole"));
        let args = json!({"seed": 5, "episode_id": "e"});
        let text = args.to_string();
        let mut told = json.call(Op::Reset, 0, text.as_bytes());
        let mut pack = packed.call(Op::Reset, MSGPACK, &rmp_serde::to_vec(&args).expect("msgpack"));
        let mut bytes = raw.call(Op::Reset, TENSOR, text.as_bytes());
        for step in 0_i64.. {
            let value = json_of(&told);
            assert_eq!(packed_of(&pack), value);
            assert_eq!(bytes.kind, Answer::Ok);
            let (reward, rest) = bytes.payload.split_first_chunk::<8>().expect("a reward");
            let (length, seen) = rest.split_first_chunk::<4>().expect("a length");
            assert_eq!((json!(f64::from_le_bytes(*reward)), u32::from_le_bytes(*length), seen.len()), (value["reward"].clone(), 16, 16));
            let floats: Vec<f32> = serde_json::from_value(value["observation"]["observation"].clone()).expect("floats");
            assert_eq!(floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<_>>(), seen);
            let terminated = value["observation"]["terminated"] == json!(true);
            assert_eq!((told.flags, pack.flags), (bytes.flags & DONE, bytes.flags & DONE));
            assert_eq!(bytes.flags & TERMINATED != 0, terminated);
            if told.flags & DONE != 0 {
                break;
            }
            let action = json!({"action": step & 1});
            told = json.call(Op::Step, 0, action.to_string().as_bytes());
            pack = packed.call(Op::Step, MSGPACK, &rmp_serde::to_vec(&action).expect("msgpack"));
            bytes = raw.call(Op::Step, TENSOR, &(step & 1).to_le_bytes());
        }
        let state = json_of(&json.call(Op::State, 0, b""));
        assert_eq!(packed_of(&packed.call(Op::State, MSGPACK, b"")), state);
        assert_eq!(json_of(&raw.call(Op::State, 0, b"")), state);
    }

    #[test]
    fn what_does_not_fit_is_refused_in_every_form() {
        let mut pole = session("cartpole");
        assert_eq!(pole.call(Op::Reset, TENSOR, b"").kind, Answer::Ok);
        for (flags, payload) in [
            (TENSOR, &[0; 7][..]),
            (TENSOR, &7_i64.to_le_bytes()),
            // Another value, no value, what JSON lacks, bytes too few and too many, and a list too deep.
            (MSGPACK, b"\x81\xa6action\x07"),
            (MSGPACK, b"\xc1"),
            (MSGPACK, b"\x81\xa6action\xc4\x01a"),
            (MSGPACK, b"\x81\xa6action"),
            (MSGPACK, b"\x81\xa6action\x01\x01"),
            (MSGPACK, &[0x91; 5000]),
            (MSGPACK, b"\xdd\xff\xff\xff\xff"),
            (MSGPACK, b"\xc6\xff\xff\xff\xff"),
        ] {
            let reply = pole.call(Op::Step, flags, payload);
            assert_eq!(reply.kind, Answer::Invalid, "{payload:?}: {reply:?}");
            assert!(json_of(&reply)[0]["msg"].is_string());
        }
        for (flags, payload) in [(TENSOR, &b"{\"seed\":-1}"[..]), (MSGPACK, b"\x81\xa4seed\xff"), (MSGPACK, b"\x90")] {
            assert_eq!(pole.call(Op::Reset, flags, payload).kind, Answer::Invalid, "{payload:?}");
        }
        assert_eq!(json_of(&pole.call(Op::State, 0, b""))["step_count"], 0);
        let mut world = session("grid_world");
        for reply in [world.call(Op::Reset, TENSOR, b""), world.call(Op::Step, TENSOR, &[0; 8]), world.call(Op::Render, 0, b"")] {
            assert_eq!((reply.kind, &json_of(&reply)["code"]), (Answer::Failed, &json!("NOT_AVAILABLE")));
        }
        let seen = world.call(Op::Reset, MSGPACK, b"");
        assert_eq!(packed_of(&seen)["observation"]["goal"], json!([4, 4]));
    }
}
