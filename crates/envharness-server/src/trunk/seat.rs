//! A session of `envharness.v1`: who holds it, and where its answers go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use envharness_wire::Code;
use envharness_wire::v1::{ANSWER, Header, REPLAYED};
use tokio::sync::OnceCell;

use super::failure;
use super::line::{Kept, Line, Task, Verdict};
use super::outbox::Outbox;
use crate::live::{Ended, Live};
use crate::server::Shared;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct State {
    line: Line,
    home: Option<Arc<Outbox>>,
    /// The turn of who holds it, or held it last.
    turn: u64,
    /// Nobody can hold it any more.
    closed: bool,
}

/// A session that a socket holds, or that waits for its client to come back.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(super) number: u32,
    key: String,
    pub(super) contract: u16,
    pub(super) live: Arc<Live>,
    state: Mutex<State>,
}

impl Seat {
    /// Whether a socket holds it.
    pub(super) fn is_held_by(&self, outbox: &Arc<Outbox>) -> bool {
        locked(&self.state).is_home(outbox)
    }

    /// A socket holds it from now on, and answers go there; gives the sequence that is expected next. None where it has ended,
    /// or where another socket has asked for it later.
    pub(super) fn hold(&self, outbox: &Arc<Outbox>, turn: u64) -> Option<u32> {
        let mut state = locked(&self.state);
        let swept = self.live.closing.load(Ordering::Relaxed) && !state.line.has_ended();
        if state.closed || swept || (turn < state.turn && !state.is_home(outbox)) {
            return None;
        }
        state.turn = state.turn.max(turn);
        state.home = Some(outbox.clone());
        self.live.attached.store(true, Ordering::Relaxed);
        self.live.touch();
        Some(state.line.next())
    }

    /// The socket is gone; gives the turn at which that was. None where another holds it by now.
    pub(super) fn let_go(&self, outbox: &Arc<Outbox>) -> Option<u64> {
        let mut state = locked(&self.state);
        if !state.is_home(outbox) {
            return None;
        }
        state.home = None;
        self.live.attached.store(false, Ordering::Relaxed);
        self.live.touch();
        Some(state.turn)
    }

    /// Whether its requests fail from now on.
    pub(super) fn has_ended(&self) -> bool {
        locked(&self.state).line.has_ended()
    }

    /// Whether a request runs.
    pub(super) fn is_busy(&self) -> bool {
        locked(&self.state).line.is_running()
    }

    /// Takes a request in. What it gives is carried out now, by the caller.
    pub(super) fn accept(&self, task: Task, ack: u32) -> Option<Task> {
        let mut state = locked(&self.state);
        match state.line.accept(task, ack) {
            Verdict::Run(task) => return Some(task),
            Verdict::Wait => {}
            Verdict::Again(kept) => {
                self.live.served_again();
                self.answer(&state, &kept, REPLAYED);
            }
            Verdict::Over(kept) => self.answer(&state, &kept, 0),
            Verdict::Refuse(task, why) => {
                let code = Code::SequenceError;
                self.live.shared.metrics.error(code.name());
                let message = format!("session {}: {why}", self.number);
                self.answer(&state, &Kept::failure(&task, code, failure(code, &message, &[])), 0);
            }
        }
        None
    }

    /// Forgets a request that has not begun; it is answered as cancelled in its turn.
    pub(super) fn cancel(&self, request: u64) {
        locked(&self.state).line.cancel(request);
    }

    /// An answer is there: it is kept, and sent where a socket is; unless that is `group`, for whose frame it is then left (true).
    /// Gives the next request, which then runs.
    pub(super) fn done(&self, kept: Kept, ended: Option<Code>, group: Option<&Arc<Outbox>>) -> (bool, Option<Task>) {
        let mut state = locked(&self.state);
        let done = state.line.done(kept, ended);
        let left = !done.resent && group.is_some_and(|outbox| state.is_home(outbox));
        if !left {
            self.answer(&state, &done.kept, 0);
        }
        for kept in &done.over {
            self.answer(&state, kept, 0);
        }
        let over = state.line.has_ended();
        drop(state);
        if over {
            // Its instance could not be closed while this ran.
            self.live.end("it has ended");
        }
        (left, done.next)
    }

