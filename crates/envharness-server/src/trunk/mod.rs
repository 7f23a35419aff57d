//! `envharness.v1` on a socket: many sessions, their requests by id, their answers as they are ready.
//!
//! The rule for clients is in `docs/protocol.md`. A [`seat::Seat`] is a session; what it is asked is carried out by [`run`].

mod line;
mod outbox;
mod run;
pub(crate) mod seat;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::many::read_asks;
use envharness_wire::v1::{ANSWER, Encoding, Header, Op, PROTOCOL, WINDOW, frames};
use envharness_wire::{Code, reply};
use serde_json::{Value, json};
use tokio_websockets::CloseCode;

use self::line::Task;
use self::outbox::Outbox;
use self::run::Group;
use self::seat::{Seat, contract_number};
use crate::live::Live;
use crate::server::Shared;
use crate::socket::Socket;
use crate::ws::{Heard, Wire};

/// How often a client that was refused for want of room learns of room.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(250);
/// What a refused client is told to wait, in seconds.
const RETRY_AFTER: f64 = 1.0;
/// A message is not taken apart further while more bytes than this wait to leave.
const MOST_WAITING: usize = 4 * 1024 * 1024;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The `data` of an error, which always tells whether to try again.
fn failure(code: Code, message: &str, more: &[(&'static str, String)]) -> Vec<u8> {
    if more.iter().any(|(key, _)| *key == "retryable") {
        return reply::error_data(code, message, more);
    }
    let mut all = vec![("retryable", code.retryable().to_string())];
    all.extend_from_slice(more);
    reply::error_data(code, message, &all)
}

/// A socket that carries sessions.
struct Trunk {
    shared: Arc<Shared>,
    client: IpAddr,
    outbox: Arc<Outbox>,
    seats: Mutex<HashMap<u32, Arc<Seat>>>,
    wants_room: AtomicBool,
    /// Whether its end is the end of its sessions too.
    over: AtomicBool,
}

/// Serves a socket from its handshake to its end.
pub(crate) async fn serve(shared: Arc<Shared>, socket: Socket, client: IpAddr) {
    let mut wire = Wire::new(&shared, socket);
    let [wants_room, over] = [false, false].map(AtomicBool::new);
    let trunk = Arc::new(Trunk { shared, client, outbox: Arc::default(), seats: Mutex::default(), wants_room, over });
    trunk.outbox.push(Header { op: Op::Hello as u8, ..Header::default() }, hello(&trunk.shared).as_bytes());
    let end = trunk.drive(&mut wire).await;
    trunk.over.store(wire.was_closed() || !matches!(end, End::Gone), Ordering::Relaxed);
    trunk.outbox.close();
    let seats: Vec<_> = locked(&trunk.seats).drain().map(|(_, seat)| seat).collect();
    for seat in seats {
        trunk.leave(seat);
    }
    match end {
        End::Gone => {}
        End::Draining => wire.close(CloseCode::GOING_AWAY, Code::Draining.name()).await,
        End::Idle => wire.close(CloseCode::NORMAL_CLOSURE, Code::IdleTimeout.name()).await,
        End::Torn => wire.close(CloseCode::PROTOCOL_ERROR, Code::ProtocolError.name()).await,
    }
}

/// The server's first words.
fn hello(shared: &Shared) -> String {
    let served = shared.served();
    let (active, most) = served.host.capacity();
    let mut encodings = vec!["json", "msgpack"];
    if served.is_tensor() {
        encodings.push("tensor");
    }
    json!({
        "protocol": PROTOCOL,
        "server": concat!("envharness/", env!("CARGO_PKG_VERSION")),
        "env": served.name,
        "contract": {"number": contract_number(served.generation), "digest": served.digest, "version": served.contract.version},
        "encodings": encodings,
        "sessions": {"active": active, "max": most, "free": most.saturating_sub(active)},
        "limits": {"message": shared.config.most_message, "window": WINDOW, "resume_seconds": shared.config.resume_timeout.as_secs_f64()},
        "draining": shared.draining(),
    })
    .to_string()
}

enum End {
    /// The socket is gone.
    Gone,
    /// The server ends.
    Draining,
    /// Nothing was said for too long.
    Idle,
    /// What came is not the protocol.
    Torn,
}

impl Trunk {
    async fn drive(self: &Arc<Self>, wire: &mut Wire) -> End {
        let mut told_draining = false;
        let mut rest = Bytes::new();
        let mut look = tokio::time::Instant::now();
        loop {
            for message in self.outbox.take() {
                if !wire.send_binary(message).await {
                    return End::Gone;
                }
            }
            if self.shared.draining() {
                if !told_draining {
                    told_draining = true;
                    self.event(&json!({"event": "draining"}));
                    continue;
                }
                self.drain();
                if locked(&self.seats).is_empty() && self.outbox.waiting() == 0 {
                    return End::Draining;
                }
            }
            if !rest.is_empty() {
                if !self.take_in(&mut rest) {
                    return End::Torn;
                }
                // Those that are carried out at once, or by a worker that is quick, are answered together.
                tokio::task::yield_now().await;
                continue;
            }
            let wants_room = self.wants_room.load(Ordering::Relaxed);
            let heard = tokio::select! {
                biased;
                // What is ready leaves before more is asked for.
                () = self.outbox.wake.notified() => continue,
                heard = wire.next() => heard,
                () = tokio::time::sleep_until(look), if wants_room => {
                    self.look_for_room();
                    look = tokio::time::Instant::now() + LOOK_FOR_ROOM;
                    continue;
                }
            };
            match heard {
                Heard::Message(message) if message.is_binary() => rest = message.into_payload().into(),
                Heard::Message(_) => return End::Torn,
                // A client that waits for an answer is not idle, however long that takes.
                Heard::Poked if wire.pulse.idle.swap(false, Ordering::Relaxed) && !self.is_busy() => return End::Idle,
                Heard::Poked => {}
                Heard::Gone => return End::Gone,
            }
        }
    }

    fn event(&self, event: &Value) {
        self.outbox.push(Header { op: Op::Event as u8, ..Header::default() }, event.to_string().as_bytes());
    }

    fn is_busy(&self) -> bool {
        locked(&self.seats).values().any(|seat| seat.is_busy())
    }

    /// Sessions between episodes end; all do when the drain's time is over.
    fn drain(&self) {
        let all = self.shared.drained();
        let mut seats = locked(&self.seats);
        // Those that another socket has taken over are told there.
        seats.retain(|_, seat| seat.is_held_by(&self.outbox));
        let over: Vec<_> = seats.values().filter(|seat| all || !seat.live.in_episode() || seat.has_ended()).cloned().collect();
        over.iter().for_each(|seat| drop(seats.remove(&seat.number)));
        drop(seats);
        for seat in over {
            self.shared.seats.end(&seat, Code::Draining, "the server ends");
            let told = json!({"event": "ended", "session": seat.number, "code": Code::Draining.name(), "retryable": true,
                "message": "the server is about to end"});
            self.event(&told);
        }
    }

    fn look_for_room(&self) {
        let (active, most) = self.shared.served().host.capacity();
        if active < most {
            self.wants_room.store(false, Ordering::Relaxed);
            self.event(&json!({"event": "capacity", "active": active, "max": most, "free": most - active}));
        }
    }

    /// The socket does not hold this session any more.
    fn leave(&self, seat: Arc<Seat>) {
        let Some(turn) = seat.let_go(&self.outbox) else { return };
        let grace = self.shared.config.resume_timeout;
        if self.over.load(Ordering::Relaxed) || grace.is_zero() || self.shared.draining() {
            return self.shared.seats.end(&seat, Code::SessionError, "its socket has ended");
        }
        let (shared, seat) = (self.shared.clone(), Arc::downgrade(&seat));
        tokio::spawn(async move {
            tokio::time::sleep(grace).await;
            if let Some(seat) = seat.upgrade() {
                shared.seats.end_since(&seat, turn, "its client did not come back");
            }
        });
    }

    /// Takes a message apart, or a part of it where much waits to leave. False: it is not the protocol.
    fn take_in(self: &Arc<Self>, rest: &mut Bytes) -> bool {
        let message = std::mem::take(rest);
        for frame in frames(&message) {
            let Ok((header, at)) = frame else { return false };
            let end = at.end;
            let (Some(op), Some(encoding)) = (Op::from_byte(header.op), Encoding::of(header.flags)) else { return false };
            if header.op & ANSWER != 0 {
                return false;
            }
            let payload = message.slice(at);
            match op {
                Op::Open => self.open(header, payload),
                Op::Attach => self.attach(header, &payload),
                Op::Close => self.close(header),
                Op::Cancel => self.cancel(header),
                Op::Contract => {
                    let served = self.shared.served();
                    let header = Header { contract: contract_number(served.generation), ..header };
                    self.answer(header, 0, served.contract.to_text().as_bytes());
                }
                Op::Info => self.answer(header, 0, hello(&self.shared).as_bytes()),
                Op::StepMany | Op::ResetMany => self.many(header, op, encoding, &payload),
                Op::Hello | Op::Event => return false,
                _ => self.one(header, op, encoding, payload),
            }
            if self.outbox.waiting() > MOST_WAITING {
                *rest = message.slice(end..);
                break;
            }
        }
        true
    }

    fn answer(&self, header: Header, status: u16, payload: &[u8]) {
        self.outbox.push(Header { op: header.op | ANSWER, flags: 0, status: u32::from(status), ack: 0, ..header }, payload);
    }

    fn refuse(&self, header: Header, code: Code, message: &str, more: &[(&'static str, String)]) {
        self.shared.metrics.error(code.name());
        self.answer(header, code.number(), &failure(code, message, more));
    }

    /// Makes a session; the key of one that is there gives that one.
    fn open(self: &Arc<Self>, header: Header, payload: Bytes) {
        let (trunk, turn) = (self.clone(), self.shared.seats.turn());
        // It may take as long as a worker takes to start, and others must not wait.
        tokio::spawn(async move {
            let Some((key, options)) = trunk.key_of(header, &payload) else { return };
            let shared = &trunk.shared;
            match shared.seats.open(shared, &key, trunk.client, &environment_options(&options)).await {
                Ok(seat) => trunk.sit(header, &seat, turn),
                Err(mut ended) => {
                    if ended.code == Code::CapacityReached {
                        trunk.wants_room.store(true, Ordering::Relaxed);
                        ended.more.push(("retry_after", RETRY_AFTER.to_string()));
                        // The loop must know that it is to look.
                        trunk.outbox.wake.notify_one();
                    }
                    trunk.refuse(header, ended.code, &ended.message, &ended.more);
                }
            }
        });
    }

    /// Takes a session over, before what follows in the same message is looked at.
    fn attach(self: &Arc<Self>, header: Header, payload: &Bytes) {
        let Some((key, _)) = self.key_of(header, payload) else { return };
        match self.shared.seats.find(&key) {
            Some(seat) => {
                self.shared.metrics.resumed.inc();
                self.sit(header, &seat, self.shared.seats.turn());
            }
            None => self.gone(header),
        }
    }

    fn gone(&self, header: Header) {
        self.refuse(header, Code::SessionError, "there is no session of this key: it has ended, or the server is another", &[]);
    }

    fn key_of(&self, header: Header, payload: &Bytes) -> Option<(String, Value)> {
        let options: Value = serde_json::from_slice(payload).unwrap_or_default();
        let key = options["key"].as_str().filter(|key| (32..=128).contains(&key.len())).map(ToOwned::to_owned);
        if key.is_none() {
            self.refuse(header, Code::ProtocolError, "a session is opened with a `key` of 32 to 128 bytes", &[]);
        }
        Some((key?, options))
    }

    fn sit(&self, header: Header, seat: &Arc<Seat>, turn: u64) {
        let Some(next) = seat.hold(&self.outbox, turn) else { return self.gone(header) };
        locked(&self.seats).insert(seat.number, seat.clone());
        let told = json!({"session": seat.number, "session_id": seat.live.id, "contract": seat.contract, "next": next,
            "digest": seat.live.served.digest});
        let header = Header { session: seat.number, contract: seat.contract, ..header };
        self.answer(header, 0, told.to_string().as_bytes());
        if self.outbox.is_closed() {
            // The socket went while the session was made.
            locked(&self.seats).remove(&seat.number);
            self.leave(seat.clone());
        }
    }

    fn find(&self, session: u32) -> Option<Arc<Seat>> {
        locked(&self.seats).get(&session).filter(|seat| seat.is_held_by(&self.outbox)).cloned()
    }

    fn close(&self, header: Header) {
        let seat = self.find(header.session);
        if let Some(seat) = seat {
            locked(&self.seats).remove(&header.session);
            self.shared.seats.end(&seat, Code::SessionError, "its client ended it");
        }
        // A session that is gone is what was asked for.
        self.answer(header, 0, b"");
    }

    fn cancel(&self, header: Header) {
        if let Some(seat) = self.find(header.session) {
            seat.cancel(header.request);
        }
    }

    /// A request of one session.
    fn one(self: &Arc<Self>, header: Header, op: Op, encoding: Encoding, payload: Bytes) {
        let seat = match self.seat_for(header.session, header.contract) {
            Ok(seat) => seat,
            Err((code, message)) => return self.refuse(header, code, &message, &[]),
        };
        let task =
            Task { op, encoding, sequence: header.sequence, request: header.request, until: until(header), cancelled: false, payload };
        if let Some(task) = seat.accept(task, header.ack) {
            tokio::spawn(run::run(self.shared.clone(), seat, task));
        }
    }

    fn seat_for(&self, session: u32, contract: u16) -> Result<Arc<Seat>, (Code, String)> {
        let seat =
            self.find(session).ok_or_else(|| (Code::SessionError, format!("session {session} is not of this connection, or has ended")))?;
        if seat.contract != contract {
            let (digest, number) = (&seat.live.served.digest, seat.contract);
            let message = format!("the request is by contract {contract}, session {session} by contract {number}: {digest}");
            return Err((Code::ContractMismatch, message));
        }
        Ok(seat)
    }

    /// Requests of many sessions.
    fn many(self: &Arc<Self>, header: Header, op: Op, encoding: Encoding, payload: &Bytes) {
        // Only actions are raw; what a reset takes is JSON.
        let raw = encoding == Encoding::Tensor && op == Op::StepMany;
        let asks = match read_asks(payload, header.sequence, raw) {
            Ok(asks) => asks,
            Err(torn) => {
                let header = Header { session: 0, sequence: 0, ..header };
                return self.refuse(header, Code::ProtocolError, &format!("the table of entries: {torn}"), &[]);
            }
        };
        let until = until(header);
        let mut tasks = Vec::with_capacity(asks.len());
        let nothing = asks.is_empty();
        for ask in asks {
            let seat = match self.seat_for(ask.session, header.contract) {
                Ok(seat) => seat,
                Err((code, message)) => {
                    let header = Header { session: ask.session, sequence: ask.sequence, ..header };
                    self.refuse(header, code, &message, &[]);
                    continue;
                }
            };
            let payload = payload.slice(ask.payload);
            let task = Task { op, encoding, sequence: ask.sequence, request: header.request, until, cancelled: false, payload };
            if let Some(task) = seat.accept(task, ask.sequence.wrapping_sub(1)) {
                tasks.push((seat, task));
            }
        }
        let group = Group { op, encoding, request: header.request, contract: header.contract, tasks };
        if nothing {
            group.tell_nothing(&self.outbox);
        } else {
            group.begin(&self.shared, &self.outbox);
        }
    }
}

/// What the environment is made with: everything but our own words.
fn environment_options(options: &Value) -> Vec<u8> {
    let Some(map) = options.as_object() else { return Vec::new() };
    let mut map = map.clone();
    map.remove("key");
    if map.is_empty() { Vec::new() } else { Value::Object(map).to_string().into_bytes() }
}

fn until(header: Header) -> Option<Instant> {
    (header.status != 0).then(|| Instant::now() + Duration::from_millis(u64::from(header.status)))
}

impl Live {
    /// An answer was sent a second time.
    pub(crate) fn served_again(&self) {
        self.shared.metrics.replayed.inc();
    }
}
