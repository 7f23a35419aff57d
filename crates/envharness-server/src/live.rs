//! Sessions: one client's hold on one instance, and the register of all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use envharness_wire::frame::{Answer, DONE, NOT_FINITE, Op};
use envharness_wire::json::{push_string, scan};
use envharness_wire::{Code, reply};
use envharness_worker::{Asked, Death, Failure, Reply, Session};
use serde_json::Value;
use tokio::sync::{Notify, OwnedMutexGuard, watch};

use crate::served::Served;
use crate::server::Shared;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: String,
    pub(crate) client: IpAddr,
    pub(crate) served: Arc<Served>,
    /// Wakes the socket's task to look at what has changed.
    pub(crate) poke: Notify,
    /// Whether a socket holds it.
    pub(crate) attached: AtomicBool,
    /// Whether it ends when its socket goes.
    pub(crate) closing: AtomicBool,
    /// Whether it was made by a stock client of the Model Context Protocol.
    pub(crate) standard: AtomicBool,
    session: Arc<tokio::sync::Mutex<Option<Session>>>,
    death: Option<watch::Receiver<Option<Arc<Death>>>>,
    number: u32,
    touched: AtomicU64,
    episode: AtomicBool,
    told_not_finite: AtomicBool,
    pub(crate) shared: Arc<Shared>,
}

/// A request that an instance has, and the hold on it.
pub(crate) struct Asking {
    held: OwnedMutexGuard<Option<Session>>,
    asked: Asked,
    op: Op,
    began: Instant,
}

impl Asking {
    /// A number that the sessions of one worker share.
    pub(crate) fn worker(&self) -> u32 {
        self.held.as_ref().map_or(0, Session::worker)
    }

    /// Whether the answer is there.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.asked, Asked::Answered(_))
    }
}

/// A payload as the JSON of a trace: binary ones as their bytes in base64.
fn traced(payload: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    use base64::Engine as _;
    if payload.is_empty() {
        return b"null"[..].into();
    }
    match std::str::from_utf8(payload) {
        Ok(text) if scan(text).is_ok() => payload.into(),
        _ => format!("{{\"base64\":\"{}\"}}", base64::engine::general_purpose::STANDARD.encode(payload)).into_bytes().into(),
    }
}

/// A call that has no answer to pass on.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) more: Vec<(&'static str, String)>,
    /// Whether the socket closes with 1011 (a fault) or 1000.
    pub(crate) fault: bool,
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    push_string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}

impl Ended {
    /// From a failure; `session` is the id where there is one.
    pub(crate) fn of(failure: Failure, session: Option<&str>) -> Self {
        let mut more = Vec::new();
        let (code, message, fault) = match failure {
            Failure::Capacity { active, most } => {
                more.push(("active_sessions", active.to_string()));
                more.push(("max_sessions", most.to_string()));
                let message = format!("Server at capacity: {active}/{most} sessions active. Cannot accept new connections.");
                return Self { code: Code::CapacityReached, message, more, fault: false };
            }
            Failure::Factory(payload) => {
                let told: Value = serde_json::from_slice(&payload).unwrap_or_default();
                if let Some(name) = told["factory_name"].as_str() {
                    more.push(("factory_name", quoted(name)));
                }
                if let Some(cause) = told["cause"].as_str() {
                    more.push(("cause", quoted(cause)));
                }
                let message = told["message"].as_str().unwrap_or("the environment could not be made").to_owned();
                return Self { code: Code::FactoryError, message, more, fault: false };
            }
            Failure::Died(death) => {
                if let Some(signal) = death.signal {
                    more.push(("signal", signal.to_string()));
                }
                if let Some(exit) = death.exit {
                    more.push(("exit_code", exit.to_string()));
                }
                if !death.last_output.is_empty() {
                    more.push(("last_output", quoted(&death.last_output)));
                }
                (death.code, death.reason.clone(), true)
            }
            Failure::TimedOut { seconds } => (Code::StepTimeout, format!("the environment did not answer within {seconds} s"), true),
            Failure::Start(reason) => (Code::WorkerDied, format!("no worker could be started: {reason}"), true),
        };
        more.insert(0, ("retryable", code.retryable().to_string()));
        if let Some(session) = session {
            more.insert(1, ("session_id", quoted(session)));
        }
        Self { code, message, more, fault }
    }

    /// As a message of `/ws`.
    pub(crate) fn message(&self) -> Vec<u8> {
        reply::error(self.code, &self.message, &self.more)
    }
}

