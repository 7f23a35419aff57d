//! What a trunk remembers of its sessions: calls that are unanswered, and what was acknowledged. No I/O.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use envharness_wire::v1::many::read_told;
use envharness_wire::v1::{ANSWER, Encoding, Header, Op, WINDOW, push};

use crate::call::{Alarm, Answer, Deliveries, Limit, Sink};
use crate::error::ClientError;

/// A message is closed, and another begun, beyond this many bytes.
const ONE_MESSAGE: usize = 256 * 1024;

/// A call without an answer.
#[derive(Debug)]
struct Unanswered {
    sequence: u32,
    request: u64,
    op: Op,
    encoding: Encoding,
    payload: Bytes,
    sink: Sink,
    limit: Option<Limit>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct SeatState {
    pub(crate) key: String,
    contract: u16,
    next: u32,
    unanswered: VecDeque<Unanswered>,
    pub(crate) fate: Option<ClientError>,
}

impl SeatState {
    pub(crate) fn new(key: String, contract: u16) -> Self {
        Self { key, contract, next: 1, unanswered: VecDeque::new(), fate: None }
    }

    /// Everything up to this sequence has its answer.
    fn ack(&self) -> u32 {
        self.unanswered.front().map_or(self.next, |first| first.sequence) - 1
    }

    /// It has ended: what waits is told.
    pub(crate) fn end(&mut self, error: &ClientError, deliveries: &mut Deliveries) {
        self.fate.get_or_insert_with(|| error.clone());
        deliveries.extend(self.unanswered.drain(..).map(|call| (call.sink, Err(error.clone()))));
    }

    fn header(&self, session: u32, call: &Unanswered) -> Header {
        let op = match call.op {
            Op::StepMany => Op::Step,
            Op::ResetMany => Op::Reset,
            op => op,
        };
        Header {
            length: 0,
            op: op as u8,
            flags: call.encoding as u8,
            contract: self.contract,
            session,
            sequence: call.sequence,
            request: call.request,
            status: call.limit.map_or(0, |limit| milliseconds(limit)),
            ack: call.sequence.min(self.ack() + 1) - 1,
        }
    }
}

fn milliseconds(limit: Limit) -> u32 {
    let left = limit.until.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

/// One call of a vector frame.
#[derive(Debug)]
pub struct Entry {
    /// The session.
    pub session: u32,
    /// Its payload.
    pub payload: Bytes,
    /// Where its outcome goes.
    pub sink: Sink,
}

/// The sessions of a trunk and the frames that are about to leave.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    pub(crate) by_number: HashMap<u32, SeatState>,
    pub(crate) out: Vec<Vec<u8>>,
    pub(crate) alarm: Alarm,
    /// Whether what is asked leaves at once; else it is sent when there is a connection.
    pub(crate) up: bool,
    requests: u64,
}

impl Seats {
    /// A number for a request.
    pub(crate) fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Adds a frame to what leaves.
    pub(crate) fn push(&mut self, header: Header, payload: &[u8]) {
        match self.out.last_mut() {
            Some(last) if last.len() < ONE_MESSAGE => push(last, header, payload),
            _ => {
                let mut first = Vec::with_capacity(payload.len() + 64);
                push(&mut first, header, payload);
                self.out.push(first);
            }
        }
    }

    /// A call of one session: its sequence, and whether whoever waits for the alarm must look again. A refusal goes to the sink.
    pub(crate) fn ask(
        &mut self,
        session: u32,
        op: Op,
        encoding: Encoding,
        payload: Bytes,
        limit: Option<Limit>,
        sink: Sink,
    ) -> Result<(u32, bool), (Sink, ClientError)> {
        let request = self.request();
        let look = self.alarm.set(limit);
        let seat = match self.by_number.get_mut(&session) {
            Some(seat) => seat,
            None => return Err((sink, ClientError::Closed)),
        };
        if let Some(fate) = &seat.fate {
            return Err((sink, fate.clone()));
        }
        if seat.unanswered.len() >= WINDOW as usize {
            return Err((sink, ClientError::Busy { waiting: seat.unanswered.len() }));
        }
        let sequence = seat.next;
        seat.next += 1;
        seat.unanswered.push_back(Unanswered { sequence, request, op, encoding, payload, sink, limit });
        if self.up
            && let Some(call) = seat.unanswered.back()
        {
            let (header, payload) = (seat.header(session, call), call.payload.clone());
            self.push(header, &payload);
        }
        Ok((sequence, look))
    }

    /// Calls of many sessions, in one frame where they can begin at once. True: whoever waits for the alarm must look again.
    pub(crate) fn ask_many(
        &mut self,
        op: Op,
        encoding: Encoding,
        limit: Option<Limit>,
        entries: Vec<Entry>,
        refused: &mut Deliveries,
    ) -> bool {
        let (one, many) = (op, if op == Op::Step { Op::StepMany } else { Op::ResetMany });
        let mut look = self.alarm.set(limit);
        let request = self.request();
        let raw = encoding == Encoding::Tensor && op == Op::Step;
        let mut asks = Vec::with_capacity(entries.len());
        let mut contract = None;
        for entry in entries {
            // A session with calls before this one, or by another contract, is asked by itself.
            let together = self.by_number.get(&entry.session).is_some_and(|seat| {
                seat.fate.is_none() && seat.unanswered.is_empty() && *contract.get_or_insert(seat.contract) == seat.contract
            });
            if !together {
                match self.ask(entry.session, one, encoding, entry.payload, limit, entry.sink) {
                    Ok((_, again)) => look |= again,
                    Err((sink, error)) => refused.push((sink, Err(error))),
                }
                continue;
            }
            let Some(seat) = self.by_number.get_mut(&entry.session) else { continue };
            let sequence = seat.next;
            seat.next += 1;
            let payload = entry.payload.clone();
            asks.push((entry.session, sequence, entry.payload));
            seat.unanswered.push_back(Unanswered { sequence, request, op: many, encoding, payload, sink: entry.sink, limit });
        }
        if self.up && !asks.is_empty() {
            let mut payload = Vec::with_capacity(asks.iter().map(|(_, _, payload)| payload.len() + 12).sum());
            let parts = asks.iter().map(|(session, sequence, payload)| (*session, *sequence, &payload[..]));
            envharness_wire::v1::many::write_asks(&mut payload, parts, raw);
            let header = Header {
                op: many as u8,
                flags: encoding as u8,
                contract: contract.unwrap_or(0),
                sequence: u32::try_from(asks.len()).unwrap_or(u32::MAX),
                request,
                status: limit.map_or(0, milliseconds),
                ..Header::default()
            };
            self.push(header, &payload);
        }
        look
    }

