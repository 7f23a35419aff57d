//! A connection of `envharness.v1` that carries many sessions, and is made again when it breaks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::{ANSWER, Encoding, Header, Op, frames};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_websockets::{CloseCode, Message, WebSocketStream};

use crate::address::Address;
use crate::call::{Answer, Ask, Deliveries, Limit, Outcome, Sink, deliver};
use crate::error::ClientError;
use crate::handshake;
use crate::seats::{Entry, SeatState, Seats, is_answer};
use crate::settings::Settings;
use crate::socket::Socket;

/// Waits between attempts to connect again: from the first, doubled, to the last.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How often sessions that wait for room are asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

type Stream = WebSocketStream<Socket>;

/// A request without a place in a session. It may be sent twice and is carried out once.
#[derive(Debug)]
struct Plain {
    header: Header,
    payload: Bytes,
    sink: Sink,
    limit: Option<Limit>,
    /// It waits for room until then.
    room: Option<Instant>,
    parked: bool,
}

#[derive(Debug)]
struct State {
    seats: Seats,
    plain: HashMap<u64, Plain>,
    hello: Value,
    heard: Instant,
    ping: bool,
    closing: bool,
    closed: bool,
    draining: bool,
    reconnects: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    write: Notify,
    look: Notify,
    address: Address,
    settings: Settings,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection. Dropping the last hold closes it, and with it the sessions that are left.
#[derive(Debug)]
pub struct Trunk {
    shared: Arc<Shared>,
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.close();
    }
}

impl Trunk {
    /// Takes over a socket, on the runtime of the caller.
    pub(crate) fn start(stream: Stream, address: &Address, settings: &Settings) -> Arc<Self> {
        let state = State {
            seats: Seats::default(),
            plain: HashMap::new(),
            hello: Value::Null,
            heard: Instant::now(),
            ping: false,
            closing: false,
            closed: false,
            draining: false,
            reconnects: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            write: Notify::new(),
            look: Notify::new(),
            address: address.clone(),
            settings: settings.clone(),
        });
        tokio::spawn(live(shared.clone(), stream));
        Arc::new(Self { shared })
    }

    /// Ends it: sessions that are left end with it.
    pub fn close(&self) {
        self.shared.locked().closing = true;
        self.shared.write.notify_one();
    }

    /// Whether new sessions can be opened on it.
    pub fn is_open(&self) -> bool {
        let state = self.shared.locked();
        !state.closing && !state.draining
    }

    /// Whether it was closed and is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.locked().closed
    }

    /// How often the connection was made again.
    pub fn reconnects(&self) -> u64 {
        self.shared.locked().reconnects
    }

    /// The server's first words, as JSON.
    pub fn hello(&self) -> String {
        self.shared.locked().hello.to_string()
    }

    /// A request without a session: its answer is for the sink. `room` is how long it may wait for a free session.
    fn ask_plain(&self, header: Header, payload: Bytes, timeout: Option<Duration>, room: Option<Duration>, sink: Sink) {
        let limit = Limit::of(timeout);
        let mut state = self.shared.locked();
        if state.closing {
            drop(state);
            return sink.put(Err(ClientError::Closed));
        }
        let request = state.seats.request();
        let header = Header { request, ..header };
        if state.seats.up {
            state.seats.push(header, &payload);
        }
        let room = room.and_then(|room| Instant::now().checked_add(room));
        state.plain.insert(request, Plain { header, payload, sink, limit, room, parked: false });
        drop(state);
        self.shared.write.notify_one();
        self.shared.look.notify_one();
    }

    /// Opens a session. `options` is a JSON object of what is asked of the instance.
    pub(crate) async fn open(self: &Arc<Self>, options: &Value, timeout: Duration, room: Option<Duration>) -> Result<Seat, ClientError> {
        let mut key = [0_u8; 16];
        getrandom::fill(&mut key).map_err(|error| ClientError::Protocol { reason: error.to_string() })?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut payload = options.as_object().cloned().unwrap_or_default();
        payload.insert("key".to_owned(), Value::from(key.clone()));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (shared, text) = (self.shared.clone(), Bytes::from(Value::Object(payload).to_string()));
        let sink = Sink::Caller(Box::new(move |outcome: Outcome| {
            // Here and not by the receiver: the connection may break in between, and the session must be known by then.
            let opened = outcome.map(|answer| (settle(&shared, &key, &answer), answer));
            let _ = sender.send(opened);
        }));
        self.ask_plain(
            Header { op: Op::Open as u8, ..Header::default() },
            text,
            Some(timeout.saturating_add(room.unwrap_or_default())),
            room,
            sink,
        );
        let (number, answer) = receiver.await.map_err(|_| ClientError::Closed)??;
        let told: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        if number == 0 {
            return Err(ClientError::Protocol { reason: "the answer to an opening names no session".to_owned() });
        }
        Ok(Seat { trunk: self.clone(), number, session_id: text("session_id"), digest: text("digest") })
    }

    /// The contract that the server serves, as JSON text.
    pub(crate) async fn contract(&self, timeout: Duration) -> Result<Bytes, ClientError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sink = Sink::Caller(Box::new(move |outcome: Outcome| drop(sender.send(outcome))));
        self.ask_plain(Header { op: Op::Contract as u8, ..Header::default() }, Bytes::new(), Some(timeout), None, sink);
        Ok(receiver.await.map_err(|_| ClientError::Closed)??.payload)
    }

    /// What the server said first, as it is now.
    pub(crate) async fn info(&self, timeout: Duration) -> Result<Bytes, ClientError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sink = Sink::Caller(Box::new(move |outcome: Outcome| drop(sender.send(outcome))));
        self.ask_plain(Header { op: Op::Info as u8, ..Header::default() }, Bytes::new(), Some(timeout), None, sink);
        Ok(receiver.await.map_err(|_| ClientError::Closed)??.payload)
    }

    /// Calls of many of its sessions, in one frame where they can begin at once.
    pub fn ask_many(&self, op: Op, encoding: Encoding, timeout: Option<Duration>, entries: Vec<Entry>) {
        let mut refused = Deliveries::new();
        let look = self.shared.locked().seats.ask_many(op, encoding, Limit::of(timeout), entries, &mut refused);
        self.wake(look);
        deliver(refused);
    }

    fn wake(&self, look: bool) {
        self.shared.write.notify_one();
        if look {
            self.shared.look.notify_one();
        }
    }
}

