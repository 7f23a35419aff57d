//! The workers of one target: placing sessions, deadlines, replacing what died.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use envharness_wire::Code;
use envharness_wire::frame::{Answer, INLINE, NOT_FINITE, Op};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::death::{Death, PoolError};
use crate::launcher::Launcher;
use crate::link::Said;
use crate::mode::{Limits, Memory, Mode};
use crate::session::{Failure, Reply};
use crate::stats::Stats;
use crate::template::{Event, Loaded, Target, Template};
use crate::worker::Worker;

/// Receives what a session printed: its number, the stream (1 or 2), the text.
pub type OutputSink = Arc<dyn Fn(u32, u8, &[u8]) + Send + Sync>;

/// What a pool is made of.
pub struct PoolConfig {
    /// Starts its processes.
    pub launcher: Arc<dyn Launcher>,
    /// What it serves.
    pub target: Target,
    /// How; `None` for what the class says and what was learnt.
    pub mode: Option<Mode>,
    /// Its limits; `sessions` of 0 takes the author's number, or the class's default.
    pub limits: Limits,
    /// What was learnt.
    pub memory: Arc<dyn Memory>,
    /// Takes what sessions print.
    pub output: OutputSink,
}

/// Sessions of a class that may have many, where nobody says how many.
const DEFAULT_SESSIONS: usize = 4096;
/// Sessions of a class with one to a process.
const DEFAULT_PROCESSES: usize = 64;

pub(crate) struct Inner {
    config: PoolConfig,
    loaded: Loaded,
    mode: AtomicU8,
    learns: bool,
    most: usize,
    active: AtomicUsize,
    /// Of the active ones, those whose client has left.
    closing: AtomicUsize,
    freed: Notify,
    numbers: AtomicU32,
    workers: Mutex<Vec<Arc<Worker>>>,
    /// The template to fork from. Its lock is held while one starts.
    template: tokio::sync::Mutex<Option<Arc<Template>>>,
    spawns: AtomicBool,
    crashes: AtomicUsize,
    ending: AtomicBool,
    stats: Stats,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("target", &self.config.target.target).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The workers of one target. Clones share them.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    /// Loads the target.
    ///
    /// # Errors
    /// Any [`PoolError`].
    pub async fn start(config: PoolConfig, stats: Stats) -> Result<Self, PoolError> {
        let (template, events) = Template::start(config.launcher.clone(), &config.target, config.limits.start).await?;
        let loaded = template.loaded.clone();
        if loaded.asgi {
            return Err(PoolError::Application { target: config.target.target.clone() });
        }
        let facts = &loaded.facts;
        let recalled = config.memory.recall();
        let said = config.mode.or_else(|| facts.concurrency.as_deref().and_then(Mode::parse));
        let mode = said.unwrap_or(match () {
            () if facts.asynchronous && facts.concurrent => Mode::Async,
            () if !facts.concurrent => Mode::Process,
            () if facts.single_thread => Mode::Inline,
            () => recalled.filter(|mode| matches!(mode, Mode::Inline | Mode::Thread)).unwrap_or(Mode::Thread),
        });
        if let Some(reason) = &loaded.unforkable {
            tracing::warn!("workers of `{}` are started, not forked: {reason}", config.target.target);
        }
        let most = match (config.limits.sessions, loaded.max_sessions) {
            (0, Some(most)) if most > 1 => most,
            (0, _) if mode == Mode::Process => DEFAULT_PROCESSES,
            (0, _) => DEFAULT_SESSIONS,
            (most, _) => most,
        };
        let inner = Arc::new(Inner {
            learns: said.is_none() && !facts.asynchronous && facts.concurrent && !facts.single_thread,
            mode: AtomicU8::new(mode as u8),
            most,
            active: AtomicUsize::new(0),
            closing: AtomicUsize::new(0),
            freed: Notify::new(),
            numbers: AtomicU32::new(0),
            workers: Mutex::default(),
            template: tokio::sync::Mutex::new(None),
            spawns: AtomicBool::new(loaded.unforkable.is_some()),
            crashes: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            stats,
            loaded,
            config,
        });
        let template = Arc::new(template);
        tokio::spawn(follow(Arc::downgrade(&inner), Arc::downgrade(&template), events, None));
        *inner.template.lock().await = Some(template);
        let pool = Self { inner };
        // The first session finds a worker that is there.
        pool.add_worker().await.map_err(|failure| PoolError::Ended {
            target: pool.inner.config.target.target.clone(),
            reason: format!("no worker could be made: {failure:?}"),
        })?;
        Ok(pool)
    }

