//! What the sessions saw, put together.

use std::time::Duration;

use serde_json::{Value, json};

use crate::session::{Failure, Opened};

/// Latencies and failures of one session or of all.
#[derive(Default)]
pub struct Tally {
    /// Connects, in microseconds.
    pub connects: Vec<u32>,
    /// Resets that opened a session, in microseconds.
    pub resets: Vec<u32>,
    /// Steps, in microseconds.
    pub steps: Vec<u32>,
    /// Requests that failed.
    pub failures: u64,
    /// Sessions that could not be opened or ended early.
    pub lost: u64,
    /// The first failure.
    pub first_failure: Option<String>,
}

impl Tally {
    /// Notes how a session was opened.
    pub fn opened(&mut self, opened: Opened) {
        self.connects.push(micros(opened.connect));
        self.resets.push(micros(opened.reset));
    }

    /// Notes a failed request; true when the session is over.
    pub fn failed(&mut self, failure: Failure) -> bool {
        self.failures += 1;
        self.lost += u64::from(failure.over);
        self.first_failure.get_or_insert(failure.text);
        failure.over
    }

    /// Adds what another session saw.
    pub fn add(&mut self, other: Tally) {
        self.connects.extend(other.connects);
        self.resets.extend(other.resets);
        self.steps.extend(other.steps);
        self.failures += other.failures;
        self.lost += other.lost;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }

    /// The keys every run has.
    pub fn common(&mut self) -> Value {
        json!({
            "failures": self.failures,
            "lost_sessions": self.lost,
            "first_failure": self.first_failure,
            "connect": quantiles(&mut self.connects),
            "reset": quantiles(&mut self.resets),
        })
    }
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// p50, p99 and the largest, in milliseconds; null without any.
pub fn quantiles(times: &mut [u32]) -> Value {
    times.sort_unstable();
    let Some(&max) = times.last() else { return Value::Null };
    let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share).round() as usize]) / 1000.0;
    json!({ "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": f64::from(max) / 1000.0, "count": times.len() })
}

/// Puts the keys of `more` into `object`.
pub fn merged(mut object: Value, more: Value) -> Value {
    if let (Value::Object(into), Value::Object(from)) = (&mut object, more) {
        into.extend(from);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::quantiles;

    #[test]
    fn quantiles_of_a_hundred() {
        let mut times: Vec<u32> = (0..=100).rev().map(|n| n * 1000).collect();
        let found = quantiles(&mut times);
        assert_eq!((found["p50_ms"].as_f64(), found["p99_ms"].as_f64(), found["max_ms"].as_f64()), (Some(50.0), Some(99.0), Some(100.0)));
        assert!(quantiles(&mut []).is_null());
    }
}
