//! A connection of `envharness.v1` that carries many sessions, and is made again when it breaks.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::{ANSWER, Encoding, Header, Op, frames};
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_websockets::{CloseCode, Message, WebSocketStream};

use crate::address::Address;
use crate::call::{Answer, Ask, Deliveries, Limit, Outcome, Sink, deliver};
use crate::error::ClientError;
use crate::handshake;
use crate::pen::Pen;
use crate::seats::{Entry, SeatState, Seats, is_answer};
use crate::settings::Settings;
use crate::socket::{Socket, broken};

/// Waits between attempts to connect again: from the first, doubled, to the last.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// A connection that lived this long was worth making.
const WORTH: Duration = Duration::from_secs(1);
/// Without sessions, connections that may break one after the other before what waits is told.
const IN_VAIN: u32 = 5;
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
    /// The session's key, where it is the end of one.
    key: Option<String>,
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
    pen: Pen,
    write: Notify,
    look: Notify,
    address: Address,
    settings: Settings,
}

impl State {
    /// Whether a call waits for its answer.
    fn waits(&self) -> bool {
        !self.plain.is_empty() || self.seats.by_number.values().any(SeatState::is_waiting)
    }

    /// When the next call's time is over.
    fn next_limit(&self) -> Option<Instant> {
        let plain = self.plain.values().filter_map(|plain| plain.limit.map(|limit| limit.until)).min();
        [self.seats.alarm.at(), plain].into_iter().flatten().min()
    }

    /// Sessions end by `lost`, requests without a session fail by `failed`.
    fn end(&mut self, lost: &ClientError, failed: &ClientError, deliveries: &mut Deliveries) {
        self.seats.by_number.values_mut().for_each(|seat| seat.end(lost, deliveries));
        deliveries.extend(self.plain.drain().map(|(_, plain)| (plain.sink, Err(failed.clone()))));
    }
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
            pen: Pen::default(),
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

    /// A request without a place in a session: its answer is for the sink.
    fn ask_plain(&self, op: Op, payload: Bytes, timeout: Duration, sink: Sink) {
        let header = Header { op: op as u8, ..Header::default() };
        self.begin(Plain { header, payload, sink, limit: Limit::of(Some(timeout)), key: None, room: None, parked: false });
    }

    fn begin(&self, plain: Plain) {
        let mut state = self.shared.locked();
        if state.closing {
            drop(state);
            return plain.sink.put(Err(ClientError::Closed));
        }
        let request = state.seats.request();
        let header = Header { request, ..plain.header };
        if state.seats.up {
            state.seats.push(header, &plain.payload);
        }
        state.plain.insert(request, Plain { header, ..plain });
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
        self.begin(Plain {
            header: Header { op: Op::Open as u8, ..Header::default() },
            payload: text,
            sink,
            limit: Limit::of(Some(timeout.saturating_add(room.unwrap_or_default()))),
            key: None,
            room: room.and_then(|room| Instant::now().checked_add(room)),
            parked: false,
        });
        let ((number, serial), answer) = receiver.await.map_err(|_| ClientError::Closed)??;
        let told: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        if number == 0 {
            return Err(ClientError::Protocol { reason: "the answer to an opening names no session".to_owned() });
        }
        Ok(Seat { trunk: self.clone(), number, serial, session_id: text("session_id"), digest: text("digest") })
    }

