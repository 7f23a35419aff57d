//! A connection of `envharness.v1` that carries many sessions, and is made again when it breaks.

mod hear;
mod keep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::{Encoding, Header, Op};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_websockets::{Message, WebSocketStream};

use crate::address::Address;
use crate::call::{Answer, Ask, Deliveries, Limit, Outcome, Sink, deliver};
use crate::error::ClientError;
use crate::pen::Pen;
use crate::seats::{Entry, SeatState, Seats};
use crate::settings::Settings;
use crate::socket::Socket;

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
    /// The refusal of one that waits, until it is asked again.
    parked: Option<ClientError>,
}

#[derive(Debug)]
struct State {
    seats: Seats,
    plain: HashMap<u64, Plain>,
    hello: Value,
    heard: Instant,
    ping: bool,
    /// Whether the next time at which something is over has changed.
    look: bool,
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

impl Plain {
    /// When it is over: where it waits for room, when the time for that is.
    fn until(&self) -> Option<Instant> {
        let room = self.room.filter(|_| self.parked.is_some());
        [self.limit.map(|limit| limit.until), room].into_iter().flatten().min()
    }
}

impl State {
    /// Whether a call waits for its answer.
    fn waits(&self) -> bool {
        !self.plain.is_empty() || self.seats.by_number.values().any(SeatState::is_waiting)
    }

    /// When the next call's time is over.
    fn next_limit(&self) -> Option<Instant> {
        let plain = self.plain.values().filter_map(Plain::until).min();
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
            look: false,
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
        tokio::spawn(keep::live(shared.clone(), stream));
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
        self.begin(Plain { header, payload, sink, limit: Limit::of(Some(timeout)), key: None, room: None, parked: None });
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
            parked: None,
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
        if !(blocking && self.shared.pen.try_write(|| keep::written(&self.shared), back)) {
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
                self.trunk.begin(Plain { header, payload, sink, limit, key: Some(seat.key), room: None, parked: None });
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

fn lost(reason: impl ToString) -> ClientError {
    ClientError::Lost { reason: reason.to_string() }
}

fn wrong(reason: impl ToString) -> ClientError {
    ClientError::Protocol { reason: reason.to_string() }
}
