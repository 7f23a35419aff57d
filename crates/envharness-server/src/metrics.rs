//! What Prometheus reads.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use envharness_worker::{Host, Stats};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByCode {
    code: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Role {
    Front,
    Worker,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRole {
    role: Role,
}

/// The counters of a front.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pub(crate) opened: Counter,
    pub(crate) closed: Counter,
    pub(crate) steps: Counter,
    pub(crate) resets: Counter,
    /// Sessions that a new socket took over.
    pub(crate) resumed: Counter,
    /// Answers that were sent again.
    pub(crate) replayed: Counter,
    pub(crate) step_seconds: Histogram,
    pub(crate) reset_seconds: Histogram,
    pub(crate) connections: Gauge,
    errors: Family<ByCode, Counter>,
    active: Gauge,
    most: Gauge,
    cpu: Family<ByRole, Gauge<f64, std::sync::atomic::AtomicU64>>,
    memory: Family<ByRole, Gauge>,
    cpu_per_step: Gauge<f64, std::sync::atomic::AtomicU64>,
    uptime: Gauge<f64, std::sync::atomic::AtomicU64>,
    workers: Gauge,
    started: Instant,
}

impl Metrics {
    pub(crate) fn new(stats: &Stats) -> Self {
        let latency = || Histogram::new(exponential_buckets(0.000_05, 2.0, 22));
        let metrics = Self {
            registry: Mutex::new(Registry::default()),
            opened: Counter::default(),
            closed: Counter::default(),
            steps: Counter::default(),
            resets: Counter::default(),
            resumed: Counter::default(),
            replayed: Counter::default(),
            step_seconds: latency(),
            reset_seconds: latency(),
            connections: Gauge::default(),
            errors: Family::default(),
            active: Gauge::default(),
            most: Gauge::default(),
            cpu: Family::default(),
            memory: Family::default(),
            cpu_per_step: Gauge::default(),
            uptime: Gauge::default(),
            workers: Gauge::default(),
            started: Instant::now(),
        };
        {
            let mut registry = metrics.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            registry.register("envharness_sessions_opened", "Sessions that were opened", metrics.opened.clone());
            registry.register("envharness_sessions_closed", "Sessions that ended", metrics.closed.clone());
            registry.register("envharness_sessions_active", "Sessions in use", metrics.active.clone());
            registry.register("envharness_sessions_limit", "Sessions that may be in use", metrics.most.clone());
            registry.register("envharness_connections", "Open connections", metrics.connections.clone());
            registry.register("envharness_steps", "Steps that were answered", metrics.steps.clone());
            registry.register("envharness_resets", "Resets that were answered", metrics.resets.clone());
            registry.register("envharness_sessions_resumed", "Sessions that went on after a broken connection", metrics.resumed.clone());
            registry.register("envharness_replayed", "Answers that were sent again after a broken connection", metrics.replayed.clone());
            registry.register("envharness_step_seconds", "From the request for a step to its answer", metrics.step_seconds.clone());
            registry.register("envharness_reset_seconds", "From the request for a reset to its answer", metrics.reset_seconds.clone());
            registry.register("envharness_errors", "Error replies by code", metrics.errors.clone());
            registry.register("envharness_workers", "Worker processes", metrics.workers.clone());
            registry.register("envharness_cpu_seconds", "Processor time so far", metrics.cpu.clone());
            registry.register("envharness_resident_bytes", "Memory in use", metrics.memory.clone());
            registry.register(
                "envharness_cpu_seconds_per_step",
                "Processor time of front and workers over steps",
                metrics.cpu_per_step.clone(),
            );
            registry.register("envharness_uptime_seconds", "Time since the start", metrics.uptime.clone());
            stats.register(&mut registry);
        }
        metrics
    }

    /// An error was told.
    pub(crate) fn error(&self, code: &'static str) {
        self.errors.get_or_create(&ByCode { code }).inc();
    }

    /// A call was answered.
    pub(crate) fn answered(&self, step: bool, took: Duration) {
        let (counter, histogram) = if step { (&self.steps, &self.step_seconds) } else { (&self.resets, &self.reset_seconds) };
        counter.inc();
        histogram.observe(took.as_secs_f64());
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self, host: Option<&Host>) -> String {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut workers = Vec::new();
        if let Some(host) = host {
            let (active, most) = host.capacity();
            self.active.set(number(active));
            self.most.set(number(most));
            if let Host::Pool(pool) = host {
                workers = pool.workers();
            }
        }
        self.workers.set(number(workers.len()));
        self.uptime.set(self.started.elapsed().as_secs_f64());
        let front = usage(std::process::id());
        let mut rest = (0.0, 0);
        for (pid, _) in workers {
            let (cpu, memory) = pid.and_then(|pid| u32::try_from(pid).ok()).map_or((0.0, 0), usage);
            rest = (rest.0 + cpu, rest.1 + memory);
        }
        for (role, (cpu, memory)) in [(Role::Front, front), (Role::Worker, rest)] {
            self.cpu.get_or_create(&ByRole { role }).set(cpu);
            self.memory.get_or_create(&ByRole { role }).set(memory);
        }
        let steps = self.steps.get();
        // Steps are far fewer than a double can count.
        #[expect(clippy::cast_precision_loss, reason = "a count below 2^53")]
        self.cpu_per_step.set(if steps == 0 { 0.0 } else { (front.0 + rest.0) / steps as f64 });
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

/// Processor seconds and resident bytes of a process.
fn usage(pid: u32) -> (f64, i64) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stat = read("stat");
    // The name in brackets may hold spaces; what is counted stands behind it.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    #[expect(clippy::cast_precision_loss, reason = "100 on every Linux")]
    let cpu = (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64;
    let page = i64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let pages = read("statm").split_whitespace().nth(1).and_then(|f| f.parse::<i64>().ok()).unwrap_or(0);
    (cpu, pages * page)
}