impl Live {
    /// Opens a session for a client.
    pub(crate) async fn open(shared: &Arc<Shared>, client: IpAddr, options: &[u8]) -> Result<Arc<Self>, Ended> {
        if shared.draining() {
            return Err(Ended { code: Code::Draining, message: "the server is about to end".into(), more: Vec::new(), fault: false });
        }
        if let Some(most) = shared.config.sessions_per_client {
            let active = shared.sessions.of_client(client);
            if active >= most {
                let message = format!("{active} of {most} sessions of this client are in use");
                let more = vec![("active_sessions", active.to_string()), ("max_sessions", most.to_string())];
                return Err(Ended { code: Code::CapacityReached, message, more, fault: false });
            }
        }
        let served = shared.served();
        let session = served.host.open(options).await.map_err(|failure| Ended::of(failure, None))?;
        let live = Arc::new(Self {
            id: uuid(),
            client,
            death: session.death(),
            number: session.number(),
            session: Arc::new(tokio::sync::Mutex::new(Some(session))),
            served,
            poke: Notify::new(),
            attached: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            standard: AtomicBool::new(false),
            touched: AtomicU64::new(shared.now()),
            episode: AtomicBool::new(false),
            told_not_finite: AtomicBool::new(false),
            shared: shared.clone(),
        });
        shared.metrics.opened.inc();
        shared.sessions.add(&live);
        tracing::debug!(session = live.id, client = %client, "opened");
        if let Some(tracer) = &shared.tracer {
            let quoted_text = |text: &str| quoted(text).into_bytes();
            let (name, digest) = (quoted_text(&live.served.name), quoted_text(&live.served.digest));
            let lock = live.served.origin.lock.as_deref().map_or_else(|| b"null".to_vec(), quoted_text);
            let members: [(&str, &[u8]); 4] = [("session", &quoted_text(&live.id)), ("env", &name), ("contract", &digest), ("lock", &lock)];
            tracer.event(&live.id, "open", &members);
        }
        Ok(live)
    }

    /// The death of its worker, when it comes.
    pub(crate) async fn died(&self) -> Arc<Death> {
        let Some(death) = &self.death else { return std::future::pending().await };
        let mut death = death.clone();
        match death.wait_for(Option::is_some).await.ok().and_then(|death| death.clone()) {
            Some(death) => death,
            None => std::future::pending().await,
        }
    }

    fn touch_at(&self, now: Instant) {
        self.touched.store(self.shared.at(now), Ordering::Relaxed);
    }

    /// It was used.
    pub(crate) fn touch(&self) {
        self.touched.store(self.shared.now(), Ordering::Relaxed);
    }

