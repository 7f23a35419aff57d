//! What the server says: answers, its first words, and events.

use std::time::Instant;

use bytes::Bytes;
use envharness_wire::v1::{ANSWER, Header, Op, frames};
use serde_json::Value;

use super::{Shared, State, lost, wrong};
use crate::call::{Answer, Deliveries, deliver};
use crate::error::ClientError;
use crate::seats::is_answer;

/// Takes a message apart; outcomes are handed over when the lock is free again.
pub(super) fn take_in(shared: &Shared, message: &Bytes) -> Result<(), ClientError> {
    let mut deliveries = Deliveries::new();
    let taken = {
        let mut state = shared.locked();
        state.heard = Instant::now();
        take_frames(&mut state, message, &mut deliveries)
    };
    // What a frame said may be written at once.
    let (more, look) = {
        let mut state = shared.locked();
        (!state.seats.out.is_empty(), std::mem::take(&mut state.look))
    };
    if more {
        shared.write.notify_one();
    }
    if look {
        shared.look.notify_one();
    }
    deliver(deliveries);
    taken
}

fn take_frames(state: &mut State, message: &Bytes, deliveries: &mut Deliveries) -> Result<(), ClientError> {
    for frame in frames(message) {
        let (header, at) = frame.map_err(wrong)?;
        let Some(op) = Op::from_byte(header.op) else { continue };
        let payload = message.slice(at);
        match (op, is_answer(&header)) {
            (Op::Hello, false) => greeted(state, &payload)?,
            (_, true) if !state.seats.up => return Err(wrong("an answer came before the first words")),
            (Op::Event, false) => event(state, &payload, deliveries),
            (Op::StepMany | Op::ResetMany, true) if header.session == 0 && header.status == 0 => {
                state.seats.answered_many(&header, &payload, deliveries)?;
            }
            (Op::StepMany | Op::ResetMany, true) if header.session == 0 => state.seats.refused_many(&header, &payload, deliveries),
            (Op::StepMany | Op::ResetMany, true) => state.seats.answered(&header, payload, deliveries)?,
            (op, true) if op.is_sequenced() => state.seats.answered(&header, payload, deliveries)?,
            (Op::Attach, true) => {
                if header.status != 0
                    && let Some(seat) = state.seats.by_number.get_mut(&header.session)
                {
                    seat.end(&lost("the server does not know it any more"), deliveries);
                }
            }
            (Op::Open, true) if header.status != 0 => refused_opening(state, &header, payload, deliveries),
            (_, true) => {
                if let Some(plain) = state.plain.remove(&header.request) {
                    state.seats.answered = true;
                    let answer = Answer { flags: header.flags & !ANSWER, payload, ..Answer::default() };
                    let failed = header.status != 0;
                    deliveries
                        .push((plain.sink, if failed { Err(ClientError::of_status(header.status, &answer.payload)) } else { Ok(answer) }));
                } else if op == Op::Open && !state.seats.by_number.contains_key(&header.session) {
                    // Whoever asked for it waits no more.
                    let request = state.seats.request();
                    state.seats.push(Header { op: Op::Close as u8, session: header.session, request, ..Header::default() }, b"");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The first words: what is unanswered is asked now, sessions are taken over before.
fn greeted(state: &mut State, payload: &Bytes) -> Result<(), ClientError> {
    let first = state.hello.is_null();
    let hello: Value = serde_json::from_slice(payload).unwrap_or_default();
    if state.seats.up || !hello.is_object() {
        return Err(wrong("its first words are none"));
    }
    state.hello = hello;
    state.draining = state.hello["draining"].as_bool().unwrap_or(false);
    state.seats.up = true;
    state.seats.most = state.hello["limits"]["message"].as_u64().and_then(|most| usize::try_from(most).ok());
    if !first {
        state.reconnects += 1;
    }
    // What was about to leave on the old connection is among what is sent again.
    state.seats.out.clear();
    let sessions: Vec<(u32, String)> =
        state.seats.by_number.iter().filter(|(_, seat)| seat.fate.is_none()).map(|(number, seat)| (*number, seat.key.clone())).collect();
    for (session, key) in sessions {
        attach(state, session, &key);
        state.seats.resend(session);
    }
    // Ends before openings, whose sessions may get the same numbers. Only who holds a session can end it.
    let mut plain: Vec<_> = state.plain.values().map(|plain| (plain.key.clone(), plain.header, plain.payload.clone())).collect();
    plain.sort_by_key(|(key, header, _)| (key.is_none(), header.request));
    for (key, header, payload) in plain {
        if let Some(key) = key {
            attach(state, header.session, &key);
        }
        state.seats.push(header, &payload);
    }
    Ok(())
}

fn attach(state: &mut State, session: u32, key: &str) {
    let request = state.seats.request();
    let header = Header { op: Op::Attach as u8, session, request, ..Header::default() };
    state.seats.push(header, serde_json::json!({"key": key}).to_string().as_bytes());
}

fn refused_opening(state: &mut State, header: &Header, payload: Bytes, deliveries: &mut Deliveries) {
    let error = ClientError::of_status(header.status, &payload);
    let is_full = matches!(&error, ClientError::Server { code, .. } if code == "CAPACITY_REACHED");
    if let Some(plain) = state.plain.get_mut(&header.request)
        && is_full
        && plain.room.is_some_and(|until| Instant::now() < until)
    {
        plain.parked = Some(error);
        state.look = true;
        state.seats.answered = true;
        return;
    }
    if let Some(plain) = state.plain.remove(&header.request) {
        state.seats.answered = true;
        deliveries.push((plain.sink, Err(error)));
    }
}

fn event(state: &mut State, payload: &Bytes, deliveries: &mut Deliveries) {
    let told: Value = serde_json::from_slice(payload).unwrap_or_default();
    match told["event"].as_str() {
        Some("draining") => state.draining = true,
        Some("ended") => {
            let session = told["session"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
            if let Some(seat) = state.seats.by_number.get_mut(&session) {
                seat.end(&ClientError::of_data(payload), deliveries);
            }
        }
        Some("capacity") => ask_for_room(state, told["free"].as_u64().unwrap_or(0)),
        _ => {}
    }
}

/// Sessions that wait for room are asked for again.
pub(super) fn ask_for_room(state: &mut State, free: u64) {
    let parked: Vec<u64> = state.plain.iter().filter(|(_, plain)| plain.parked.is_some()).map(|(request, _)| *request).collect();
    for request in parked.into_iter().take(usize::try_from(free).unwrap_or(usize::MAX)) {
        let Some(plain) = state.plain.get_mut(&request) else { continue };
        plain.parked = None;
        let (header, payload) = (plain.header, plain.payload.clone());
        state.seats.push(header, &payload);
    }
}
