//! Each call is answered once, in its order, whatever becomes of the connection.

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
