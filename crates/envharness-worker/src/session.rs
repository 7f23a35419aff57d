//! What the server holds: a session of any host, and what may come of a call.

use std::sync::Arc;

use bytes::Bytes;
use envharness_wire::frame::{Answer, Op};
use tokio::sync::{oneshot, watch};

use crate::death::Death;
use crate::native::{NativeHost, NativeSession};
use crate::pool::{Pool, PoolSession};

/// What a worker answered.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The kind.
    pub kind: Answer,
    /// Bits: [`envharness_wire::frame::DONE`], [`envharness_wire::frame::NOT_FINITE`].
    pub flags: u8,
    /// The payload.
    pub payload: Bytes,
}

/// Why a call has no reply.
#[derive(Debug, Clone)]
pub enum Failure {
    /// All sessions are in use.
    Capacity {
        /// How many there are.
        active: usize,
        /// How many there may be.
        most: usize,
    },
    /// The environment could not be made: the worker's payload.
    Factory(Bytes),
    /// The worker ended.
    Died(Arc<Death>),
    /// No answer in time.
    TimedOut {
        /// The limit in seconds.
        seconds: f64,
    },
    /// No worker could be started.
    Start(String),
}

/// What hosts sessions.
#[derive(Debug)]
pub enum Host {
    /// Workers.
    Pool(Pool),
    /// Environments compiled in.
    Native(NativeHost),
}

impl Host {
    /// Makes an instance for a new session. `options` are nothing, or a JSON object of what the client asks of it.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub async fn open(&self, options: &[u8]) -> Result<Session, Failure> {
        match self {
            Self::Pool(pool) => pool.open(true, options).await.map(Session::Pool),
            Self::Native(_) if asks_for_pictures(options) => {
                let told =
                    serde_json::json!({"code": "FACTORY_ERROR", "message": "this environment draws nothing: it has no render modes"});
                Err(Failure::Factory(Bytes::from(told.to_string())))
            }
            Self::Native(host) => host.open().map(Session::Native),
        }
    }

    /// Makes an instance for one call; it does not count as a session.
    ///
    /// # Errors
    /// Any [`Failure`] but [`Failure::Capacity`].
    pub async fn open_passing(&self) -> Result<Session, Failure> {
        match self {
            Self::Pool(pool) => pool.open(false, b"").await.map(Session::Pool),
            Self::Native(host) => Ok(Session::Native(host.open_passing())),
        }
    }

    /// Asks a fresh instance.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub async fn ask(&self, op: Op, payload: &[u8]) -> Result<Reply, Failure> {
        match self {
            Self::Pool(pool) => pool.ask(op, payload).await,
            Self::Native(host) => Ok(host.ask(op, payload)),
        }
    }

    /// Sessions in use, and how many there may be.
    pub fn capacity(&self) -> (usize, usize) {
        match self {
            Self::Pool(pool) => pool.capacity(),
            Self::Native(host) => host.capacity(),
        }
    }
}

fn asks_for_pictures(options: &[u8]) -> bool {
    let options: serde_json::Value = serde_json::from_slice(options).unwrap_or_default();
    !options["render_mode"].is_null()
}

/// A client's hold on one instance. Dropping it closes the instance.
#[derive(Debug)]
pub enum Session {
    /// In a worker.
    Pool(PoolSession),
    /// In this process.
    Native(NativeSession),
}

/// A request that was sent.
#[derive(Debug)]
pub enum Asked {
    /// A worker has it.
    Sent(oneshot::Receiver<Reply>),
    /// It is answered.
    Answered(Reply),
}

impl Session {
    /// Sends a request, whose answer [`Session::answered`] waits for. One at a time.
    pub fn ask(&mut self, op: Op, flags: u8, payload: &[u8]) -> Asked {
        match self {
            Self::Pool(session) => Asked::Sent(session.ask(op, flags, payload)),
            Self::Native(session) => Asked::Answered(session.call(op, flags, payload)),
        }
    }

    /// The answer to the request that was sent.
    ///
    /// # Errors
    /// [`Failure::Died`], [`Failure::TimedOut`].
    pub async fn answered(&mut self, op: Op, asked: Asked) -> Result<Reply, Failure> {
        match (self, asked) {
            (_, Asked::Answered(reply)) => Ok(reply),
            (Self::Pool(session), Asked::Sent(answer)) => session.answered(op, answer).await,
            (Self::Native(_), Asked::Sent(answer)) => answer.await.map_err(|_| Failure::Start("nobody answers".to_owned())),
        }
    }

    /// One request.
    ///
    /// # Errors
    /// [`Failure::Died`], [`Failure::TimedOut`].
    pub async fn call(&mut self, op: Op, flags: u8, payload: &[u8]) -> Result<Reply, Failure> {
        let asked = self.ask(op, flags, payload);
        self.answered(op, asked).await
    }

    /// A number that the sessions of one worker share; those in this process have 0.
    pub fn worker(&self) -> u32 {
        match self {
            Self::Pool(session) => session.worker(),
            Self::Native(_) => 0,
        }
    }

    /// A receiver of the worker's death; none for an instance in this process.
    pub fn death(&self) -> Option<watch::Receiver<Option<Arc<Death>>>> {
        match self {
            Self::Pool(session) => Some(session.death()),
            Self::Native(_) => None,
        }
    }

    /// The number by which its worker names it in what it prints.
    pub fn number(&self) -> u32 {
        match self {
            Self::Pool(session) => session.number(),
            Self::Native(_) => 0,
        }
    }
}
