//! What a client sends on `/ws`.

use std::ops::Range;

use serde_json::Value;

use crate::code::Code;
use crate::json::{Member, Outer, scan};
use crate::reply;

/// A message of a client. Ranges are of the message's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reset the environment with these arguments (none: an empty object).
    Reset(Option<Range<usize>>),
    /// Step it with this action.
    Step(Range<usize>),
    /// Its state.
    State,
    /// A JSON-RPC request in an envelope.
    Mcp(Range<usize>),
    /// The end of the session.
    Close,
}

/// A message that is not a request: the reply that says so. The session goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code, for the counters.
    pub code: Code,
    /// The whole reply.
    pub reply: Vec<u8>,
}

impl Request {
    /// Reads a text message.
    ///
    /// # Errors
    /// [`Refused`] with the reply that the reference server would give; but a message that is not an object is refused by
    /// `INVALID_JSON` and costs no session.
    pub fn parse(text: &str, validation: &reply::Validation) -> Result<Self, Refused> {
        let members = match scan(text) {
            Ok(Outer::Object(members)) => members,
            Ok(Outer::Other(_)) => {
                return Err(refused(Code::InvalidJson, "Invalid JSON: a message is an object with a \"type\""));
            }
            Err(error) => return Err(refused(Code::InvalidJson, &format!("Invalid JSON: {error}"))),
        };
        let kind = members.iter().find(|m| m.key == "type").map_or("\"\"", |m| m.value);
        let at = |member: &Member<'_>| {
            let start = member.value.as_ptr() as usize - text.as_ptr() as usize;
            start..start + member.value.len()
        };
        let check = |data: Option<bool>| check(text, &members, data, validation);
        match kind {
            "\"reset\"" => Ok(Self::Reset(check(Some(false))?.map(at))),
            "\"step\"" => Ok(Self::Step(check(Some(true))?.map_or(0..0, at))),
            "\"mcp\"" => Ok(Self::Mcp(check(Some(true))?.map_or(0..0, at))),
            "\"state\"" => check(None).map(|_| Self::State),
            "\"close\"" => check(None).map(|_| Self::Close),
            other => match serde_json::from_str::<String>(other).ok().as_deref() {
                // A `type` that was written with escapes.
                Some(plain @ ("reset" | "step" | "mcp" | "state" | "close")) => {
                    let start = other.as_ptr() as usize - text.as_ptr() as usize;
                    let rewritten = format!("{}\"{plain}\"{}", &text[..start], &text[start + other.len()..]);
                    let shift = |range: Range<usize>| {
                        let by = |at: usize| if at > start { at + other.len() - plain.len() - 2 } else { at };
                        by(range.start)..by(range.end)
                    };
                    Self::parse(&rewritten, validation).map(|request| match request {
                        Self::Reset(data) => Self::Reset(data.map(shift)),
                        Self::Step(data) => Self::Step(shift(data)),
                        Self::Mcp(data) => Self::Mcp(shift(data)),
                        simple => simple,
                    })
                }
                Some(text) => Err(refused(Code::UnknownType, &format!("Unknown message type: {text}"))),
                None => Err(refused(Code::UnknownType, &format!("Unknown message type: {}", as_python(other)))),
            },
        }
    }
}

fn refused(code: Code, message: &str) -> Refused {
    Refused { code, reply: reply::error(code, message, &[]) }
}

/// `None` words as Python prints them.
fn as_python(value: &str) -> &str {
    match value {
        "null" => "None",
        "true" => "True",
        "false" => "False",
        other => other,
    }
}

/// Checks the keys of a message. `data`: not allowed, optional or required; where it is there it is an object.
fn check<'m, 'a>(
    text: &str,
    members: &'m [Member<'a>],
    data: Option<bool>,
    validation: &reply::Validation,
) -> Result<Option<&'m Member<'a>>, Refused> {
    let mut problems = Vec::new();
    let found = members.iter().find(|m| m.key == "data").filter(|_| data.is_some());
    match found {
        Some(member) if !member.value.starts_with('{') => {
            problems.push(validation.item("dict_type", "data", "Input should be a valid dictionary", member.value));
        }
        None if data == Some(true) => problems.push(validation.item("missing", "data", "Field required", text)),
        _ => {}
    }
    for extra in members.iter().filter(|m| m.key != "type" && (m.key != "data" || data.is_none())) {
        problems.push(validation.item("extra_forbidden", &extra.key, "Extra inputs are not permitted", extra.value));
    }
    if problems.is_empty() {
        return Ok(found);
    }
    Err(Refused { code: Code::ValidationError, reply: reply::invalid(format!("[{}]", problems.join(",")).as_bytes()) })
}

/// Text that JSON accepts everywhere: Python's `NaN` and infinities become null.
pub(crate) fn strict(value: &str) -> String {
    match serde_json::from_str::<&serde_json::value::RawValue>(value) {
        Ok(raw) => raw.get().to_owned(),
        Err(_) => Value::Null.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Request, Value> {
        Request::parse(text, &reply::Validation::default()).map_err(|refused| serde_json::from_slice(&refused.reply).unwrap())
    }

    #[test]
    fn the_five_messages() {
        assert_eq!(parse(r#"{"type":"reset"}"#), Ok(Request::Reset(None)));
        let text = r#"{"data": {"a":1}, "type":"step"}"#;
        let Ok(Request::Step(range)) = parse(text) else { panic!("a step") };
        assert_eq!(&text[range], r#"{"a":1}"#);
        let text = r#"{"type":"\u0073tep","data": {"a":1}}"#;
        let Ok(Request::Step(range)) = parse(text) else { panic!("a step") };
        assert_eq!(&text[range], r#"{"a":1}"#);
        assert_eq!(parse(r#"{"type":"state"}"#), Ok(Request::State));
        assert_eq!(parse(r#"{"type":"close"}"#), Ok(Request::Close));
    }

    #[test]
    fn refusals_have_the_shape_of_the_reference() {
        let error = |text: &str| parse(text).unwrap_err()["data"].clone();
        assert_eq!(error("[1]")["code"], "INVALID_JSON");
        assert_eq!(error("{}")["message"], "Unknown message type: ");
        assert_eq!(error(r#"{"type":null}"#)["message"], "Unknown message type: None");
        let missing = error(r#"{"type":"step"}"#);
        assert_eq!(missing["message"], "Invalid message");
        assert_eq!(missing["errors"][0]["type"], "missing");
        assert_eq!(missing["errors"][0]["input"], serde_json::json!({"type": "step"}));
        let extra = error(r#"{"type":"state","data":{}}"#);
        assert_eq!(extra["errors"][0]["type"], "extra_forbidden");
        assert_eq!(error(r#"{"type":"reset","data":[]}"#)["errors"][0]["type"], "dict_type");
    }
}
