//! The frames between the front and a worker: a fixed header and a payload, many in one write.
//!
//! `length: u32, op: u8, flags: u8, 0: u16, session: u32, request: u64, payload`, little-endian; `length` counts the payload
//! alone. The guest's `serve/frames.py` is the other end.

/// Bytes of a header.
pub const HEADER: usize = 20;

/// What the front asks of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Make the session's instance.
    Open = 1,
    /// Reset it; the payload is the `data` of the message.
    Reset = 2,
    /// Step it; the payload is the action.
    Step = 3,
    /// Its state.
    State = 4,
    /// Close it and forget the session.
    Close = 5,
    /// A tool call or the list of tools: `{"method":…,"params":…}`.
    Mcp = 6,
    /// A question about tasks, asked of a fresh instance: `{"method":…,"args":[…]}`.
    Task = 7,
    /// What a fresh instance says of itself.
    Metadata = 8,
    /// Is the worker's main thread alive?
    Ping = 9,
    /// Load the target, once, in a worker that was not forked from a template.
    Load = 10,
    /// A picture of the instance, as msgpack.
    Render = 11,
}

/// The bit of `flags` of a request whose answer has the shape of the HTTP routes.
pub const HTTP_SHAPE: u8 = 1;
/// The bit of `flags` of [`Op::Open`] that asks for the session to run on the worker's main thread.
pub const INLINE: u8 = 2;
/// The bit of `flags` of a request whose payload and answer are msgpack.
pub const MSGPACK: u8 = 4;
/// The bit of `flags` of a reset or a step whose answer, and of a step whose action, are raw values of the contract's tensor
/// spaces: an action is the bytes of its array; an answer is `reward: f64, length: u32, observation, info`, where a missing
/// reward is NaN and `info` is a JSON object or nothing. The payload of a reset is JSON as ever.
pub const TENSOR: u8 = 8;

/// What a worker answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It worked.
    Ok,
    /// The environment raised: `{"code":…,"message":…}`.
    Failed,
    /// The action does not fit: a list of pydantic's error items.
    Invalid,
    /// What a session printed: one byte for the stream (1, 2), then text.
    Log,
    /// Something the front should know, as JSON.
    Event,
}

/// The bit of `flags` of an answer that ends an episode.
pub const DONE: u8 = 1;
/// The bit of `flags` of an answer in which a NaN or an infinity became null.
pub const NOT_FINITE: u8 = 2;
/// The bit of `flags` of a raw answer whose episode came to an end of its own.
pub const TERMINATED: u8 = 4;
/// The bit of `flags` of a raw answer whose episode was cut off.
pub const TRUNCATED: u8 = 8;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload.
    pub length: usize,
    /// The operation or the kind of answer.
    pub op: u8,
    /// Bits.
    pub flags: u8,
    /// The session.
    pub session: u32,
    /// The request that is answered; 0 where none is.
    pub request: u64,
}

impl Header {
    /// Reads a header from the first [`HEADER`] bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let request = u64::from(word(12)) | u64::from(word(16)) << 32;
        Some(Self { length: word(0) as usize, op: bytes[4], flags: bytes[5], session: word(8), request })
    }

    /// The kind of answer, for a frame that came from a worker.
    pub fn answer(self) -> Option<Answer> {
        Some(match self.op {
            1 => Answer::Ok,
            2 => Answer::Failed,
            3 => Answer::Invalid,
            4 => Answer::Log,
            5 => Answer::Event,
            _ => return None,
        })
    }
}

/// Appends a request.
pub fn push(out: &mut Vec<u8>, op: Op, flags: u8, session: u32, request: u64, payload: &[u8]) {
    // A message is bounded far below 4 GiB.
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&[op as u8, flags, 0, 0]);
    out.extend_from_slice(&session.to_le_bytes());
    out.extend_from_slice(&request.to_le_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back() {
        let mut out = Vec::new();
        push(&mut out, Op::Step, HTTP_SHAPE, 7, u64::MAX - 1, b"{}");
        let header = Header::read(&out).unwrap();
        assert_eq!(header, Header { length: 2, op: 3, flags: 1, session: 7, request: u64::MAX - 1 });
        assert_eq!(&out[HEADER..], b"{}");
        assert_eq!(Header::read(&out[..19]), None);
    }
}
