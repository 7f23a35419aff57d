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
mod tests {
    use std::cell::RefCell;
    use std::collections::HashSet;
    use std::sync::{Arc, Mutex};

    use envharness_wire::v1::frames;
    use envharness_wire::v1::many::{Told, read_asks, write_told};

    use super::*;
    use crate::call::{Slots, deliver};

    /// The payloads of answers by their call, in the order in which they came.
    #[derive(Default)]
    struct Heard(Mutex<Vec<(u32, Result<String, String>)>>);

    impl Slots for Heard {
        fn put(&self, call: u32, outcome: crate::call::Outcome) {
            let text = outcome.map(|answer| String::from_utf8(answer.payload.to_vec()).unwrap()).map_err(|error| error.to_string());
            self.0.lock().unwrap().push((call, text));
        }
    }

    /// A server that carries out each sequence of a session once, in order, and keeps answers until they are acknowledged.
    #[derive(Default)]
    struct Model {
        carried_out: HashMap<u32, Vec<String>>,
        kept: HashMap<u32, Vec<(u32, String)>>,
    }

    impl Model {
        /// Gives the payload of the answer; None where it was acknowledged before.
        fn take(&mut self, session: u32, sequence: u32, ack: u32, payload: &[u8]) -> String {
            let done = self.carried_out.entry(session).or_default();
            let kept = self.kept.entry(session).or_default();
            kept.retain(|(kept, _)| *kept > ack);
            if sequence as usize == done.len() + 1 {
                done.push(String::from_utf8(payload.to_vec()).unwrap());
                kept.push((sequence, format!("answer to {}", done[done.len() - 1])));
            }
            assert!(kept.len() <= WINDOW as usize, "more is kept than the window has");
            assert!(sequence as usize <= done.len(), "session {session}: sequence {sequence} came after {}", done.len());
            let found = kept.iter().find(|(kept, _)| *kept == sequence);
            found.unwrap_or_else(|| panic!("session {session}: {sequence} was acknowledged and asked for again")).1.clone()
        }

        /// The answers to a message, as messages of their own.
        fn answer(&mut self, message: &[u8], out: &mut VecDeque<Vec<u8>>) {
            for frame in frames(message) {
                let (header, at) = frame.unwrap();
                let (payload, mut answer) = (&message[at], Vec::new());
                let op = Op::from_byte(header.op).unwrap();
                match op {
                    Op::Attach | Op::Cancel => continue,
                    Op::StepMany => {
                        let told: Vec<Told> = read_asks(payload, header.sequence, false)
                            .unwrap()
                            .into_iter()
                            .map(|ask| {
                                let text = self.take(ask.session, ask.sequence, ask.sequence - 1, &payload[ask.payload]);
                                Told { session: ask.session, sequence: ask.sequence, status: 0, flags: 0, payload: text.into() }
                            })
                            .collect();
                        let mut table = Vec::new();
                        write_told(&mut table, &told, false);
                        push(&mut answer, Header { op: header.op | ANSWER, ack: 0, status: 0, ..header }, &table);
                    }
                    _ => {
                        let text = self.take(header.session, header.sequence, header.ack, payload);
                        push(&mut answer, Header { op: header.op | ANSWER, ack: 0, status: 0, ..header }, text.as_bytes());
                    }
                }
                out.push_back(answer);
            }
        }
    }