    /// What the target told.
    pub fn loaded(&self) -> &Loaded {
        &self.inner.loaded
    }

    /// How new sessions run.
    pub fn mode(&self) -> Mode {
        Mode::from_number(self.inner.mode.load(Ordering::Relaxed))
    }

    /// Sessions in use, and how many there may be.
    pub fn capacity(&self) -> (usize, usize) {
        (self.inner.active.load(Ordering::Relaxed), self.inner.most)
    }

    /// Process ids of the workers, with their number of sessions.
    pub fn workers(&self) -> Vec<(Option<i32>, usize)> {
        locked(&self.inner.workers).iter().map(|w| (w.pid(), w.sessions.load(Ordering::Relaxed))).collect()
    }

    /// The template's process, where there is one.
    pub async fn template_pid(&self) -> Option<i32> {
        self.inner.template.lock().await.as_ref().map(|template| template.pid)
    }

    /// Ends every worker: their sockets close, and what does not go is killed.
    pub async fn end(&self) {
        self.inner.ending.store(true, Ordering::Relaxed);
        let workers = std::mem::take(&mut *locked(&self.inner.workers));
        for worker in &workers {
            worker.retire();
        }
        for worker in &workers {
            let mut death = worker.death();
            let _ = tokio::time::timeout(Duration::from_secs(6), death.wait_for(Option::is_some)).await;
        }
        *self.inner.template.lock().await = None;
    }

    pub(crate) async fn open(&self, counted: bool, options: &[u8]) -> Result<PoolSession, Failure> {
        let permit = self.permit(counted).await?;
        let (worker, mode) = self.place().await?;
        let number = self.inner.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let mut session = PoolSession { pool: self.clone(), worker, number, mode, permit: Some(permit), open: true };
        let flags = if mode == Mode::Inline || mode == Mode::Process { INLINE } else { 0 };
        let answer = session.ask(Op::Open, flags, options);
        let reply = session.answered(Op::Open, answer).await?;
        if reply.kind != Answer::Ok {
            session.open = false;
            return Err(Failure::Factory(reply.payload));
        }
        Ok(session)
    }