/// A session is there: from now on it is taken over when the connection was made again.
fn settle(shared: &Shared, key: &str, answer: &Answer) -> u32 {
    let told: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    let number = told["session"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let contract = told["contract"].as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
    if number != 0 {
        shared.locked().seats.by_number.insert(number, SeatState::new(key.to_owned(), contract));
    }
    number
}

/// A session of a trunk. Dropping it ends the session.
#[derive(Debug)]
pub struct Seat {
    trunk: Arc<Trunk>,
    number: u32,
    /// Its id on the server.
    pub session_id: String,
    /// The digest of its contract.
    pub digest: String,
}

impl Seat {
    /// The connection.
    pub fn trunk(&self) -> &Arc<Trunk> {
        &self.trunk
    }

    /// Its number on the connection.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sends a request; the ticket is for [`Seat::cancel`].
    pub fn ask(&self, ask: &Ask, sink: Sink) -> u64 {
        let shared = &self.trunk.shared;
        let asked = shared.locked().seats.ask(self.number, ask.op, ask.encoding, ask.payload.clone(), Limit::of(ask.timeout), sink);
        match asked {
            Ok((sequence, look)) => {
                self.trunk.wake(look);
                u64::from(sequence)
            }
            Err((sink, error)) => {
                sink.put(Err(error));
                0
            }
        }
    }

    /// The caller of a ticket does not wait any more. A request that has not begun is not carried out.
    pub fn cancel(&self, ticket: u64) {
        let sink = u32::try_from(ticket).ok().and_then(|sequence| self.trunk.shared.locked().seats.cancel(self.number, sequence));
        self.trunk.wake(false);
        if let Some(sink) = sink {
            sink.put(Err(ClientError::Cancelled));
        }
    }

    /// Why it cannot be used any more.
    pub fn fate(&self) -> Option<ClientError> {
        match self.trunk.shared.locked().seats.by_number.get(&self.number) {
            Some(seat) => seat.fate.clone(),
            None => Some(ClientError::Closed),
        }
    }

    /// Ends it; the sink learns when the server has heard.
    pub fn close(&self, sink: Sink, timeout: Duration) {
        let mut deliveries = Deliveries::new();
        let known = self.trunk.shared.locked().seats.by_number.remove(&self.number);
        match known {
            Some(mut seat) => {
                seat.end(&ClientError::Closed, &mut deliveries);
                let header = Header { op: Op::Close as u8, session: self.number, ..Header::default() };
                self.trunk.ask_plain(header, Bytes::new(), Some(timeout), None, sink);
            }
            None => deliveries.push((sink, Ok(Answer::default()))),
        }
        deliver(deliveries);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.close(Sink::Nowhere, Duration::from_secs(5));
    }
}

/// Why a connection ended.
enum Break {
    /// We close it.
    Closing,
    /// It broke.
    Broken(ClientError),
}

/// Keeps the connection as long as somebody holds it.
async fn live(shared: Arc<Shared>, stream: Stream) {
    let mut stream = Some(stream);
    loop {
        if let Some(stream) = stream.take() {
            let end = carry(&shared, stream).await;
            shared.locked().seats.up = false;
            match end {
                Break::Closing => return finish(&shared, &ClientError::Closed),
                Break::Broken(error) => tracing::debug!(server = %shared.address, "the connection broke: {error}"),
            }
        }
        match again(&shared).await {
            Some(fresh) => stream = Some(fresh),
            None => return finish(&shared, &ClientError::Closed),
        }
    }
}

/// Connects again, as soon as there is something to connect for. None: it is closed.
async fn again(shared: &Shared) -> Option<Stream> {
    let began = Instant::now();
    let mut pause = BACK_OFF.0;
    loop {
        let (wanted, has_seats, window) = {
            let state = shared.locked();
            if state.closing {
                return None;
            }
            let has_seats = state.seats.by_number.values().any(|seat| seat.fate.is_none());
            let window = state.hello["limits"]["resume_seconds"].as_f64().unwrap_or(0.0);
            (has_seats || !state.plain.is_empty(), has_seats, Duration::try_from_secs_f64(window).unwrap_or_default())
        };
        if !wanted {
            shared.write.notified().await;
            continue;
        }
        let error = match handshake::open(&shared.address, &shared.settings, "/ws").await {
            Ok((stream, true)) => return Some(stream),
            Ok((_, false)) => ClientError::Protocol { reason: "it does not speak envharness.v1 any more".to_owned() },
            Err(error) => error,
        };
        let window = window.min(shared.settings.reconnect_timeout);
        if !has_seats || began.elapsed() + pause > window {
            let lost = ClientError::Lost { reason: error.to_string() };
            let mut deliveries = Deliveries::new();
            {
                let mut state = shared.locked();
                state.seats.by_number.values_mut().for_each(|seat| seat.end(&lost, &mut deliveries));
                // A session that was not there yet was only not reached.
                deliveries.extend(state.plain.drain().map(|(_, plain)| (plain.sink, Err(error.clone()))));
            }
            deliver(deliveries);
        }
        let mut deliveries = Deliveries::new();
        expire(&mut shared.locked(), &mut deliveries);
        deliver(deliveries);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACK_OFF.1);
    }
}

