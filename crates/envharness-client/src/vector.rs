//! Many sessions driven together: calls go out in one frame a connection, outcomes come first ready first.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::{Encoding, Op};

use crate::call::{Ask, Outcome, Sink, Slots};
use crate::error::ClientError;
use crate::seats::Entry;
use crate::session::{Session, is_vector};
use crate::trunk::Trunk;

/// Told when outcomes are there.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Ready {
    outcomes: Vec<(u32, Outcome)>,
    /// How many somebody waits for.
    wanted: usize,
    bell: Option<Bell>,
}

#[derive(Default)]
struct Basket {
    ready: Mutex<Ready>,
    changed: Condvar,
}

impl std::fmt::Debug for Basket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Basket")
    }
}

impl Basket {
    fn locked(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots for Basket {
    fn put(&self, slot: u32, outcome: Outcome) {
        let mut ready = self.locked();
        ready.outcomes.push((slot, outcome));
        if ready.outcomes.len() < ready.wanted {
            return;
        }
        let bell = ready.bell.take();
        drop(ready);
        self.changed.notify_all();
        if let Some(bell) = bell {
            bell();
        }
    }
}

/// Sessions by slot.
#[derive(Debug, Default)]
pub struct Vector {
    sessions: Vec<Option<Arc<Session>>>,
    basket: Arc<Basket>,
}

impl Vector {
    /// Has `slots` empty ones.
    pub fn new(slots: usize) -> Self {
        Self { sessions: vec![None; slots], basket: Arc::default() }
    }

    /// Puts a session into a slot.
    pub fn put(&mut self, slot: usize, session: Option<Arc<Session>>) {
        if let Some(place) = self.sessions.get_mut(slot) {
            *place = session;
        }
    }

    /// The session of a slot.
    pub fn get(&self, slot: usize) -> Option<&Arc<Session>> {
        self.sessions.get(slot)?.as_ref()
    }

    /// Sends a call to each of some slots; every slot has an outcome later. `together`: in one frame a connection, whose answers
    /// come together; else each as it is ready.
    pub fn send(&self, op: Op, encoding: Encoding, timeout: Option<Duration>, calls: Vec<(u32, Bytes)>, together: bool) {
        let mut trunks: HashMap<*const Trunk, (Arc<Trunk>, Vec<Entry>)> = HashMap::new();
        let mut last: Option<*const Trunk> = None;
        let mut pending: Vec<Entry> = Vec::new();
        let mut owner: Option<Arc<Trunk>> = None;
        for (slot, payload) in calls {
            let sink = Sink::Slot(self.basket.clone(), slot);
            match self.get(slot as usize).map(Arc::as_ref) {
                None => sink.put(Err(ClientError::Closed)),
                Some(Session::V1(seat)) if together && is_vector(op) => {
                    let at = Arc::as_ptr(seat.trunk());
                    if last != Some(at) {
                        if let Some(trunk) = owner.replace(seat.trunk().clone()) {
                            trunks.entry(Arc::as_ptr(&trunk)).or_insert_with(|| (trunk.clone(), Vec::new())).1.append(&mut pending);
                        }
                        last = Some(at);
                    }
                    pending.push(Entry { session: seat.number(), serial: seat.serial(), payload, sink });
                }
                Some(session) => {
                    session.ask(&Ask { op, encoding, payload, timeout, blocking: false }, sink);
                }
            }
        }
        if let Some(trunk) = owner {
            trunks.entry(Arc::as_ptr(&trunk)).or_insert_with(|| (trunk.clone(), Vec::new())).1.append(&mut pending);
        }
        for (trunk, entries) in trunks.into_values() {
            trunk.ask_many(op, encoding, timeout, entries, together);
        }
    }

    /// Where outcomes arrive.
    pub fn outcomes(&self) -> Outcomes {
        Outcomes(self.basket.clone())
    }
}

/// The outcomes of a vector, for whoever waits for them.
#[derive(Debug, Clone)]
pub struct Outcomes(Arc<Basket>);

impl Outcomes {
    /// Takes what is ready when there are `least` outcomes, or when the time is over. False in place of waiting on: `go_on` said so.
    pub fn wait(&self, least: usize, timeout: Option<Duration>, go_on: &mut dyn FnMut() -> bool) -> Vec<(u32, Outcome)> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut ready = self.0.locked();
        loop {
            if ready.outcomes.len() >= least {
                return std::mem::take(&mut ready.outcomes);
            }
            ready.wanted = least;
            let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
            if slice.is_zero() {
                return std::mem::take(&mut ready.outcomes);
            }
            let (held, over) = self.0.changed.wait_timeout(ready, slice).unwrap_or_else(PoisonError::into_inner);
            ready = held;
            if over.timed_out() {
                drop(ready);
                if !go_on() {
                    return Vec::new();
                }
                ready = self.0.locked();
            }
        }
    }

    /// Rings the bell once when there are `least` outcomes; at once, where there are.
    pub fn ring(&self, least: usize, bell: Bell) {
        let mut ready = self.0.locked();
        ready.wanted = least;
        if ready.outcomes.len() < least {
            ready.bell = Some(bell);
            return;
        }
        drop(ready);
        bell();
    }

    /// Takes what is ready.
    pub fn take(&self) -> Vec<(u32, Outcome)> {
        std::mem::take(&mut self.0.locked().outcomes)
    }
}

/// How long a wait goes without asking whether to go on.
const SLICE: Duration = Duration::from_millis(50);
