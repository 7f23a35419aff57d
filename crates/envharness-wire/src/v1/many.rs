//! Vector frames: one entry for each session.
//!
//! A request's payload is a table `session: u32, sequence: u32, length: u32` and the payloads, one after the other; where it is
//! raw, the entries have no length and the rows of the tensor follow. An answer's entries are `session: u32, sequence: u32,
//! status: u16, flags: u8, 0: u8, length: u32` and the payloads; where it is raw, `row: u32` comes first, the entries follow
//! (their length is that of their info, or of their error), then `rewards: f64` of all, the rows of all, the infos of all.

use std::ops::Range;

use bytes::Bytes;

use super::Torn;

/// One session's part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The session.
    pub session: u32,
    /// Its place in the session.
    pub sequence: u32,
    /// The payload's place in the frame's.
    pub payload: Range<usize>,
}

/// One session's part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The session.
    pub session: u32,
    /// Its place in the session.
    pub sequence: u32,
    /// 0, or the number of a code.
    pub status: u16,
    /// The bits of an answer.
    pub flags: u8,
    /// The payload; of a raw answer `reward: f64, length: u32, observation, info`; of a failure the `data` of its error.
    pub payload: Bytes,
}

const ASK: usize = 12;
const ASK_RAW: usize = 8;
const TOLD: usize = 16;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a request's payload: session, sequence and payload of each.
pub fn write_asks<'a>(out: &mut Vec<u8>, asks: impl Iterator<Item = (u32, u32, &'a [u8])> + Clone, raw: bool) {
    for (session, sequence, payload) in asks.clone() {
        out.extend_from_slice(&session.to_le_bytes());
        out.extend_from_slice(&sequence.to_le_bytes());
        if !raw {
            out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
    }
    for (_, _, payload) in asks {
        out.extend_from_slice(payload);
    }
}

/// Reads a request's payload of `count` entries.
///
/// # Errors
/// [`Torn`] where the table and the payloads do not make up the whole; in a raw one also where the rows are not of one size.
pub fn read_asks(payload: &[u8], count: u32, raw: bool) -> Result<Vec<Ask>, Torn> {
    let count = count as usize;
    let table = count.checked_mul(if raw { ASK_RAW } else { ASK }).filter(|table| *table <= payload.len()).ok_or(Torn(0))?;
    let mut at = table;
    let row = if raw && count > 0 { (payload.len() - table) / count } else { 0 };
    let mut asks = Vec::with_capacity(count);
    for entry in 0..count {
        let start = entry * if raw { ASK_RAW } else { ASK };
        let length = if raw { row } else { word(payload, start + 8) as usize };
        let end = at.saturating_add(length);
        if end > payload.len() {
            return Err(Torn(start));
        }
        asks.push(Ask { session: word(payload, start), sequence: word(payload, start + 4), payload: at..end });
        at = end;
    }
    if at == payload.len() { Ok(asks) } else { Err(Torn(at)) }
}

/// The parts of a raw answer of one session: reward, observation, info.
///
/// # Errors
/// None where they are not there.
pub fn split_raw(payload: &[u8]) -> Option<(f64, Range<usize>, Range<usize>)> {
    let reward = f64::from_le_bytes(payload.get(..8)?.try_into().ok()?);
    let length = u32::from_le_bytes(payload.get(8..12)?.try_into().ok()?) as usize;
    let end = 12_usize.checked_add(length).filter(|end| *end <= payload.len())?;
    Some((reward, 12..end, end..payload.len()))
}

/// Writes an answer's payload. In a raw one, an entry whose payload is not of the others' row size must be a failure.
pub fn write_told(out: &mut Vec<u8>, told: &[Told], raw: bool) {
    let parts: Vec<_> =
        if raw { told.iter().map(|told| (told.status == 0).then(|| split_raw(&told.payload)).flatten()).collect() } else { Vec::new() };
    let row = parts.iter().flatten().map(|(_, observation, _)| observation.len()).max().unwrap_or(0);
    if raw {
        out.extend_from_slice(&u32::try_from(row).unwrap_or(u32::MAX).to_le_bytes());
    }
    for (at, told) in told.iter().enumerate() {
        let length = match parts.get(at) {
            Some(Some((_, _, info))) => info.len(),
            _ => told.payload.len(),
        };
        out.extend_from_slice(&told.session.to_le_bytes());
        out.extend_from_slice(&told.sequence.to_le_bytes());
        out.extend_from_slice(&told.status.to_le_bytes());
        out.extend_from_slice(&[told.flags, 0]);
        out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    if !raw {
        for told in told {
            out.extend_from_slice(&told.payload);
        }
        return;
    }
    for part in &parts {
        out.extend_from_slice(&part.as_ref().map_or(f64::NAN, |(reward, _, _)| *reward).to_le_bytes());
    }
    for (told, part) in told.iter().zip(&parts) {
        let from = out.len();
        if let Some((_, observation, _)) = part {
            out.extend_from_slice(&told.payload[observation.clone()]);
        }
        out.resize(from + row, 0);
    }
    for (told, part) in told.iter().zip(&parts) {
        match part {
            Some((_, _, info)) => out.extend_from_slice(&told.payload[info.clone()]),
            None => out.extend_from_slice(&told.payload),
        }
    }
}

/// One entry of an answer that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The session.
    pub session: u32,
    /// Its place in the session.
    pub sequence: u32,
    /// 0, or the number of a code.
    pub status: u16,
    /// The bits of an answer.
    pub flags: u8,
    /// The reward of a raw answer; NaN for none.
    pub reward: f64,
    /// The row of a raw answer; else nothing.
    pub row: Bytes,
    /// The payload; of a raw answer its info; of a failure the `data` of its error.
    pub payload: Bytes,
}

/// Reads an answer's payload of `count` entries.
///
/// # Errors
/// [`Torn`] where the parts do not make up the whole.
pub fn read_told(payload: &Bytes, count: u32, raw: bool) -> Result<Vec<Entry>, Torn> {
    let count = count as usize;
    let first = if raw { 4 } else { 0 };
    let table =
        count.checked_mul(TOLD).and_then(|table| table.checked_add(first)).filter(|table| *table <= payload.len()).ok_or(Torn(0))?;
    let row = if raw { word(payload, 0) as usize } else { 0 };
    let rewards = table;
    let rows = if raw { rewards + count * 8 } else { table };
    let mut at = row.checked_mul(count).and_then(|all| all.checked_add(rows)).filter(|at| *at <= payload.len()).ok_or(Torn(table))?;
    let mut entries = Vec::with_capacity(count);
    for entry in 0..count {
        let start = first + entry * TOLD;
        let end = at.saturating_add(word(payload, start + 12) as usize);
        if end > payload.len() {
            return Err(Torn(start));
        }
        let reward = if raw { payload[rewards + entry * 8..][..8].try_into().map_or(f64::NAN, f64::from_le_bytes) } else { f64::NAN };
        entries.push(Entry {
            session: word(payload, start),
            sequence: word(payload, start + 4),
            status: u16::from_le_bytes([payload[start + 8], payload[start + 9]]),
            flags: payload[start + 10],
            reward,
            row: if row == 0 { Bytes::new() } else { payload.slice(rows + entry * row..rows + (entry + 1) * row) },
            payload: payload.slice(at..end),
        });
        at = end;
    }
    if at == payload.len() { Ok(entries) } else { Err(Torn(at)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(reward: f64, observation: &[u8], info: &[u8]) -> Bytes {
        let mut out = reward.to_le_bytes().to_vec();
        out.extend_from_slice(&u32::try_from(observation.len()).unwrap().to_le_bytes());
        out.extend_from_slice(observation);
        out.extend_from_slice(info);
        Bytes::from(out)
    }

    #[test]
    fn raw_answers_read_back() {
        let told = [
            Told { session: 1, sequence: 9, status: 0, flags: 4, payload: raw(1.5, b"abcd", b"") },
            Told { session: 2, sequence: 8, status: 3, flags: 0, payload: Bytes::from_static(b"{\"code\":1}") },
            Told { session: 3, sequence: 7, status: 0, flags: 0, payload: raw(-1.0, b"efgh", b"{}") },
        ];
        let mut out = Vec::new();
        write_told(&mut out, &told, true);
        let out = Bytes::from(out);
        let read = read_told(&out, 3, true).unwrap();
        assert_eq!((read[0].reward, &read[0].row[..], &read[0].payload[..]), (1.5, &b"abcd"[..], &b""[..]));
        assert!(read[1].reward.is_nan());
        assert_eq!((read[1].status, &read[1].row[..], &read[1].payload[..]), (3, &b"\0\0\0\0"[..], &b"{\"code\":1}"[..]));
        assert_eq!((read[2].reward, &read[2].row[..], &read[2].payload[..]), (-1.0, &b"efgh"[..], &b"{}"[..]));
        for cut in 0..out.len() {
            assert!(read_told(&out.slice(..cut), 3, true).is_err());
        }
    }

    proptest! {
        #[test]
        fn requests_read_back(parts in prop::collection::vec((any::<u32>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..9)), 0..9)) {
            let mut out = Vec::new();
            write_asks(&mut out, parts.iter().map(|(session, sequence, payload)| (*session, *sequence, payload.as_slice())), false);
            let read = read_asks(&out, u32::try_from(parts.len()).unwrap(), false).unwrap();
            let read: Vec<_> = read.into_iter().map(|ask| (ask.session, ask.sequence, out[ask.payload].to_vec())).collect();
            prop_assert_eq!(read, parts);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120), count in any::<u32>(), raw in any::<bool>()) {
            let _ = read_asks(&bytes, count, raw);
            let _ = read_told(&Bytes::from(bytes), count, raw);
        }

        #[test]
        fn answers_read_back(parts in prop::collection::vec((any::<(u32, u32, u16, u8)>(), prop::collection::vec(any::<u8>(), 0..9)), 0..9)) {
            let told: Vec<Told> = parts.iter().map(|((session, sequence, status, flags), payload)| Told {
                session: *session, sequence: *sequence, status: *status, flags: *flags, payload: Bytes::from(payload.clone()) }).collect();
            let mut out = Vec::new();
            write_told(&mut out, &told, false);
            let read = read_told(&Bytes::from(out), u32::try_from(told.len()).unwrap(), false).unwrap();
            let read: Vec<Told> = read.into_iter().map(|e| Told { session: e.session, sequence: e.sequence, status: e.status, flags: e.flags, payload: e.payload }).collect();
            prop_assert_eq!(read, told);
        }
    }
}
