//! A call, and where its outcome goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::many::split_raw;
use envharness_wire::v1::{Encoding, Op};

use crate::error::ClientError;

/// What is asked of a session.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The operation: one of those that have a place in their session.
    pub op: Op,
    /// How the payload is written, and the answer is to be.
    pub encoding: Encoding,
    /// The action, the reset's arguments or the JSON-RPC request.
    pub payload: Bytes,
    /// The longest it may take.
    pub timeout: Option<Duration>,
    /// Whether the caller waits for nothing else: then its own thread writes, where it can.
    pub blocking: bool,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The bits of an answer of `envharness.v1`; from OpenEnv's protocol they are 0.
    pub flags: u8,
    /// What was answered; of a raw answer its info.
    pub payload: Bytes,
    /// The observation of a raw answer.
    pub row: Bytes,
    /// The reward of a raw answer, NaN for none.
    pub reward: f64,
}

impl Answer {
    /// From a frame of one session.
    pub(crate) fn of(flags: u8, payload: Bytes) -> Result<Self, ClientError> {
        if Encoding::of(flags) != Some(Encoding::Tensor) {
            return Ok(Self { flags, payload, ..Self::default() });
        }
        let (reward, row, info) =
            split_raw(&payload).ok_or_else(|| ClientError::Protocol { reason: "a raw answer is cut off".to_owned() })?;
        Ok(Self { flags, reward, row: payload.slice(row), payload: payload.slice(info) })
    }
}

/// What came of a call.
pub type Outcome = Result<Answer, ClientError>;

/// Takes the outcomes of the slots of a vector.
pub trait Slots: Send + Sync {
    /// One of them.
    fn put(&self, slot: u32, outcome: Outcome);
}

/// Where an outcome goes.
pub enum Sink {
    /// Nowhere: its caller gave up.
    Nowhere,
    /// To a caller.
    Caller(Box<dyn FnOnce(Outcome) + Send>),
    /// To a slot of a vector.
    Slot(Arc<dyn Slots>, u32),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nowhere => "Nowhere",
            Self::Caller(_) => "Caller",
            Self::Slot(..) => "Slot",
        })
    }
}

impl Sink {
    /// Hands the outcome over.
    pub(crate) fn put(self, outcome: Outcome) {
        match self {
            Self::Nowhere => {}
            Self::Caller(call) => call(outcome),
            Self::Slot(slots, slot) => slots.put(slot, outcome),
        }
    }

    /// Takes it out of its place; a later outcome goes nowhere.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Nowhere)
    }
}

/// The outcomes of one turn, handed over when no lock is held any more.
pub(crate) type Deliveries = Vec<(Sink, Outcome)>;

pub(crate) fn deliver(deliveries: Deliveries) {
    for (sink, outcome) in deliveries {
        sink.put(outcome);
    }
}

/// When a call's time is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) until: Instant,
    pub(crate) seconds: f64,
}

impl Limit {
    pub(crate) fn of(timeout: Option<Duration>) -> Option<Self> {
        let timeout = timeout?;
        Some(Self { until: Instant::now().checked_add(timeout)?, seconds: timeout.as_secs_f64() })
    }

    pub(crate) fn error(self) -> ClientError {
        ClientError::TimedOut { seconds: self.seconds }
    }
}

/// The next time at which something has to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Instant>);

impl Alarm {
    /// A new limit. True: whoever waits for the alarm must look again.
    pub(crate) fn set(&mut self, limit: Option<Limit>) -> bool {
        let Some(limit) = limit else { return false };
        let earlier = self.0.is_none_or(|at| limit.until < at);
        if earlier {
            self.0 = Some(limit.until);
        }
        earlier
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        self.0
    }

    /// It has rung; these are the limits that are left.
    pub(crate) fn reset(&mut self, left: impl Iterator<Item = Instant>) {
        self.0 = left.min();
    }
}