    /// The contract that the server serves, as JSON text.
    pub(crate) async fn contract(&self, timeout: Duration) -> Result<Bytes, ClientError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sink = Sink::Caller(Box::new(move |outcome: Outcome| drop(sender.send(outcome))));
        self.ask_plain(Op::Contract, Bytes::new(), timeout, sink);
        Ok(receiver.await.map_err(|_| ClientError::Closed)??.payload)
    }

    /// What the server said first, as it is now.
    pub(crate) async fn info(&self, timeout: Duration) -> Result<Bytes, ClientError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sink = Sink::Caller(Box::new(move |outcome: Outcome| drop(sender.send(outcome))));
        self.ask_plain(Op::Info, Bytes::new(), timeout, sink);
        Ok(receiver.await.map_err(|_| ClientError::Closed)??.payload)
    }

    /// Calls of many of its sessions, in one frame where they can begin at once.
    pub fn ask_many(&self, op: Op, encoding: Encoding, timeout: Option<Duration>, entries: Vec<Entry>, blocking: bool) {
        let mut refused = Deliveries::new();
        let look = self.shared.locked().seats.ask_many(op, encoding, Limit::of(timeout), entries, &mut refused);
        self.wake(look, blocking);
        deliver(refused);
    }

    /// What was asked leaves: by the caller's own thread where it waits for nothing else and nobody writes, else by the task.
    fn wake(&self, look: bool, blocking: bool) {
        // Frames are binary messages of their own, so that those that are left go first again.
        let back = |messages: Vec<Message>| {
            let frames = messages.into_iter().filter(Message::is_binary).map(|message| message.into_payload().to_vec());
            let mut state = self.shared.locked();
            let later = std::mem::take(&mut state.seats.out);
            state.seats.out = frames.chain(later).collect();
        };
        if !(blocking && self.shared.pen.try_write(|| written(&self.shared), back)) {
            self.shared.write.notify_one();
        }
        if look {
            self.shared.look.notify_one();
        }
    }
}