    /// A slot. Where all are taken, but by instances that are closing, theirs are waited for: who closes a session and opens
    /// another is not to be refused.
    async fn permit(&self, counted: bool) -> Result<Permit, Failure> {
        let inner = &self.inner;
        if !counted {
            return Ok(Permit { inner: None });
        }
        let taken = || inner.active.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < inner.most).then_some(n + 1));
        let waiting = async {
            loop {
                let freed = inner.freed.notified();
                tokio::pin!(freed);
                // Before the look, so that a slot that is freed in between is heard of.
                freed.as_mut().enable();
                match taken() {
                    Err(_) if inner.closing.load(Ordering::Relaxed) > 0 => freed.await,
                    looked => return looked,
                }
            }
        };
        let looked = tokio::time::timeout(inner.config.limits.close, waiting).await.unwrap_or_else(|_| taken());
        looked.map_err(|active| Failure::Capacity { active, most: inner.most })?;
        Ok(Permit { inner: Some(inner.clone()) })
    }

    /// Asks a fresh instance of any worker.
    pub(crate) async fn ask(&self, op: Op, payload: &[u8]) -> Result<Reply, Failure> {
        let (worker, _) = self.place().await?;
        let answer = worker.link.ask(op, 0, 0, payload);
        let reply = self.wait(&worker, answer).await;
        self.release(&worker);
        reply
    }

    async fn wait(&self, worker: &Worker, answer: oneshot::Receiver<Reply>) -> Result<Reply, Failure> {
        let answer = match self.inner.config.limits.step {
            None => answer.await,
            Some(limit) => match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => return Err(Failure::TimedOut { seconds: limit.as_secs_f64() }),
            },
        };
        match answer {
            Ok(reply) => {
                if reply.flags & NOT_FINITE != 0 && reply.kind == Answer::Ok {
                    self.inner.stats.not_finite.inc();
                }
                Ok(reply)
            }
            Err(_) => {
                let mut death = worker.death();
                let death = death.wait_for(Option::is_some).await.ok().and_then(|death| death.clone());
                Err(death.map_or_else(|| Failure::Start("the pool has ended".to_owned()), Failure::Died))
            }
        }
    }

    /// The worker for one more session; the session is counted on it.
    async fn place(&self) -> Result<(Arc<Worker>, Mode), Failure> {
        for _ in 0..4 {
            let mode = self.mode();
            let smaller = (self.inner.crashes.load(Ordering::Relaxed) / 2).min(4);
            let most = (mode.most_sessions() >> smaller).max(1);
            let found = {
                let workers = locked(&self.inner.workers);
                let free =
                    |w: &&Arc<Worker>| !w.tainted.load(Ordering::Relaxed) && !w.is_dead() && w.sessions.load(Ordering::Relaxed) < most;
                let best = workers.iter().filter(free).min_by_key(|w| w.sessions.load(Ordering::Relaxed)).cloned();
                let best = best.filter(|w| w.sessions.load(Ordering::Relaxed) == 0 || workers.len() >= self.inner.config.limits.workers);
                if let Some(best) = &best {
                    best.sessions.fetch_add(1, Ordering::Relaxed);
                }
                best
            };
            if let Some(worker) = found {
                if mode == Mode::Process {
                    self.warm_up();
                }
                return Ok((worker, mode));
            }
            self.add_worker().await?;
        }
        Err(Failure::Start("workers end as fast as they are started".to_owned()))
    }

    /// Has a worker ready for the next session of a class with one to a process.
    fn warm_up(&self) {
        let idle =
            locked(&self.inner.workers).iter().any(|w| w.sessions.load(Ordering::Relaxed) == 0 && !w.tainted.load(Ordering::Relaxed));
        if !idle {
            replace(self.clone());
        }
    }

    /// Starts a worker and puts it among the others.
    async fn add_worker(&self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::Start(format!("cannot start a worker: {error}"));
        let inner = &self.inner;
        let mut held = inner.template.lock().await;
        if inner.ending.load(Ordering::Relaxed) {
            return Err(Failure::Start("the server is about to end".to_owned()));
        }
        let number = inner.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (worker, socket, ends) = Worker::new(number).map_err(failed)?;
        let spawns = inner.spawns.load(Ordering::Relaxed);
        if held.is_none() {
            let started = Template::start(inner.config.launcher.clone(), &inner.config.target, inner.config.limits.start).await;
            let (template, events) = started.map_err(|error| Failure::Start(error.to_string()))?;
            let template = Arc::new(template);
            tokio::spawn(follow(Arc::downgrade(inner), Arc::downgrade(&template), events, spawns.then(|| worker.clone())));
            *held = Some(template);
        }
        let Some(template) = held.clone() else { return Ok(()) };
        // Coroutines need a loop, whatever was asked for.
        let mode = if self.mode() == Mode::Async || inner.loaded.facts.asynchronous { "async" } else { "blocking" };
        let order = if spawns { "become" } else { "fork" };
        locked(&inner.workers).push(worker.clone());
        let carried: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(carry(Arc::downgrade(inner), worker.clone(), socket, inner.stats.clone(), inner.config.output.clone()));
        tokio::spawn(carried);
        let ordered = template.order(order, number, mode, &worker.marker, [ends.socket.as_fd(), ends.output.as_fd()]);
        if spawns {
            worker.is_process(template.pid);
            *held = None;
        }
        inner.stats.started.inc();
        if let Err(error) = ordered {
            *held = None;
            worker.kill(Code::WorkerDied, format!("it could not be started: {error}"));
            worker.has_exited(None);
            return Err(failed(error));
        }
        Ok(())
    }

    /// One session less on a worker.
    fn release(&self, worker: &Arc<Worker>) {
        let left = worker.sessions.fetch_sub(1, Ordering::Relaxed) - 1;
        if left > 0 || worker.is_dead() {
            return;
        }
        let many = locked(&self.inner.workers).len() > self.inner.config.limits.workers;
        // A process that had a session of its own is not used for another: what the class keeps in its module would leak.
        if worker.tainted.load(Ordering::Relaxed) || self.mode() == Mode::Process || many {
            worker.retire();
        }
    }

    /// A session did not answer in time.
    fn hung(&self, session: &PoolSession, op: Op, seconds: f64) {
        let worker = &session.worker;
        let first = !worker.proven.load(Ordering::Relaxed) && matches!(op, Op::Reset | Op::Open);
        if first && !self.inner.spawns.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a forked worker of `{}` did not answer its first reset: workers are started from now on",
                self.inner.config.target.target
            );
            let pool = self.clone();
            tokio::spawn(async move { *pool.inner.template.lock().await = None });
        }
        let reason = format!("the worker of this session was ended: another session did not answer within {seconds} s");
        if matches!(session.mode, Mode::Inline | Mode::Process) {
            self.inner.stats.hung.inc();
            worker.kill(Code::WorkerDied, reason);
            return;
        }
        // Its thread or task hangs, the others go on; the worker takes no more and ends with its last session.
        worker.tainted.store(true, Ordering::Relaxed);
        let (pool, worker) = (self.clone(), worker.clone());
        tokio::spawn(async move {
            let pong = worker.link.ask(Op::Ping, 0, 0, b"");
            if tokio::time::timeout(Duration::from_secs(2), pong).await.is_err() {
                pool.inner.stats.hung.inc();
                worker.kill(Code::WorkerDied, reason);
            }
        });
    }

    fn learn(&self, mode: Mode) {
        if self.inner.learns && self.mode() != mode && self.mode() != Mode::Async {
            tracing::info!("sessions of `{}` run {} from now on", self.inner.config.target.target, mode.name());
            self.inner.mode.store(mode as u8, Ordering::Relaxed);
            self.inner.config.memory.remember(mode);
        }
    }
}

