//! What a trunk remembers of its sessions: calls that are unanswered, and what was acknowledged. No I/O.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use envharness_wire::v1::many::read_told;
use envharness_wire::v1::{ANSWER, Encoding, HEADER, Header, Op, WINDOW, push};

use crate::call::{Alarm, Answer, Deliveries, Limit, Sink};
use crate::error::ClientError;

/// A message is closed, and another begun, beyond this many bytes.
const ONE_MESSAGE: usize = 256 * 1024;
/// A vector frame is split beyond this many bytes.
const ONE_FRAME: usize = 8 * 1024 * 1024;

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
    /// Of this process alone: a server that was started anew gives the same numbers again.
    serial: u64,
    contract: u16,
    next: u32,
    unanswered: VecDeque<Unanswered>,
    pub(crate) fate: Option<ClientError>,
}

impl SeatState {
    fn new(key: String, serial: u64, contract: u16) -> Self {
        Self { key, serial, contract, next: 1, unanswered: VecDeque::new(), fate: None }
    }

    /// Whether a call waits for its answer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// The call that an answer is to. None: it has its answer already.
    fn call_of(&mut self, sequence: u32, request: u64) -> Result<Option<Unanswered>, ClientError> {
        let Some(at) = self.unanswered.iter().position(|call| call.sequence == sequence) else {
            // What was sent again is answered twice where its answer crossed the second request.
            return if sequence.wrapping_sub(self.next).cast_signed() < 0 {
                Ok(None)
            } else {
                Err(wrong(format!("an answer to call {sequence}, which was not made")))
            };
        };
        if self.unanswered[at].request != request {
            return Err(wrong(format!("an answer to request {request} in the place of {}", self.unanswered[at].request)));
        }
        Ok(self.unanswered.remove(at))
    }

    /// A place for a call. Sequences go round: after the last comes 0.
    fn place(&mut self) -> u32 {
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        sequence
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
            status: call.limit.map_or(0, milliseconds),
            // Everything up to there has its answer.
            ack: self.unanswered.front().map_or(call.sequence, |first| first.sequence).wrapping_sub(1),
        }
    }
}

fn wrong(reason: String) -> ClientError {
    ClientError::Protocol { reason }
}