    /// Ends it; what waits is answered so. False where a socket has come to hold it since `turn`.
    fn end(&self, code: Code, why: &str, turn: Option<u64>) -> bool {
        let mut state = locked(&self.state);
        if turn.is_some_and(|turn| state.home.is_some() || state.turn != turn) {
            return false;
        }
        state.closed = true;
        let told = format!("session {} has ended: {why}", self.number);
        for kept in state.line.end(code, &Bytes::from(failure(code, &told, &[]))) {
            self.answer(&state, &kept, 0);
        }
        true
    }

    fn answer(&self, state: &State, kept: &Kept, more: u8) {
        if let Some(home) = &state.home {
            home.push(self.header(kept, more), &kept.payload);
        }
    }

    fn header(&self, kept: &Kept, more: u8) -> Header {
        Header {
            length: 0,
            op: kept.op | ANSWER,
            flags: kept.flags | more,
            contract: self.contract,
            session: self.number,
            sequence: kept.sequence,
            request: kept.request,
            status: u32::from(kept.status),
            ack: 0,
        }
    }
}

impl State {
    fn is_home(&self, outbox: &Arc<Outbox>) -> bool {
        self.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, outbox))
    }
}

/// All of them, by the secret of their client.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    by_key: Mutex<HashMap<String, Arc<OnceCell<Arc<Seat>>>>>,
    numbers: AtomicU32,
    turns: AtomicU64,
}

impl Seats {
    /// A turn: of two sockets that ask for one session, that with the later one gets it.
    pub(super) fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The seat of a key; a new session is opened where there is none. A client that asks again gets the same one.
    pub(super) async fn open(&self, shared: &Arc<Shared>, key: &str, client: std::net::IpAddr, options: &[u8]) -> Result<Arc<Seat>, Ended> {
        let cell = locked(&self.by_key).entry(key.to_owned()).or_default().clone();
        let made = cell
            .get_or_try_init(|| async {
                let live = Live::open(shared, client, options).await?;
                // 0 is no session.
                let number = self.numbers.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
                let contract = contract_number(live.served.generation);
                let state = State { line: Line::new(), home: None, turn: 0, closed: false };
                Ok::<_, Ended>(Arc::new(Seat { number, key: key.to_owned(), contract, live, state: Mutex::new(state) }))
            })
            .await;
        match made {
            Ok(seat) => Ok(seat.clone()),
            Err(ended) => {
                let mut by_key = locked(&self.by_key);
                // Another that asks for this key may be about to make it: only the last one clears up.
                if by_key.get(key).is_some_and(|held| Arc::ptr_eq(held, &cell) && held.get().is_none() && Arc::strong_count(held) == 2) {
                    by_key.remove(key);
                }
                Err(ended)
            }
        }
    }

    /// The seat of a key.
    pub(super) fn find(&self, key: &str) -> Option<Arc<Seat>> {
        locked(&self.by_key).get(key).and_then(|cell| cell.get().cloned())
    }

    /// Ends a session; what waits in it is answered with the code.
    pub(super) fn end(&self, seat: &Arc<Seat>, code: Code, why: &str) {
        seat.end(code, why, None);
        self.forget(seat, why);
    }

    /// Ends a session that nobody has come to hold since a turn.
    pub(super) fn end_since(&self, seat: &Arc<Seat>, turn: u64, why: &str) {
        if seat.end(Code::SessionError, why, Some(turn)) {
            self.forget(seat, why);
        }
    }

    fn forget(&self, seat: &Arc<Seat>, why: &str) {
        let mut by_key = locked(&self.by_key);
        // The key may be another's by now.
        if by_key.get(&seat.key).is_some_and(|cell| cell.get().is_some_and(|held| Arc::ptr_eq(held, seat))) {
            by_key.remove(&seat.key);
        }
        drop(by_key);
        seat.live.end(why);
    }
}

/// The number of the contract of a generation.
pub(super) fn contract_number(generation: u32) -> u16 {
    u16::try_from(generation % 0xffff).unwrap_or(0) + 1
}
