//! `envharness.v1`: many sessions on one socket, each request with an id, a deadline and its place in its session.
//!
//! A binary message holds one frame or several, one after the other; `docs/protocol.md` is the whole rule. A frame is a
//! [`Header`] and a payload; a vector frame's payload is a table of entries and their data, see [`many`].

pub mod many;

/// The subprotocol of the handshake.
pub const PROTOCOL: &str = "envharness.v1";
/// Bytes of a header.
pub const HEADER: usize = 32;
/// Requests of one session that may be unanswered at once.
pub const WINDOW: u32 = 16;
/// The bit of `op` that makes it the answer.
pub const ANSWER: u8 = 0x80;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The server's first words.
    Hello = 1,
    /// Make a session.
    Open = 2,
    /// Take over a session whose socket is gone.
    Attach = 3,
    /// Begin an episode.
    Reset = 4,
    /// Take a step.
    Step = 5,
    /// The state.
    State = 6,
    /// A JSON-RPC request: tools.
    Mcp = 7,
    /// A picture.
    Render = 8,
    /// End a session.
    Close = 9,
    /// Steps of many sessions.
    StepMany = 10,
    /// Resets of many sessions.
    ResetMany = 11,
    /// Forget a request that has not begun.
    Cancel = 12,
    /// The whole contract.
    Contract = 13,
    /// What the first words said, as it is now.
    Info = 14,
    /// Something a client should know, from the server.
    Event = 15,
}

impl Op {
    /// The operation of a byte, without [`ANSWER`].
    pub fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [Op; 15] = [
            Op::Hello,
            Op::Open,
            Op::Attach,
            Op::Reset,
            Op::Step,
            Op::State,
            Op::Mcp,
            Op::Render,
            Op::Close,
            Op::StepMany,
            Op::ResetMany,
            Op::Cancel,
            Op::Contract,
            Op::Info,
            Op::Event,
        ];
        ALL.get(usize::from(byte & !ANSWER).checked_sub(1)?).copied()
    }

    /// Whether requests of it have a place in their session, and are carried out once whatever is sent again.
    pub fn is_sequenced(self) -> bool {
        matches!(self, Self::Reset | Self::Step | Self::State | Self::Mcp | Self::Render)
    }
}

/// How a payload is written: the two lowest bits of `flags`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// JSON text.
    #[default]
    Json = 0,
    /// msgpack.
    Msgpack = 1,
    /// Raw values of the contract's tensor spaces.
    Tensor = 2,
}

impl Encoding {
    /// Of `flags`.
    pub fn of(flags: u8) -> Option<Self> {
        match flags & 3 {
            0 => Some(Self::Json),
            1 => Some(Self::Msgpack),
            2 => Some(Self::Tensor),
            _ => None,
        }
    }
}

/// An answer ends an episode.
pub const DONE: u8 = 4;
/// A NaN or an infinity became null.
pub const NOT_FINITE: u8 = 8;
/// The episode came to an end of its own (raw answers).
pub const TERMINATED: u8 = 16;
/// The episode was cut off (raw answers).
pub const TRUNCATED: u8 = 32;
/// The request had been carried out before; this is its answer again.
pub const REPLAYED: u8 = 64;

/// The header of a frame, 32 bytes, little-endian.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload.
    pub length: u32,
    /// The operation, with [`ANSWER`] in an answer.
    pub op: u8,
    /// Bits.
    pub flags: u8,
    /// The number of the contract that the payload is written by; 0 where it is by none.
    pub contract: u16,
    /// The session; 0 for none.
    pub session: u32,
    /// The request's place in its session, from 1; in a vector frame the number of entries.
    pub sequence: u32,
    /// The request, as its client numbers them; 0 in what answers nothing.
    pub request: u64,
    /// Of a request: milliseconds it may wait for its turn, 0 for any time. Of an answer: 0 or the number of a code.
    pub status: u32,
    /// Of a request: every answer of the session up to this sequence has arrived.
    pub ack: u32,
}

impl Header {
    /// Reads the first [`HEADER`] bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Self {
            length: word(0),
            op: bytes[4],
            flags: bytes[5],
            contract: u16::from_le_bytes([bytes[6], bytes[7]]),
            session: word(8),
            sequence: word(12),
            request: u64::from(word(16)) | u64::from(word(20)) << 32,
            status: word(24),
            ack: word(28),
        })
    }

    /// Appends it; `length` must be set.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&[self.op, self.flags]);
        out.extend_from_slice(&self.contract.to_le_bytes());
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.request.to_le_bytes());
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&self.ack.to_le_bytes());
    }
}

/// Appends a frame; the header's length becomes the payload's.
pub fn push(out: &mut Vec<u8>, header: Header, payload: &[u8]) {
    // A message is bounded far below 4 GiB.
    Header { length: u32::try_from(payload.len()).unwrap_or(u32::MAX), ..header }.write(out);
    out.extend_from_slice(payload);
}

/// A message that is no sequence of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame is cut off at byte {0}")]
pub struct Torn(pub usize);

/// The frames of a message: header and the range of the payload.
///
/// # Errors
/// [`Torn`] where a frame goes beyond the message.
pub fn frames(message: &[u8]) -> impl Iterator<Item = Result<(Header, std::ops::Range<usize>), Torn>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= message.len() {
            return None;
        }
        let Some(header) = Header::read(&message[at..]) else {
            let torn = Torn(at);
            at = message.len();
            return Some(Err(torn));
        };
        let start = at + HEADER;
        let end = start.saturating_add(header.length as usize);
        if end > message.len() {
            let torn = Torn(at);
            at = message.len();
            return Some(Err(torn));
        }
        at = end;
        Some(Ok((header, start..end)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_read_back(parts in prop::collection::vec((any::<(u8, u8, u16, u32, u32, u64, u32, u32)>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6)) {
            let mut out = Vec::new();
            let mut wanted = Vec::new();
            for ((op, flags, contract, session, sequence, request, status, ack), payload) in &parts {
                let header = Header { length: payload.len() as u32, op: *op, flags: *flags, contract: *contract, session: *session,
                    sequence: *sequence, request: *request, status: *status, ack: *ack };
                push(&mut out, header, payload);
                wanted.push((header, payload.clone()));
            }
            let read: Vec<_> = frames(&out).map(|frame| frame.map(|(header, at)| (header, out[at].to_vec())).unwrap()).collect();
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(frames(&bytes).count() <= bytes.len() / HEADER + 1);
        }
    }

    #[test]
    fn a_cut_frame_is_told() {
        let mut out = Vec::new();
        push(&mut out, Header { op: 5, ..Header::default() }, b"{}");
        assert_eq!(frames(&out[..33]).collect::<Vec<_>>(), [Err(Torn(0))]);
        assert_eq!(frames(&out[..5]).collect::<Vec<_>>(), [Err(Torn(0))]);
    }

    #[test]
    fn operations_by_their_bytes() {
        for byte in 1..=15 {
            assert_eq!(Op::from_byte(byte).map(|op| op as u8), Some(byte));
            assert_eq!(Op::from_byte(byte | ANSWER).map(|op| op as u8), Some(byte));
        }
        assert_eq!(Op::from_byte(0), None);
        assert_eq!(Op::from_byte(16), None);
    }
}