fn finish(shared: &Shared, error: &ClientError) {
    let mut deliveries = Deliveries::new();
    {
        let mut state = shared.locked();
        state.closed = true;
        state.seats.by_number.values_mut().for_each(|seat| seat.end(error, &mut deliveries));
        deliveries.extend(state.plain.drain().map(|(_, plain)| (plain.sink, Err(error.clone()))));
    }
    deliver(deliveries);
}

/// Carries one connection to its end.
async fn carry(shared: &Shared, stream: Stream) -> Break {
    let (mut sink, mut source) = stream.split();
    let end = {
        let reading = read(shared, &mut source);
        let writing = write(shared, &mut sink);
        let watching = watch(shared);
        tokio::select! {
            error = reading => Break::Broken(error),
            end = writing => end,
            error = watching => Break::Broken(error),
        }
    };
    if let Break::Closing = end {
        let goodbye = async {
            let _ = sink.send(Message::close(Some(CloseCode::NORMAL_CLOSURE), "")).await;
            while let Some(Ok(_)) = source.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
    }
    end
}

fn lost(reason: impl ToString) -> ClientError {
    ClientError::Lost { reason: reason.to_string() }
}

async fn read(shared: &Shared, source: &mut SplitStream<Stream>) -> ClientError {
    loop {
        let message = match source.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return lost(error),
            None => return lost("the server closed the connection"),
        };
        if message.is_binary() {
            let payload: Bytes = message.into_payload().into();
            if let Err(error) = take_in(shared, &payload) {
                return error;
            }
        } else if let Some((code, reason)) = message.as_close() {
            return lost(format!("the server closed the connection: {} {reason}", u16::from(code)));
        } else {
            shared.locked().heard = Instant::now();
        }
    }
}