/// A session is there: from now on it is taken over when the connection was made again.
fn settle(shared: &Shared, key: &str, answer: &Answer) -> (u32, u64) {
    let told: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    let number = told["session"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
    let contract = told["contract"].as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
    let mut deliveries = Deliveries::new();
    let serial = if number == 0 { 0 } else { shared.locked().seats.insert(number, key.to_owned(), contract, &mut deliveries) };
    deliver(deliveries);
    (number, serial)
}

/// A session of a trunk. Dropping it ends the session.
#[derive(Debug)]
pub struct Seat {
    trunk: Arc<Trunk>,
    number: u32,
    serial: u64,
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

    /// Its number in this process, which no other has.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Sends a request; the ticket is for [`Seat::cancel`].
    pub fn ask(&self, ask: &Ask, sink: Sink) -> u64 {
        let shared = &self.trunk.shared;
        let place = (self.number, self.serial);
        let asked = shared.locked().seats.ask(place, ask.op, ask.encoding, ask.payload.clone(), Limit::of(ask.timeout), sink);
        match asked {
            Ok((sequence, look)) => {
                self.trunk.wake(look, ask.blocking);
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
        let sink =
            u32::try_from(ticket).ok().and_then(|sequence| self.trunk.shared.locked().seats.cancel(self.number, self.serial, sequence));
        self.trunk.wake(false, false);
        if let Some(sink) = sink {
            sink.put(Err(ClientError::Cancelled));
        }
    }

    /// Why it cannot be used any more.
    pub fn fate(&self) -> Option<ClientError> {
        self.trunk.shared.locked().seats.fate(self.number, self.serial)
    }

    /// Ends it; the sink learns when the server has heard.
    pub fn close(&self, sink: Sink, timeout: Duration) {
        let mut deliveries = Deliveries::new();
        let known = self.trunk.shared.locked().seats.remove(self.number, self.serial);
        match known {
            // What the server does not know any more has a number that another may have by now.
            Some(mut seat) if !matches!(seat.fate, Some(ClientError::Lost { .. })) => {
                seat.end(&ClientError::Closed, &mut deliveries);
                let header = Header { op: Op::Close as u8, session: self.number, ..Header::default() };
                let (payload, limit) = (Bytes::new(), Limit::of(Some(timeout)));
                self.trunk.begin(Plain { header, payload, sink, limit, key: Some(seat.key), room: None, parked: false });
            }
            _ => deliveries.push((sink, Ok(Answer::default()))),
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

/// What has gone wrong since a call was answered last.
#[derive(Debug, Default)]
struct Trouble {
    since: Option<Instant>,
    pause: Duration,
    /// Connections that broke.
    breaks: u32,
    last: Option<ClientError>,
}

/// Keeps the connection as long as somebody holds it.
async fn live(shared: Arc<Shared>, stream: Stream) {
    let mut stream = Some(stream);
    let mut trouble = Trouble::default();
    loop {
        if let Some(stream) = stream.take() {
            let began = Instant::now();
            let end = carry(&shared, stream).await;
            let (answered, waits) = {
                let mut state = shared.locked();
                state.seats.up = false;
                (std::mem::take(&mut state.seats.answered), state.waits())
            };
            match end {
                Break::Closing => return finish(&shared, &ClientError::Closed),
                Break::Broken(error) => {
                    tracing::debug!(server = %shared.address, "the connection broke: {error}");
                    if answered || !waits {
                        trouble = Trouble {
                            pause: if began.elapsed() < WORTH && !answered { trouble.pause } else { Duration::ZERO },
                            ..Trouble::default()
                        };
                    }
                    trouble.breaks += 1;
                    if let ClientError::Protocol { .. } = error {
                        // The same would come again.
                        give_up(&shared, &error, &error);
                    }
                    trouble.last = Some(error);
                }
            }
        }
        match again(&shared, &mut trouble).await {
            Some(fresh) => stream = Some(fresh),
            None => return finish(&shared, &ClientError::Closed),
        }
    }
}

/// Connects again, as soon as there is something to connect for. None: it is closed.
async fn again(shared: &Shared, trouble: &mut Trouble) -> Option<Stream> {
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
            *trouble = Trouble::default();
            shared.write.notified().await;
            continue;
        }
        let began = *trouble.since.get_or_insert_with(Instant::now);
        let window = window.min(shared.settings.reconnect_timeout);
        if let Some(error) = &trouble.last {
            let refused = matches!(error, ClientError::Connect { .. } | ClientError::NotAvailable(_) | ClientError::Contract { .. });
            let vain = if has_seats { began.elapsed() + trouble.pause > window } else { refused || trouble.breaks >= IN_VAIN };
            if vain {
                let lost = ClientError::Lost { reason: error.to_string() };
                let failed = match error {
                    ClientError::Lost { reason } => {
                        ClientError::Connect { address: shared.address.to_string(), reason: reason.clone(), hint: None }
                    }
                    error => error.clone(),
                };
                // A session that was not there yet was only not reached.
                give_up(shared, &lost, &failed);
                *trouble = Trouble::default();
                continue;
            }
        }
        let attempt = async {
            tokio::time::sleep(trouble.pause).await;
            handshake::open(&shared.address, &shared.settings, "/ws").await
        };
        let opened = tokio::select! {
            opened = attempt => opened,
            never = alarms(shared) => match never {},
            () = closed(shared) => return None,
        };
        trouble.pause = (trouble.pause * 2).clamp(BACK_OFF.0, BACK_OFF.1);
        trouble.last = Some(match opened {
            Ok((stream, true)) => return Some(stream),
            Ok((_, false)) => ClientError::NotAvailable(format!("{} does not speak envharness.v1 any more", shared.address)),
            Err(error) => error,
        });
    }
}

/// Waits until it is to be closed.
async fn closed(shared: &Shared) {
    while !shared.locked().closing {
        shared.write.notified().await;
    }
}

/// Tells the limits of calls while there is no connection.
async fn alarms(shared: &Shared) -> Infallible {
    loop {
        let next = shared.locked().next_limit();
        let ring = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ring => {}
            () = shared.look.notified() => continue,
        }
        let mut deliveries = Deliveries::new();
        expire(&mut shared.locked(), &mut deliveries);
        deliver(deliveries);
    }
}

/// All sessions end, and what waits is told.
fn give_up(shared: &Shared, lost: &ClientError, failed: &ClientError) {
    let mut deliveries = Deliveries::new();
    shared.locked().end(lost, failed, &mut deliveries);
    deliver(deliveries);
}

fn finish(shared: &Shared, error: &ClientError) {
    let mut deliveries = Deliveries::new();
    {
        let mut state = shared.locked();
        state.closed = true;
        state.end(error, error, &mut deliveries);
    }
    deliver(deliveries);
}

/// Carries one connection to its end.
async fn carry(shared: &Shared, stream: Stream) -> Break {
    let (sink, mut source) = stream.split();
    shared.pen.set(sink).await;
    shared.locked().heard = Instant::now();
    let end = {
        let reading = read(shared, &mut source);
        let writing = write(shared);
        let watching = watch(shared);
        tokio::select! {
            error = reading => Break::Broken(error),
            end = writing => end,
            error = watching => Break::Broken(error),
        }
    };
    let half = shared.pen.take().await;
    if let (Break::Closing, Some(mut half)) = (&end, half) {
        let goodbye = async {
            let _ = half.send(Message::close(Some(CloseCode::NORMAL_CLOSURE), "")).await;
            while let Some(Ok(_)) = source.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
    }
    end
}

fn lost(reason: impl ToString) -> ClientError {
    ClientError::Lost { reason: reason.to_string() }
}

fn wrong(reason: impl ToString) -> ClientError {
    ClientError::Protocol { reason: reason.to_string() }
}

async fn read(shared: &Shared, source: &mut SplitStream<Stream>) -> ClientError {
    loop {
        let message = match source.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return broken(error),
            None => return lost("the server closed the connection"),
        };
        if message.is_binary() {
            let payload: Bytes = message.into_payload().into();
            if let Err(error) = take_in(shared, &payload) {
                return error;
            }
        } else if let Some((code, reason)) = message.as_close() {
            let said = format!("the server closed the connection: {} {reason}", u16::from(code));
            // The same again would be closed again.
            return if matches!(u16::from(code), 1002 | 1003 | 1007 | 1008 | 1009 | 1010) { wrong(said) } else { lost(said) };
        } else if message.is_text() {
            return wrong("a text came where frames were to come");
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
        plain.parked = true;
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
fn ask_for_room(state: &mut State, free: u64) {
    let parked: Vec<u64> = state.plain.iter().filter(|(_, plain)| plain.parked).map(|(request, _)| *request).collect();
    for request in parked.into_iter().take(usize::try_from(free).unwrap_or(usize::MAX)) {
        let Some(plain) = state.plain.get_mut(&request) else { continue };
        plain.parked = false;
        let (header, payload) = (plain.header, plain.payload.clone());
        state.seats.push(header, &payload);
    }
}

/// What is to be written now.
fn written(shared: &Shared) -> Vec<Message> {
    let mut state = shared.locked();
    let ping = std::mem::take(&mut state.ping).then(|| Message::ping(Bytes::new()));
    let frames = if state.seats.up { std::mem::take(&mut state.seats.out) } else { Vec::new() };
    ping.into_iter().chain(frames.into_iter().map(|frame| Message::binary(Bytes::from(frame)))).collect()
}

async fn write(shared: &Shared) -> Break {
    loop {
        if let Err(error) = shared.pen.write(|| written(shared)).await {
            return Break::Broken(lost(error));
        }
        if shared.locked().closing {
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
        let (limit, parked, heard) = {
            let state = shared.locked();
            (state.next_limit(), state.plain.values().any(|plain| plain.parked), state.heard)
        };
        let silence = heard + settings.ping_interval;
        let dead = silence + settings.ping_timeout;
        let now = Instant::now();
        let ask = parked.then(|| now + ASK_AGAIN);
        let next = [limit, ask, Some(if now < silence { silence } else { dead })].into_iter().flatten().min().unwrap_or(dead);
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
