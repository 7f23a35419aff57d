//! What the server sends on `/ws`. Payloads are spliced in as the bytes they are.

use crate::code::Code;
use crate::json::push_string;
use crate::request::strict;

fn wrap(kind: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + kind.len() + 24);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"data\":");
    out.extend_from_slice(payload);
    out.push(b'}');
    out
}

/// The reply to a reset or a step; the payload is `{"observation":…,"reward":…,"done":…}`.
pub fn observation(payload: &[u8]) -> Vec<u8> {
    wrap("observation", payload)
}

/// The reply to a question for the state.
pub fn state(payload: &[u8]) -> Vec<u8> {
    wrap("state", payload)
}

/// A JSON-RPC reply in an envelope.
pub fn mcp(payload: &[u8]) -> Vec<u8> {
    wrap("mcp", payload)
}

/// An error. `more` are further members of `data`: key and JSON text.
pub fn error(code: Code, message: &str, more: &[(&str, String)]) -> Vec<u8> {
    wrap("error", &error_data(code, message, more))
}

/// The `data` of an error.
pub fn error_data(code: Code, message: &str, more: &[(&str, String)]) -> Vec<u8> {
    let mut out = b"{\"message\":".to_vec();
    push_string(&mut out, message);
    out.extend_from_slice(b",\"code\":");
    push_string(&mut out, code.name());
    for (key, value) in more {
        out.push(b',');
        push_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    out
}

/// A message that does not fit; `errors` is a list of pydantic's items.
pub fn invalid(errors: &[u8]) -> Vec<u8> {
    error(Code::ValidationError, "Invalid message", &[("errors", String::from_utf8_lossy(errors).into_owned())])
}

/// Writes error items as the environment's pydantic does.
#[derive(Debug, Clone, Default)]
pub struct Validation {
    /// The version in the links of the items, as in `2.14`; empty where there is no pydantic.
    pub pydantic: String,
}

impl Validation {
    /// One item. `input` is JSON text.
    pub fn item(&self, kind: &str, key: &str, message: &str, input: &str) -> String {
        let mut out = b"{\"type\":".to_vec();
        push_string(&mut out, kind);
        out.extend_from_slice(b",\"loc\":[");
        push_string(&mut out, key);
        out.extend_from_slice(b"],\"msg\":");
        push_string(&mut out, message);
        out.extend_from_slice(b",\"input\":");
        out.extend_from_slice(strict(input).as_bytes());
        if !self.pydantic.is_empty() {
            out.extend_from_slice(b",\"url\":");
            push_string(&mut out, &format!("https://errors.pydantic.dev/{}/v/{kind}", self.pydantic));
        }
        out.push(b'}');
        String::from_utf8_lossy(&out).into_owned()
    }
}
