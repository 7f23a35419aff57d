//! How the sessions of a class run, what is remembered of it, and the limits of a pool.

use std::time::Duration;

/// How the sessions of a class run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// On the main thread of a worker, one call after the other.
    Inline = 0,
    /// Each on a thread of its own.
    Thread = 1,
    /// On an event loop.
    Async = 2,
    /// Each in a process of its own.
    Process = 3,
}

impl Mode {
    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "inline" => Self::Inline,
            "thread" => Self::Thread,
            "async" => Self::Async,
            "process" => Self::Process,
            _ => return None,
        })
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Thread => "thread",
            Self::Async => "async",
            Self::Process => "process",
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Inline,
            1 => Self::Thread,
            2 => Self::Async,
            _ => Self::Process,
        }
    }

    /// How many sessions one worker takes: what one crash may cost.
    pub(crate) fn most_sessions(self) -> usize {
        match self {
            Self::Inline => 256,
            Self::Thread => 4096,
            Self::Async => 4096,
            Self::Process => 1,
        }
    }
}

/// What is remembered of a class from one run to the next.
pub trait Memory: Send + Sync {
    /// How its sessions ran well.
    fn recall(&self) -> Option<Mode>;
    /// Remembers it.
    fn remember(&self, mode: Mode);
}

/// The limits of a pool.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Workers that are kept where sessions fit into them.
    pub workers: usize,
    /// Sessions at once.
    pub sessions: usize,
    /// The longest reset, step or other call.
    pub step: Option<Duration>,
    /// The longest load.
    pub start: Duration,
    /// The longest close.
    pub close: Duration,
}
