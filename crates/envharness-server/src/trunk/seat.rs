//! A session of `envharness.v1`: its requests one after the other, each carried out once, and its answers until they have
//! arrived.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use envharness_wire::Code;
use envharness_wire::v1::{ANSWER, Encoding, Header, Op, REPLAYED, WINDOW};
use tokio::sync::OnceCell;

use super::outbox::Outbox;
use crate::live::{Ended, Live};
use crate::server::Shared;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request of a session.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) op: Op,
    pub(super) encoding: Encoding,
    pub(super) sequence: u32,
    pub(super) request: u64,
    /// Until when it may begin.
    pub(super) until: Option<Instant>,
    /// Whether it shall not begin any more.
    pub(super) cancelled: bool,
    pub(super) payload: Bytes,
}

/// An answer, kept until the client has it.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) op: u8,
    pub(super) flags: u8,
    pub(super) status: u16,
    pub(super) sequence: u32,
    pub(super) request: u64,
    pub(super) payload: Bytes,
}

impl Kept {
    /// The answer that a task failed.
    pub(super) fn failure(task: &Task, code: Code, payload: Vec<u8>) -> Self {
        Self {
            op: task.op as u8,
            flags: 0,
            status: code.number(),
            sequence: task.sequence,
            request: task.request,
            payload: Bytes::from(payload),
        }
    }
}

/// What becomes of a request that came in.
pub(super) enum Accepted {
    /// It is carried out now; its caller does it.
    Run(Task),
    /// It waits, is under way, or was answered already.
    Settled,
}

#[derive(Debug)]
struct State {
    next: u32,
    running: Option<u32>,
    waiting: VecDeque<Task>,
    kept: VecDeque<Kept>,
    home: Option<Arc<Outbox>>,
    ended: Option<(Code, Bytes)>,
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
        locked(&self.state).home.as_ref().is_some_and(|home| Arc::ptr_eq(home, outbox))
    }

    /// A socket holds it from now on; answers go there. Gives the sequence it expects next.
    pub(super) fn hold(&self, outbox: &Arc<Outbox>) -> u32 {
        let mut state = locked(&self.state);
        state.home = Some(outbox.clone());
        self.live.attached.store(true, Ordering::Relaxed);
        self.live.touch();
        state.next
    }

    /// The socket is gone. False where another holds it by now.
    pub(super) fn let_go(&self, outbox: &Arc<Outbox>) -> bool {
        let mut state = locked(&self.state);
        if !state.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, outbox)) {
            return false;
        }
        state.home = None;
        self.live.attached.store(false, Ordering::Relaxed);
        self.live.touch();
        true
    }

    /// Whether no socket holds it.
    pub(super) fn is_alone(&self) -> bool {
        locked(&self.state).home.is_none()
    }

    /// Takes a request in.
    ///
    /// A sequence that was answered is answered again, with the same answer; one that is under way is answered when it is done.
    pub(super) fn accept(&self, task: Task, ack: u32) -> Accepted {
        let mut state = locked(&self.state);
        while state.kept.front().is_some_and(|kept| kept.sequence <= ack) {
            state.kept.pop_front();
        }
        if task.sequence < state.next {
            if let Some(kept) = state.kept.iter_mut().find(|kept| kept.sequence == task.sequence) {
                kept.request = task.request;
                let kept = kept.clone();
                self.live.served_again();
                self.answer(&state, &kept, REPLAYED);
            } else if state.running == Some(task.sequence) || state.waiting.iter().any(|waiting| waiting.sequence == task.sequence) {
                // Its answer comes.
            } else {
                let message = format!("sequence {} of session {} was answered and acknowledged", task.sequence, self.number);
                self.refuse(&state, &task, Code::SequenceError, &message);
            }
            return Accepted::Settled;
        }
        if task.sequence > state.next {
            let message = format!("sequence {} of session {} came where {} is next", task.sequence, self.number, state.next);
            self.refuse(&state, &task, Code::SequenceError, &message);
            return Accepted::Settled;
        }
        if state.waiting.len() + usize::from(state.running.is_some()) >= WINDOW as usize {
            let message = format!("session {} has {WINDOW} unanswered requests already", self.number);
            self.refuse(&state, &task, Code::SequenceError, &message);
            return Accepted::Settled;
        }
        state.next = state.next.wrapping_add(1);
        if let Some((code, payload)) = state.ended.clone() {
            let kept = Kept { payload, ..Kept::failure(&task, code, Vec::new()) };
            self.answer(&state, &kept, 0);
            state.kept.push_back(kept);
            return Accepted::Settled;
        }
        if state.running.is_some() {
            state.waiting.push_back(task);
            return Accepted::Settled;
        }
        state.running = Some(task.sequence);
        Accepted::Run(task)
    }

    /// Forgets a request that has not begun; it is answered as cancelled.
    pub(super) fn cancel(&self, request: u64) {
        let mut state = locked(&self.state);
        if let Some(task) = state.waiting.iter_mut().find(|task| task.request == request) {
            // It keeps its place: what comes after it must not overtake what is under way.
            task.cancelled = true;
        }
    }

    /// An answer is there: it is kept, and sent where a socket is. Gives the next request, which then runs.
    pub(super) fn done(&self, kept: Kept, ended: Option<Code>, send: bool) -> Option<Task> {
        let mut state = locked(&self.state);
        if let Some(code) = ended {
            state.ended = Some((code, kept.payload.clone()));
        }
        if send {
            self.answer(&state, &kept, 0);
        }
        state.kept.push_back(kept);
        let next = state.waiting.pop_front();
        state.running = next.as_ref().map(|task| task.sequence);
        next
    }

    fn refuse(&self, state: &State, task: &Task, code: Code, message: &str) {
        let kept = Kept::failure(task, code, envharness_wire::reply::error_data(code, message, &[("retryable", "false".to_owned())]));
        self.answer(state, &kept, 0);
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

/// All of them, by the number on the wire and by the secret of their client.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    by_key: Mutex<HashMap<String, Arc<OnceCell<Arc<Seat>>>>>,
    numbers: AtomicU32,
}

impl Seats {
    /// The seat of a key; a new session is opened where there is none. A client that asks again gets the same one.
    pub(super) async fn open(&self, shared: &Arc<Shared>, key: &str, client: std::net::IpAddr, options: &[u8]) -> Result<Arc<Seat>, Ended> {
        let cell = locked(&self.by_key).entry(key.to_owned()).or_default().clone();
        let made = cell
            .get_or_try_init(|| async {
                let live = Live::open(shared, client, options).await?;
                let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
                let contract = contract_number(live.served.generation);
                let state = State { next: 1, running: None, waiting: VecDeque::new(), kept: VecDeque::new(), home: None, ended: None };
                Ok::<_, Ended>(Arc::new(Seat { number, key: key.to_owned(), contract, live, state: Mutex::new(state) }))
            })
            .await;
        match made {
            Ok(seat) => Ok(seat.clone()),
            Err(ended) => {
                let mut by_key = locked(&self.by_key);
                if by_key.get(key).is_some_and(|held| held.get().is_none()) {
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

    /// Ends a session.
    pub(super) fn end(&self, seat: &Seat, why: &str) {
        locked(&self.by_key).remove(&seat.key);
        seat.live.end(why);
    }
}

/// The number of the contract of a generation.
pub(super) fn contract_number(generation: u32) -> u16 {
    u16::try_from(generation % 0xffff).unwrap_or(0) + 1
}
