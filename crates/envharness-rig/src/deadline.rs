//! A point in time by which something must be done.

use std::time::{Duration, Instant};

use crate::error::RigError;

/// The end of a create, on the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    started: Instant,
    limit: Option<Duration>,
}

impl Deadline {
    /// Starts the clock.
    pub fn new(limit: Option<Duration>) -> Self {
        Self { started: Instant::now(), limit }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The time that is left; `None` without a limit.
    pub fn left(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Fails once the time is over.
    ///
    /// # Errors
    /// [`RigError::Timeout`] with what was being done and what was printed.
    pub fn check(&self, action: &str, output: impl FnOnce() -> String) -> Result<(), RigError> {
        match self.limit {
            Some(limit) if self.started.elapsed() >= limit => Err(RigError::Timeout { action: action.to_owned(), limit, output: output() }),
            _ => Ok(()),
        }
    }
}