    /// How long it was not.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.shared.now().saturating_sub(self.touched.load(Ordering::Relaxed)))
    }

    /// Whether a call runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.session.try_lock().is_err()
    }

    /// Whether an episode is under way.
    pub(crate) fn in_episode(&self) -> bool {
        self.episode.load(Ordering::Relaxed)
    }

    /// One request to the instance. Requests of one session wait for each other.
    pub(crate) async fn call(&self, op: Op, flags: u8, payload: &[u8]) -> Result<Reply, Ended> {
        let held = self.session.clone().lock_owned().await;
        let asked = self.ask(held, op, flags, payload, Instant::now())?;
        self.answered(asked, payload).await
    }

    /// Sends a request at once, where no other runs. It is now `began`: the clock is not read for each of many.
    pub(crate) fn try_ask(&self, op: Op, flags: u8, payload: &[u8], began: Instant) -> Option<Result<Asking, Ended>> {
        let held = self.session.clone().try_lock_owned().ok()?;
        Some(self.ask(held, op, flags, payload, began))
    }

    fn ask(&self, mut held: OwnedMutexGuard<Option<Session>>, op: Op, flags: u8, payload: &[u8], began: Instant) -> Result<Asking, Ended> {
        let Some(session) = held.as_mut() else {
            return Err(Ended {
                code: Code::SessionError,
                message: format!("Unknown session_id: {}", self.id),
                more: vec![],
                fault: false,
            });
        };
        self.touch_at(began);
        let asked = session.ask(op, flags, payload);
        Ok(Asking { held, asked, op, began })
    }

    /// The answer to what was sent; `payload` is for the trace.
    pub(crate) async fn answered(&self, asking: Asking, payload: &[u8]) -> Result<Reply, Ended> {
        let Asking { mut held, asked, op, began } = asking;
        let result = match held.as_mut() {
            Some(session) => session.answered(op, asked).await,
            None => Err(Failure::Start("the session has ended".to_owned())),
        };
        self.settle(&mut held, op, (began, Instant::now()), payload, result)
    }

    /// The answer that was there at once; it is still `now`.
    pub(crate) fn answered_now(&self, asking: Asking, payload: &[u8], now: Instant) -> Result<Reply, Ended> {
        let Asking { mut held, asked, op, began } = asking;
        let result = match asked {
            Asked::Answered(reply) => Ok(reply),
            Asked::Sent(_) => Err(Failure::Start("the answer is not there yet".to_owned())),
        };
        self.settle(&mut held, op, (began, now), payload, result)
    }

    fn settle(
        &self,
        held: &mut Option<Session>,
        op: Op,
        (began, now): (Instant, Instant),
        payload: &[u8],
        result: Result<Reply, Failure>,
    ) -> Result<Reply, Ended> {
        self.touch_at(now);
        let took = now.saturating_duration_since(began);
        let metrics = &self.shared.metrics;
        let reply = match result {
            Ok(reply) => reply,
            Err(failure) => {
                // The instance is lost; the session has nothing to hold any more.
                *held = None;
                let ended = Ended::of(failure, Some(&self.id));
                metrics.error(ended.code.name());
                tracing::warn!(session = self.id, code = ended.code.name(), "{}", ended.message);
                self.trace(op, payload, &ended.message());
                return Err(ended);
            }
        };
        if reply.kind == Answer::Ok {
            match op {
                Op::Step => metrics.answered(true, took),
                Op::Reset => metrics.answered(false, took),
                _ => {}
            }
            if matches!(op, Op::Step | Op::Reset) {
                self.episode.store(reply.flags & DONE == 0, Ordering::Relaxed);
            }
            if reply.flags & NOT_FINITE != 0 && !self.told_not_finite.swap(true, Ordering::Relaxed) {
                tracing::warn!(session = self.id, "a NaN or an infinity became null in an answer; told once a session");
            }
        } else if reply.kind == Answer::Failed {
            let told: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
            let (message, trace) = (told["message"].as_str().unwrap_or_default(), told["traceback"].as_str().unwrap_or_default());
            tracing::info!(session = self.id, op = ?op, exception = told["exception"].as_str(), "{message}\n{trace}");
        }
        if self.shared.tracer.is_some() {
            self.trace(op, payload, &reply.payload);
        }
        Ok(reply)
    }

    fn trace(&self, op: Op, payload: &[u8], answer: &[u8]) {
        if let Some(tracer) = &self.shared.tracer {
            let name = format!("{op:?}").to_lowercase();
            tracer.event(&self.id, &name, &[("data", &traced(payload)), ("reply", &traced(answer))]);
        }
    }

    /// Ends it: the instance is closed when no call runs any more.
    pub(crate) fn end(&self, why: &str) {
        self.shared.sessions.remove(self);
        self.closing.store(true, Ordering::Relaxed);
        self.poke.notify_one();
        if let Ok(mut held) = self.session.try_lock() {
            *held = None;
        }
        tracing::debug!(session = self.id, why, "closed");
    }

    /// What it printed.
    pub(crate) fn printed(&self, stream: u8, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let stream = if stream == 2 { "stderr" } else { "stdout" };
        tracing::info!(target: "envharness::output", session = self.id, stream, text = %text);
        if let Some(tracer) = &self.shared.tracer {
            tracer.event(&self.id, "output", &[("stream", quoted(stream).as_bytes()), ("text", quoted(&text).as_bytes())]);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.metrics.closed.inc();
        if let Some(tracer) = &self.shared.tracer {
            tracer.event(&self.id, "close", &[]);
            tracer.end(&self.id);
        }
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<String, Arc<Live>>>,
    by_number: Mutex<HashMap<(u32, u32), Weak<Live>>>,
}

impl Sessions {
    fn add(&self, live: &Arc<Live>) {
        locked(&self.by_id).insert(live.id.clone(), live.clone());
        locked(&self.by_number).insert((live.served.generation, live.number), Arc::downgrade(live));
    }

    fn remove(&self, live: &Live) {
        locked(&self.by_id).remove(&live.id);
        locked(&self.by_number).remove(&(live.served.generation, live.number));
    }

    /// The session of an id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Live>> {
        locked(&self.by_id).get(id).cloned()
    }

    /// The session that its worker knows by a number.
    pub(crate) fn by_number(&self, generation: u32, number: u32) -> Option<Arc<Live>> {
        locked(&self.by_number).get(&(generation, number)).and_then(Weak::upgrade)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        locked(&self.by_id).values().cloned().collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        locked(&self.by_id).len()
    }

    fn of_client(&self, client: IpAddr) -> usize {
        locked(&self.by_id).values().filter(|live| live.client == client).count()
    }
}

/// A random UUID (RFC 9562, version 4).
pub(crate) fn uuid() -> String {
    let mut bytes = [0_u8; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // No randomness is no reason to be without an id; it must only not be another's.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes = (now.as_nanos() ^ (u128::from(std::process::id()) << 96)).to_le_bytes();
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