/// A slot of the capacity.
#[derive(Debug)]
struct Permit {
    inner: Option<Arc<Inner>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            inner.active.fetch_sub(1, Ordering::Relaxed);
            inner.freed.notify_waiters();
        }
    }
}

/// Carries a worker's socket to its end, then clears up after it.
async fn carry(pool: Weak<Inner>, worker: Arc<Worker>, socket: tokio::net::UnixStream, stats: Stats, output: OutputSink) {
    let listener = pool.clone();
    let said = move |said: Said| match said {
        Said::Log(session, stream, text) => output(session, stream, &text),
        Said::Event(event) => {
            let event: serde_json::Value = serde_json::from_slice(&event).unwrap_or_default();
            let mode = event["mode"].as_str().and_then(Mode::parse);
            if let (Some(mode), Some(inner)) = (mode, listener.upgrade()) {
                Pool { inner }.learn(mode);
            }
        }
    };
    let death = worker.carry(socket, &stats, &said).await;
    let Some(inner) = pool.upgrade() else { return };
    let before = {
        let mut workers = locked(&inner.workers);
        workers.retain(|w| !Arc::ptr_eq(w, &worker));
        workers.len()
    };
    let (launcher, marker) = (inner.config.launcher.clone(), worker.marker.clone());
    tokio::task::spawn_blocking(move || launcher.end_marked(&format!("ENVHARNESS_WORKER={marker}")));
    let unasked = death.signal.is_some() || death.exit.is_some_and(|code| code != 0) || worker.sessions.load(Ordering::Relaxed) > 0;
    if unasked && !inner.ending.load(Ordering::Relaxed) {
        inner.crashes.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(worker = worker.number, signal = death.signal, exit = death.exit, "{}: {}", death.reason, death.last_output);
        if before < inner.config.limits.workers {
            replace(Pool { inner });
        }
    }
}

/// Starts a worker in a task of its own.
fn replace(pool: Pool) {
    tokio::spawn(async move {
        if let Err(failure) = pool.add_worker().await {
            tracing::error!("no worker in place of the one that ended: {failure:?}");
        }
    });
}