    /// The caller of a call does not wait any more.
    pub(crate) fn cancel(&mut self, session: u32, sequence: u32) -> Option<Sink> {
        let seat = self.by_number.get_mut(&session)?;
        let call = seat.unanswered.iter_mut().find(|call| call.sequence == sequence)?;
        let (sink, header) = (call.sink.take(), Header { op: Op::Cancel as u8, session, request: call.request, ..Header::default() });
        if self.up {
            self.push(header, b"");
        }
        Some(sink)
    }

    /// All calls without an answer are sent again, after the session was taken over.
    pub(crate) fn resend(&mut self, session: u32) {
        let Some(seat) = self.by_number.get(&session) else { return };
        let frames: Vec<_> = seat.unanswered.iter().map(|call| (seat.header(session, call), call.payload.clone())).collect();
        for (header, payload) in frames {
            self.push(header, &payload);
        }
    }

    /// An answer to a call of a session. False: it is to none that is known.
    pub(crate) fn answered(&mut self, header: &Header, payload: Bytes, deliveries: &mut Deliveries) {
        let Some(seat) = self.by_number.get_mut(&header.session) else { return };
        let Some(at) = seat.unanswered.iter().position(|call| call.sequence == header.sequence) else { return };
        let Some(call) = seat.unanswered.remove(at) else { return };
        let outcome =
            if header.status == 0 { Answer::of(header.flags, payload) } else { Err(ClientError::of_status(header.status, &payload)) };
        if let Err(error) = &outcome
            && is_end(error)
        {
            seat.end(&error.clone(), deliveries);
        }
        deliveries.push((call.sink, outcome));
    }

    /// An answer to calls of many sessions.
    pub(crate) fn answered_many(&mut self, header: &Header, payload: &Bytes, deliveries: &mut Deliveries) -> Result<(), ClientError> {
        let raw = Encoding::of(header.flags) == Some(Encoding::Tensor);
        let entries = read_told(payload, header.sequence, raw)
            .map_err(|torn| ClientError::Protocol { reason: format!("a vector answer: {torn}") })?;
        for entry in entries {
            let Some(seat) = self.by_number.get_mut(&entry.session) else { continue };
            let Some(at) = seat.unanswered.iter().position(|call| call.sequence == entry.sequence) else { continue };
            let Some(call) = seat.unanswered.remove(at) else { continue };
            if entry.status == 0 {
                deliveries
                    .push((call.sink, Ok(Answer { flags: entry.flags, payload: entry.payload, row: entry.row, reward: entry.reward })));
                continue;
            }
            let error = ClientError::of_status(u32::from(entry.status), &entry.payload);
            if is_end(&error) {
                seat.end(&error, deliveries);
            }
            deliveries.push((call.sink, Err(error)));
        }
        Ok(())
    }

    /// A vector frame as a whole was refused.
    pub(crate) fn refused_many(&mut self, header: &Header, payload: &Bytes, deliveries: &mut Deliveries) {
        let error = ClientError::of_status(header.status, payload);
        for seat in self.by_number.values_mut() {
            // A refusal of one entry names its session.
            while let Some(at) = seat
                .unanswered
                .iter()
                .position(|call| call.request == header.request && (header.sequence == 0 || call.sequence == header.sequence))
            {
                if let Some(call) = seat.unanswered.remove(at) {
                    deliveries.push((call.sink, Err(error.clone())));
                }
            }
        }
    }

    /// Ends calls whose time is over; their answers are not waited for, but keep their places.
    pub(crate) fn expire(&mut self, now: Instant, deliveries: &mut Deliveries) {
        let mut left: Option<Instant> = None;
        for call in self.by_number.values_mut().flat_map(|seat| &mut seat.unanswered) {
            let Some(limit) = call.limit.filter(|_| !matches!(call.sink, Sink::Nowhere)) else { continue };
            if limit.until <= now {
                deliveries.push((call.sink.take(), Err(limit.error())));
            } else {
                left = Some(left.map_or(limit.until, |at| at.min(limit.until)));
            }
        }
        self.alarm.reset(left.into_iter());
    }
}

/// Whether the session is gone with this failure.
fn is_end(error: &ClientError) -> bool {
    match error {
        ClientError::Server { code, data, .. } => match code.as_str() {
            "WORKER_DIED" | "STEP_TIMEOUT" | "SESSION_ERROR" | "DRAINING" => true,
            "FACTORY_ERROR" => data.contains("session_id"),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a frame answers.
pub(crate) fn is_answer(header: &Header) -> bool {
    header.op & ANSWER != 0
}