fn milliseconds(limit: Limit) -> u32 {
    let left = limit.until.saturating_duration_since(Instant::now()).as_millis();
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

/// One call of a vector frame.
#[derive(Debug)]
pub struct Entry {
    /// The session's number.
    pub session: u32,
    /// The session's number in this process.
    pub serial: u64,
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
    /// Whether a call got its answer since this was last looked at.
    pub(crate) answered: bool,
    /// Bytes that a message to the server may have; None where it did not tell.
    pub(crate) most: Option<usize>,
    requests: u64,
    serials: u64,
}

impl Seats {
    /// A number for a request.
    pub(crate) fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// A session is there from now on; gives its number in this process. What had its number before is gone.
    pub(crate) fn insert(&mut self, session: u32, key: String, contract: u16, deliveries: &mut Deliveries) -> u64 {
        self.serials += 1;
        if let Some(mut before) = self.by_number.insert(session, SeatState::new(key, self.serials, contract)) {
            before.end(&gone(), deliveries);
        }
        self.serials
    }

    fn held(&mut self, session: u32, serial: u64) -> Result<&mut SeatState, ClientError> {
        match self.by_number.get_mut(&session) {
            Some(seat) if seat.serial == serial => Ok(seat),
            Some(_) => Err(gone()),
            None => Err(ClientError::Closed),
        }
    }

    /// Why a session cannot be used any more.
    pub(crate) fn fate(&mut self, session: u32, serial: u64) -> Option<ClientError> {
        self.held(session, serial).map_or_else(Some, |seat| seat.fate.clone())
    }

    /// A session is let go. None where it was before.
    pub(crate) fn remove(&mut self, session: u32, serial: u64) -> Option<SeatState> {
        self.held(session, serial).ok()?;
        self.by_number.remove(&session)
    }

    fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX)
    }

    /// Adds a frame to what leaves.
    pub(crate) fn push(&mut self, header: Header, payload: &[u8]) {
        let most = self.most();
        match self.out.last_mut() {
            Some(last) if last.len() < ONE_MESSAGE && last.len() + HEADER + payload.len() <= most => push(last, header, payload),
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
        (session, serial): (u32, u64),
        op: Op,
        encoding: Encoding,
        payload: Bytes,
        limit: Option<Limit>,
        sink: Sink,
    ) -> Result<(u32, bool), (Sink, ClientError)> {
        let (request, most) = (self.request(), self.most());
        let look = self.alarm.set(limit);
        let seat = match self.held(session, serial) {
            Ok(seat) => seat,
            Err(error) => return Err((sink, error)),
        };
        if let Some(fate) = &seat.fate {
            return Err((sink, fate.clone()));
        }
        if payload.len() + HEADER > most {
            // It would cost every session of the connection.
            return Err((sink, ClientError::TooLarge { bytes: payload.len(), most }));
        }
        if seat.unanswered.len() >= WINDOW as usize {
            return Err((sink, ClientError::Busy { waiting: seat.unanswered.len() }));
        }
        let sequence = seat.place();
        let call = Unanswered { sequence, request, op, encoding, payload, sink, limit };
        let (header, payload) = (seat.header(session, &call), call.payload.clone());
        seat.unanswered.push_back(call);
        if self.up {
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
            let fits = entry.payload.len() + 2 * HEADER <= self.most();
            let together = self.held(entry.session, entry.serial).is_ok_and(|seat| {
                fits && seat.fate.is_none() && seat.unanswered.is_empty() && *contract.get_or_insert(seat.contract) == seat.contract
            });
            if !together {
                match self.ask((entry.session, entry.serial), one, encoding, entry.payload, limit, entry.sink) {
                    Ok((_, again)) => look |= again,
                    Err((sink, error)) => refused.push((sink, Err(error))),
                }
                continue;
            }
            let Some(seat) = self.by_number.get_mut(&entry.session) else { continue };
            let sequence = seat.place();
            let payload = entry.payload.clone();
            asks.push((entry.session, sequence, entry.payload));
            seat.unanswered.push_back(Unanswered { sequence, request, op: many, encoding, payload, sink: entry.sink, limit });
        }
        if self.up {
            let heading = Header {
                op: many as u8,
                flags: encoding as u8,
                contract: contract.unwrap_or(0),
                request,
                status: limit.map_or(0, milliseconds),
                ..Header::default()
            };
            self.push_many(heading, &asks, raw);
        }
        look
    }

    /// Vector frames for calls, as many as a message's limit asks for.
    fn push_many(&mut self, heading: Header, asks: &[(u32, u32, Bytes)], raw: bool) {
        let room = self.most().saturating_sub(2 * HEADER).min(ONE_FRAME);
        let mut rest = asks;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, _, payload)| {
                bytes += payload.len() + 12;
                bytes <= room
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let mut payload = Vec::with_capacity(bytes);
            let parts = now.iter().map(|(session, sequence, payload)| (*session, *sequence, &payload[..]));
            envharness_wire::v1::many::write_asks(&mut payload, parts, raw);
            self.push(Header { sequence: u32::try_from(now.len()).unwrap_or(u32::MAX), ..heading }, &payload);
            rest = later;
        }
    }

    /// The caller of a call does not wait any more.
    pub(crate) fn cancel(&mut self, session: u32, serial: u64, sequence: u32) -> Option<Sink> {
        let seat = self.held(session, serial).ok()?;
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

    /// An answer to a call of a session.
    pub(crate) fn answered(&mut self, header: &Header, payload: Bytes, deliveries: &mut Deliveries) -> Result<(), ClientError> {
        // Sessions that were let go are answered too.
        let Some(seat) = self.by_number.get_mut(&header.session) else { return Ok(()) };
        let Some(call) = seat.call_of(header.sequence, header.request)? else { return Ok(()) };
        self.answered = true;
        let outcome =
            if header.status == 0 { Answer::of(header.flags, payload) } else { Err(ClientError::of_status(header.status, &payload)) };
        if let Err(error) = &outcome
            && is_end(error)
        {
            seat.end(error, deliveries);
        }
        let torn = match &outcome {
            Err(error @ ClientError::Protocol { .. }) => Err(error.clone()),
            _ => Ok(()),
        };
        deliveries.push((call.sink, outcome));
        torn
    }

    /// An answer to calls of many sessions.
    pub(crate) fn answered_many(&mut self, header: &Header, payload: &Bytes, deliveries: &mut Deliveries) -> Result<(), ClientError> {
        let raw = Encoding::of(header.flags) == Some(Encoding::Tensor);
        let entries = read_told(payload, header.sequence, raw).map_err(|torn| wrong(format!("a vector answer: {torn}")))?;
        for entry in entries {
            let Some(seat) = self.by_number.get_mut(&entry.session) else { continue };
            let Some(call) = seat.call_of(entry.sequence, header.request)? else { continue };
            self.answered = true;
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

    /// A vector frame as a whole was refused. None of its calls has a place in its session now, so the sessions end.
    pub(crate) fn refused_many(&mut self, header: &Header, payload: &Bytes, deliveries: &mut Deliveries) {
        let error = ClientError::of_status(header.status, payload);
        for seat in self.by_number.values_mut() {
            if seat.unanswered.iter().any(|call| call.request == header.request) {
                self.answered = true;
                seat.end(&error, deliveries);
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

fn gone() -> ClientError {
    ClientError::Lost { reason: "the server does not know it any more".to_owned() }
}

/// Whether the session is gone with this failure.
fn is_end(error: &ClientError) -> bool {
    match error {
        ClientError::Server { code, data, .. } => match code.as_str() {
            // What is out of its place was not taken in, and nothing after it would be.
            "WORKER_DIED" | "STEP_TIMEOUT" | "SESSION_ERROR" | "DRAINING" | "SEQUENCE_ERROR" | "CONTRACT_MISMATCH" => true,
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

#[cfg(test)]
mod tests;