    /// xorshift: a schedule is known by its seed.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, sides: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % sides
        }
    }

    fn take_in(seats: &mut Seats, message: Vec<u8>) {
        let message = Bytes::from(message);
        let mut deliveries = Deliveries::new();
        for frame in frames(&message) {
            let (header, at) = frame.unwrap();
            assert!(is_answer(&header));
            let payload = message.slice(at);
            match Op::from_byte(header.op) {
                Some(Op::StepMany) => seats.answered_many(&header, &payload, &mut deliveries).unwrap(),
                _ => seats.answered(&header, payload, &mut deliveries).unwrap(),
            }
        }
        deliver(deliveries);
    }

    fn key(session: u32) -> String {
        format!("{session:032}")
    }

    /// A random schedule of calls, answers and broken connections. Everything that is asked is carried out once and in order, and
    /// each caller hears of its own call once.
    fn schedule(seed: u64) {
        const SESSIONS: u32 = 4;
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let heard = Arc::new(Heard::default());
        let (mut seats, mut model) = (Seats { up: true, ..Seats::default() }, Model::default());
        let serials: Vec<u64> = (1..=SESSIONS).map(|session| seats.insert(session, key(session), 1, &mut Deliveries::new())).collect();
        let place = |session: u32| (session, serials[session as usize - 1]);
        // What is on its way: from us, from the server.
        let (mut there, mut back): (VecDeque<Vec<u8>>, VecDeque<Vec<u8>>) = Default::default();
        let asked: RefCell<HashMap<u32, Vec<u32>>> = RefCell::default();
        let mut calls = 0_u32;
        let (mut cancelled, mut busy) = (HashSet::new(), HashSet::new());
        let turns = 400;
        for turn in 0..turns + 50 {
            let ending = turn >= turns;
            match if ending { 4 + dice.below(4) } else { dice.below(12) } {
                0 | 1 => {
                    let session = 1 + u32::try_from(dice.below(u64::from(SESSIONS))).unwrap();
                    calls += 1;
                    let (text, sink) = (Bytes::from(calls.to_string()), Sink::Slot(heard.clone(), calls));
                    match seats.ask(place(session), Op::Step, Encoding::Json, text, None, sink) {
                        Ok((sequence, _)) => {
                            asked.borrow_mut().entry(session).or_default().push(calls);
                            if dice.below(8) == 0 {
                                let sink = seats.cancel(session, place(session).1, sequence).unwrap();
                                assert!(!matches!(sink, Sink::Nowhere));
                                cancelled.insert(calls);
                            }
                        }
                        Err((_, ClientError::Busy { waiting })) => {
                            assert_eq!(waiting, WINDOW as usize);
                            busy.insert(calls);
                        }
                        Err((_, error)) => panic!("{error}"),
                    }
                }
                2 => {
                    let mut entries = Vec::new();
                    for session in 1..=SESSIONS {
                        calls += 1;
                        let sink = Sink::Slot(heard.clone(), calls);
                        entries.push(Entry { session, serial: place(session).1, payload: calls.to_string().into(), sink });
                        asked.borrow_mut().entry(session).or_default().push(calls);
                    }
                    let mut refused = Deliveries::new();
                    seats.ask_many(Op::Step, Encoding::Json, None, entries, &mut refused);
                    for (sink, outcome) in refused {
                        let Sink::Slot(_, call) = sink else { panic!("a sink was lost") };
                        assert!(matches!(outcome, Err(ClientError::Busy { .. })));
                        busy.insert(call);
                        asked.borrow_mut().values_mut().for_each(|asked| asked.retain(|asked| *asked != call));
                    }
                }
                3 => {
                    // The connection breaks wherever it is, and another begins.
                    seats.up = false;
                    there.clear();
                    back.clear();
                    seats.out.clear();
                    if dice.below(2) == 0 {
                        calls += 1;
                        let sink = Sink::Slot(heard.clone(), calls);
                        match seats.ask(place(1), Op::Step, Encoding::Json, calls.to_string().into(), None, sink) {
                            Ok(_) => asked.borrow_mut().entry(1).or_default().push(calls),
                            Err(_) => drop(busy.insert(calls)),
                        }
                        assert!(seats.out.is_empty(), "something was written without a connection");
                    }
                    seats.up = true;
                    (1..=SESSIONS).for_each(|session| seats.resend(session));
                }
                4 | 5 => there.extend(std::mem::take(&mut seats.out)),
                6..=8 => {
                    while let Some(message) = there.pop_front() {
                        model.answer(&message, &mut back);
                        if !ending && dice.below(2) == 0 {
                            break;
                        }
                    }
                }
                _ => {
                    while let Some(message) = back.pop_front() {
                        take_in(&mut seats, message);
                        if !ending && dice.below(2) == 0 {
                            break;
                        }
                    }
                }
            }
            if ending {
                there.extend(std::mem::take(&mut seats.out));
                while let Some(message) = there.pop_front() {
                    model.answer(&message, &mut back);
                }
                while let Some(message) = back.pop_front() {
                    take_in(&mut seats, message);
                }
            }
        }
        assert!(!seats.by_number.values().any(SeatState::is_waiting), "seed {seed}: a call was never answered");
        let heard = heard.0.lock().unwrap();
        let once: HashSet<u32> = heard.iter().map(|(call, _)| *call).collect();
        assert_eq!(once.len(), heard.len(), "seed {seed}: a caller heard twice");
        assert_eq!(once.len() + cancelled.len() + busy.len(), calls as usize, "seed {seed}: a caller never heard");
        assert!(heard.iter().all(|(call, text)| text.as_deref() == Ok(&format!("answer to {call}"))), "seed {seed}: {heard:?}");
        for (session, asked) in asked.borrow().iter() {
            let wanted: Vec<String> = asked.iter().map(ToString::to_string).collect();
            assert_eq!(model.carried_out.get(session), Some(&wanted), "seed {seed}: session {session}");
            let order: Vec<u32> = heard.iter().map(|(call, _)| *call).filter(|call| asked.contains(call)).collect();
            assert!(order.is_sorted(), "seed {seed}: session {session} was answered out of order: {order:?}");
        }
    }

    #[test]
    fn every_call_is_carried_out_once_in_order_and_answered_once_whatever_breaks() {
        (0..150).for_each(schedule);
    }

    fn seated(sink: Sink) -> (Seats, u64) {
        let mut seats = Seats { up: true, ..Seats::default() };
        let serial = seats.insert(7, key(7), 1, &mut Deliveries::new());
        seats.ask((7, serial), Op::Step, Encoding::Json, Bytes::from_static(b"{}"), None, sink).unwrap();
        (seats, serial)
    }

    fn answer(sequence: u32, request: u64) -> Header {
        Header { op: Op::Step as u8 | ANSWER, session: 7, sequence, request, ..Header::default() }
    }

    #[test]
    fn an_answer_that_belongs_to_no_call_is_not_taken_for_one() {
        let (mut seats, _) = seated(Sink::Nowhere);
        let mut deliveries = Deliveries::new();
        for (sequence, request) in [(1, 99), (2, 1), (77, 1)] {
            let refused = seats.answered(&answer(sequence, request), Bytes::new(), &mut deliveries);
            assert!(matches!(refused, Err(ClientError::Protocol { .. })), "{sequence} {request}");
        }
        // Of a session that was let go, and a second time: these come from servers that are right.
        seats.answered(&Header { session: 8, ..answer(1, 1) }, Bytes::new(), &mut deliveries).unwrap();
        assert!(deliveries.is_empty());
        seats.answered(&answer(1, 1), Bytes::new(), &mut deliveries).unwrap();
        seats.answered(&answer(1, 1), Bytes::new(), &mut deliveries).unwrap();
        assert_eq!(deliveries.len(), 1);
    }

    #[test]
    fn a_number_that_another_session_has_by_now_is_no_way_into_it() {
        let (mut seats, before) = seated(Sink::Nowhere);
        let mut deliveries = Deliveries::new();
        let after = seats.insert(7, key(8), 1, &mut deliveries);
        assert!(matches!(deliveries.pop(), Some((_, Err(ClientError::Lost { .. })))));
        assert!(matches!(seats.fate(7, before), Some(ClientError::Lost { .. })));
        let asked = seats.ask((7, before), Op::Step, Encoding::Json, Bytes::new(), None, Sink::Nowhere);
        assert!(matches!(asked, Err((_, ClientError::Lost { .. }))));
        assert!(seats.remove(7, before).is_none() && seats.cancel(7, before, 1).is_none());
        assert!(seats.fate(7, after).is_none() && seats.remove(7, after).is_some());
    }

    #[test]
    fn what_was_not_taken_in_ends_the_session() {
        let heard = Arc::new(Heard::default());
        let (mut seats, serial) = seated(Sink::Slot(heard.clone(), 1));
        let mut deliveries = Deliveries::new();
        let refusal = Header { status: u32::from(envharness_wire::Code::SequenceError.number()), ..answer(1, 1) };
        seats.answered(&refusal, Bytes::from_static(b"{}"), &mut deliveries).unwrap();
        deliver(deliveries);
        assert_eq!(heard.0.lock().unwrap().len(), 1);
        assert!(seats.fate(7, serial).is_some());
    }

    #[test]
    fn sequences_go_round() {
        let (mut seats, serial) = seated(Sink::Nowhere);
        let seat = seats.by_number.get_mut(&7).unwrap();
        (seat.next, seat.unanswered) = (u32::MAX, VecDeque::new());
        let mut sequences = Vec::new();
        for _ in 0..3 {
            let asked = seats.ask((7, serial), Op::Step, Encoding::Json, Bytes::new(), None, Sink::Nowhere);
            sequences.push(asked.map_err(|(_, error)| error).unwrap().0);
        }
        assert_eq!(sequences, [u32::MAX, 0, 1]);
        let message = seats.out.concat();
        let acks: Vec<u32> = frames(&message).skip(1).map(|frame| frame.unwrap().0.ack).collect();
        assert_eq!(acks, [u32::MAX - 1; 3]);
    }
}
