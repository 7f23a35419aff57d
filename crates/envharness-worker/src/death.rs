//! Why a worker, a session or a start failed.

use std::fmt;

use envharness_wire::Code;

/// The end of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// `WORKER_DIED`, or another code where the front ended it.
    pub code: Code,
    /// What happened, as a sentence.
    pub reason: String,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its exit code.
    pub exit: Option<i32>,
    /// The last of what it printed.
    pub last_output: String,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// A wait status as a sentence, its signal and its exit code.
pub(crate) fn explain(status: Option<i32>) -> (String, Option<i32>, Option<i32>) {
    let Some(status) = status.filter(|status| *status >= 0) else {
        return ("the worker of this session ended".to_owned(), None, None);
    };
    let signal = status & 0x7f;
    if signal == 0 {
        let exit = (status >> 8) & 0xff;
        return (format!("the worker of this session ended with exit code {exit}"), None, Some(exit));
    }
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => "a signal",
    };
    let why = if signal == 9 { ", perhaps for want of memory" } else { "" };
    (format!("the worker of this session was ended by {name} ({signal}){why}"), Some(signal), None)
}

/// Why a pool could not start or load its target.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The interpreter could not be started.
    #[error("cannot start {interpreter}: {source}")]
    Start {
        /// Which.
        interpreter: String,
        /// Why.
        source: std::io::Error,
    },
    /// The target could not be loaded.
    #[error("cannot load `{target}`: {reason}")]
    Load {
        /// What was asked for.
        target: String,
        /// Why.
        reason: String,
        /// What may help.
        hint: Option<String>,
        /// The module that is missing.
        missing: Option<String>,
        /// Python's traceback.
        traceback: String,
    },
    /// The process ended before it had loaded.
    #[error("the process that loads `{target}` ended: {reason}")]
    Ended {
        /// What was asked for.
        target: String,
        /// What it printed last.
        reason: String,
    },
    /// Loading took too long.
    #[error("loading `{target}` took longer than {seconds} s")]
    Slow {
        /// What was asked for.
        target: String,
        /// The limit.
        seconds: u64,
    },
    /// The target is an ASGI application with routes of its own.
    #[error("`{target}` is an application with routes of its own")]
    Application {
        /// What was asked for.
        target: String,
    },
}

impl PoolError {
    /// What may help.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Load { hint, .. } => hint.as_deref(),
            Self::Slow { .. } => Some("raise it with --start-timeout"),
            _ => None,
        }
    }

    /// Python's traceback, where there is one.
    pub fn traceback(&self) -> &str {
        match self {
            Self::Load { traceback, .. } => traceback,
            _ => "",
        }
    }
}