/// Passes on what a template tells.
async fn follow(pool: Weak<Inner>, template: Weak<Template>, mut events: mpsc::UnboundedReceiver<Event>, became: Option<Arc<Worker>>) {
    let mut known: HashMap<u32, Arc<Worker>> = HashMap::new();
    let find = |number: u32| {
        let inner = pool.upgrade()?;
        locked(&inner.workers).iter().find(|w| w.number == number).cloned()
    };
    while let Some(event) = events.recv().await {
        match event {
            Event::Forked(number, pid) => {
                if let Some(worker) = find(number) {
                    worker.is_process(pid);
                    known.insert(number, worker);
                }
            }
            Event::Exited(number, status) => {
                if let Some(worker) = known.remove(&number) {
                    worker.has_exited(status);
                }
            }
            Event::Gone(status) => {
                for worker in known.values() {
                    worker.has_exited(None);
                }
                if let Some(worker) = &became {
                    worker.has_exited(status);
                } else if let Some(inner) = pool.upgrade() {
                    // The first template of a class that cannot be forked becomes a worker too.
                    for worker in locked(&inner.workers).iter().filter(|w| template.upgrade().is_some_and(|t| w.pid() == Some(t.pid))) {
                        worker.has_exited(status);
                    }
                    let mut held = inner.template.lock().await;
                    if held.as_ref().is_some_and(|held| template.upgrade().is_none_or(|gone| Arc::ptr_eq(held, &gone))) {
                        *held = None;
                    }
                }
            }
        }
    }
}

/// A session in a worker.
#[derive(Debug)]
pub struct PoolSession {
    pool: Pool,
    worker: Arc<Worker>,
    number: u32,
    mode: Mode,
    permit: Option<Permit>,
    open: bool,
}

impl PoolSession {
    /// Sends a request; the answer is for [`PoolSession::answered`].
    pub(crate) fn ask(&self, op: Op, flags: u8, payload: &[u8]) -> oneshot::Receiver<Reply> {
        let answer = self.worker.link.ask(op, flags, self.number, payload);
        if self.worker.is_dead() {
            // It died before it was asked: nobody would answer.
            self.worker.link.close();
        }
        answer
    }

    /// Waits for an answer, within the limit of a step.
    pub(crate) async fn answered(&mut self, op: Op, answer: oneshot::Receiver<Reply>) -> Result<Reply, Failure> {
        let reply = self.pool.wait(&self.worker, answer).await;
        match &reply {
            Ok(_) if op == Op::Reset => self.worker.proven.store(true, Ordering::Relaxed),
            Err(Failure::TimedOut { seconds }) => {
                self.open = false;
                self.pool.hung(self, op, *seconds);
            }
            _ => {}
        }
        reply
    }

    pub(crate) fn death(&self) -> watch::Receiver<Option<Arc<Death>>> {
        self.worker.death()
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// A number that the sessions of one worker share.
    pub(crate) fn worker(&self) -> u32 {
        self.worker.number
    }
}

impl Drop for PoolSession {
    fn drop(&mut self) {
        let (pool, worker, number, permit) = (self.pool.clone(), self.worker.clone(), self.number, self.permit.take());
        if !self.open || worker.is_dead() {
            pool.release(&worker);
            return;
        }
        let answer = worker.link.ask(Op::Close, 0, number, b"");
        if worker.is_dead() {
            worker.link.close();
        }
        let limit = pool.inner.config.limits.close;
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        pool.inner.closing.fetch_add(1, Ordering::Relaxed);
        // The slot is free again when the instance is closed, not before.
        runtime.spawn(async move {
            if tokio::time::timeout(limit, answer).await.is_err() && !worker.is_dead() {
                tracing::warn!("a session did not close within {} s; its worker takes no more", limit.as_secs_f64());
                worker.tainted.store(true, Ordering::Relaxed);
                if pool.mode() == Mode::Process || pool.mode() == Mode::Inline {
                    worker.kill(Code::WorkerDied, "the worker of this session was ended: another session did not close".to_owned());
                }
            }
            pool.release(&worker);
            pool.inner.closing.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        });
    }
}

/// Bytes that need no copy.
impl From<Vec<u8>> for Reply {
    fn from(payload: Vec<u8>) -> Self {
        Self { kind: Answer::Ok, flags: 0, payload: Bytes::from(payload) }
    }
}