/// Takes a message apart; outcomes are handed over when the lock is free again.
fn take_in(shared: &Shared, message: &Bytes) -> Result<(), ClientError> {
    let mut deliveries = Deliveries::new();
    let taken = {
        let mut state = shared.locked();
        state.heard = Instant::now();
        take_frames(&mut state, message, &mut deliveries)
    };
    // What a frame said may be written at once.
    let more = { !shared.locked().seats.out.is_empty() };
    if more {
        shared.write.notify_one();
    }
    deliver(deliveries);
    taken
}

fn take_frames(state: &mut State, message: &Bytes, deliveries: &mut Deliveries) -> Result<(), ClientError> {
    for frame in frames(message) {
        let (header, at) = frame.map_err(|torn| ClientError::Protocol { reason: torn.to_string() })?;
        let Some(op) = Op::from_byte(header.op) else { continue };
        let payload = message.slice(at);
        match (op, is_answer(&header)) {
            (Op::Hello, false) => greeted(state, &payload),
            (Op::Event, false) => event(state, &payload, deliveries),
            (Op::StepMany | Op::ResetMany, true) if header.session == 0 && header.status == 0 => {
                state.seats.answered_many(&header, &payload, deliveries)?;
            }
            (Op::StepMany | Op::ResetMany, true) if header.session == 0 => state.seats.refused_many(&header, &payload, deliveries),
            (Op::StepMany | Op::ResetMany, true) => state.seats.answered(&header, payload, deliveries),
            (op, true) if op.is_sequenced() => state.seats.answered(&header, payload, deliveries),
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
                    let answer = Answer { flags: header.flags & !ANSWER, payload, ..Answer::default() };
                    let failed = header.status != 0;
                    deliveries
                        .push((plain.sink, if failed { Err(ClientError::of_status(header.status, &answer.payload)) } else { Ok(answer) }));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The first words: what is unanswered is asked now, sessions are taken over before.
fn greeted(state: &mut State, payload: &Bytes) {
    let first = state.hello.is_null();
    state.hello = serde_json::from_slice(payload).unwrap_or_default();
    state.draining = state.hello["draining"].as_bool().unwrap_or(false);
    state.seats.up = true;
    if !first {
        state.reconnects += 1;
    }
    // What was about to leave on the old connection is among what is sent again.
    state.seats.out.clear();
    let sessions: Vec<(u32, String)> =
        state.seats.by_number.iter().filter(|(_, seat)| seat.fate.is_none()).map(|(number, seat)| (*number, seat.key.clone())).collect();
    for (session, key) in sessions {
        let request = state.seats.request();
        let header = Header { op: Op::Attach as u8, session, request, ..Header::default() };
        let payload = serde_json::json!({"key": key}).to_string();
        state.seats.push(header, payload.as_bytes());
        state.seats.resend(session);
    }
    let plain: Vec<(Header, Bytes)> = state.plain.values().map(|plain| (plain.header, plain.payload.clone())).collect();
    for (header, payload) in plain {
        state.seats.push(header, &payload);
    }
}

fn refused_opening(state: &mut State, header: &Header, payload: Bytes, deliveries: &mut Deliveries) {
    let error = ClientError::of_status(header.status, &payload);
    let is_full = matches!(&error, ClientError::Server { code, .. } if code == "CAPACITY_REACHED");
    if let Some(plain) = state.plain.get_mut(&header.request)
        && is_full
        && plain.room.is_some_and(|until| Instant::now() < until)
    {
        plain.parked = true;
        return;
    }
    if let Some(plain) = state.plain.remove(&header.request) {
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
fn ask_for_room(state: &mut State, free: u64) {
    let parked: Vec<u64> = state.plain.iter().filter(|(_, plain)| plain.parked).map(|(request, _)| *request).collect();
    for request in parked.into_iter().take(usize::try_from(free).unwrap_or(usize::MAX)) {
        let Some(plain) = state.plain.get_mut(&request) else { continue };
        plain.parked = false;
        let (header, payload) = (plain.header, plain.payload.clone());
        state.seats.push(header, &payload);
    }
}

async fn write(shared: &Shared, sink: &mut SplitSink<Stream, Message>) -> Break {
    loop {
        let (messages, closing, ping) = {
            let mut state = shared.locked();
            let messages = if state.seats.up { std::mem::take(&mut state.seats.out) } else { Vec::new() };
            (messages, state.closing, std::mem::take(&mut state.ping))
        };
        let any = ping || !messages.is_empty();
        if ping && let Err(error) = sink.feed(Message::ping(Bytes::new())).await {
            return Break::Broken(lost(error));
        }
        for message in messages {
            if let Err(error) = sink.feed(Message::binary(Bytes::from(message))).await {
                return Break::Broken(lost(error));
            }
        }
        if any {
            if let Err(error) = sink.flush().await {
                return Break::Broken(lost(error));
            }
            continue;
        }
        if closing {
            return Break::Closing;
        }
        shared.write.notified().await;
    }
}

/// Calls without a session whose time is over, and all others too.
fn expire(state: &mut State, deliveries: &mut Deliveries) {
    let now = Instant::now();
    state.seats.expire(now, deliveries);
    let over: Vec<u64> =
        state.plain.iter().filter(|(_, plain)| plain.limit.is_some_and(|limit| limit.until <= now)).map(|(request, _)| *request).collect();
    for request in over {
        if let Some(Plain { sink, limit: Some(limit), .. }) = state.plain.remove(&request) {
            deliveries.push((sink, Err(limit.error())));
        }
    }
}

/// Ends calls whose time is over, pings a silent server, and gives a dead one up.
async fn watch(shared: &Shared) -> ClientError {
    let settings = &shared.settings;
    loop {
        let (alarm, plain, parked, heard) = {
            let state = shared.locked();
            let plain = state.plain.values().filter_map(|plain| plain.limit.map(|limit| limit.until)).min();
            let parked = state.plain.values().any(|plain| plain.parked);
            (state.seats.alarm.at(), plain, parked, state.heard)
        };
        let silence = heard + settings.ping_interval;
        let dead = silence + settings.ping_timeout;
        let now = Instant::now();
        let ask = parked.then(|| now + ASK_AGAIN);
        let next = [alarm, plain, ask, Some(if now < silence { silence } else { dead })].into_iter().flatten().min().unwrap_or(dead);
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shared.look.notified() => continue,
        }
        let mut deliveries = Deliveries::new();
        let silent = {
            let mut state = shared.locked();
            expire(&mut state, &mut deliveries);
            if ask.is_some() {
                ask_for_room(&mut state, u64::MAX);
            }
            let silent = state.heard.elapsed();
            state.ping |= silent >= settings.ping_interval;
            silent
        };
        shared.write.notify_one();
        deliver(deliveries);
        if silent >= settings.ping_interval + settings.ping_timeout {
            return lost(format!("the server was silent for {:.0} s", silent.as_secs_f64()));
        }
    }
}
