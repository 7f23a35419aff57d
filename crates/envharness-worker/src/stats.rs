//! What a pool counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Counters and histograms of a pool. Clones share them.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Workers that were started.
    pub started: Counter,
    /// Workers that ended unasked.
    pub died: Counter,
    /// Workers that were ended because a session did not answer in time.
    pub hung: Counter,
    /// Answers per read from a worker.
    pub batch: Histogram,
    /// Answers in which a NaN or an infinity became null.
    pub not_finite: Counter,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            started: Counter::default(),
            died: Counter::default(),
            hung: Counter::default(),
            batch: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            not_finite: Counter::default(),
        }
    }
}

impl Stats {
    /// Makes them known to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("envharness_workers_started", "Workers that were started", self.started.clone());
        registry.register("envharness_workers_died", "Workers that ended unasked", self.died.clone());
        registry.register("envharness_workers_hung", "Workers ended because a session did not answer in time", self.hung.clone());
        registry.register("envharness_batch_size", "Answers per read from a worker", self.batch.clone());
        registry.register("envharness_not_finite", "Answers in which NaN or an infinity became null", self.not_finite.clone());
    }
}
