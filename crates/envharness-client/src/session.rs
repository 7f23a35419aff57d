//! Sessions of either protocol, and how they are opened.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::v1::{Encoding, Op};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::address::Address;
use crate::call::{Ask, Sink};
use crate::error::ClientError;
use crate::handshake;
use crate::openenv::OpenEnvSession;
use crate::runtime;
use crate::settings::{Settings, Speech};
use crate::stream::{self, Dialer};
use crate::trunk::{Seat, Trunk};

/// A session.
#[derive(Debug)]
pub enum Session {
    /// On OpenEnv's protocol.
    OpenEnv(OpenEnvSession),
    /// On `envharness.v1`.
    V1(Seat),
}

impl Session {
    /// Sends a request; the ticket is for [`Session::cancel`].
    pub fn ask(&self, ask: &Ask, sink: Sink) -> u64 {
        match self {
            Self::OpenEnv(session) => session.ask(ask, sink),
            Self::V1(seat) => seat.ask(ask, sink),
        }
    }

    /// The caller of a ticket does not wait any more; the session lives on.
    pub fn cancel(&self, ticket: u64) {
        match self {
            Self::OpenEnv(session) => session.cancel(ticket),
            Self::V1(seat) => seat.cancel(ticket),
        }
    }

    /// Why it cannot be used any more.
    pub fn fate(&self) -> Option<ClientError> {
        match self {
            Self::OpenEnv(session) => session.fate(),
            Self::V1(seat) => seat.fate(),
        }
    }

    /// Ends it. The sink learns when the server has heard.
    pub fn close(&self, sink: Sink, timeout: Duration) {
        match self {
            Self::OpenEnv(session) => session.close(sink),
            Self::V1(seat) => seat.close(sink, timeout),
        }
    }

    /// How often its connection was made again.
    pub fn reconnects(&self) -> u64 {
        match self {
            Self::OpenEnv(_) => 0,
            Self::V1(seat) => seat.trunk().reconnects(),
        }
    }
}

/// What a session is opened with.
#[derive(Debug, Clone, Default)]
pub struct Opening {
    /// What is asked of the instance: a JSON object.
    pub options: Value,
    /// The longest the opening may take, a new connection included.
    pub timeout: Duration,
    /// How long it may wait for a free session.
    pub room: Option<Duration>,
    /// The query of the socket, such as `session_id=…`; only for OpenEnv's protocol.
    pub query: Option<String>,
}

type Key = (Address, Settings);

/// What is known of a server.
#[derive(Debug, Default)]
struct Known {
    trunk: Weak<Trunk>,
    is_openenv: bool,
    /// The last connection that could not be made, and when that was.
    failed: Option<(Instant, ClientError)>,
}

static KNOWN: LazyLock<Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Known>>>>> = LazyLock::new(Mutex::default);

fn known(key: &Key) -> Arc<tokio::sync::Mutex<Known>> {
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() > 256 {
        all.retain(|_, known| Arc::strong_count(known) > 1 || known.try_lock().is_ok_and(|known| known.trunk.strong_count() > 0));
    }
    all.entry(key.clone()).or_default().clone()
}

type Held = (
    MutexGuard<'static, Option<(u32, Runtime)>>,
    MutexGuard<'static, HashMap<Key, Arc<tokio::sync::Mutex<Known>>>>,
    MutexGuard<'static, HashMap<u64, Dialer>>,
);

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Keeps other threads out of what a forked child needs, so that none of them is in the middle of it at the fork.
pub fn before_fork() {
    let held = (runtime::held(), KNOWN.lock().unwrap_or_else(PoisonError::into_inner), stream::dialers());
    HELD.set(Some(held));
}

/// The fork is done, in either process.
pub fn after_fork() {
    HELD.take();
}

/// Forgets the connections of this process: after a fork they are the parent's.
pub fn forget() {
    let all = std::mem::take(&mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner));
    // Their drops would write to the parent's sockets.
    std::mem::forget(all);
}

/// Says goodbye on every connection, so that the servers need not wait for this process to come back.
pub fn close_all() {
    let all: Vec<_> = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
    let trunks: Vec<_> = all.iter().filter_map(|(_, known)| known.try_lock().ok()?.trunk.upgrade()).collect();
    if trunks.is_empty() {
        return;
    }
    for trunk in &trunks {
        trunk.close();
    }
    let _ = runtime::block_on(async {
        let gone = async {
            while trunks.iter().any(|trunk| !trunk.is_closed()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
    });
}

/// Opens a session. Sessions with equal addresses and settings share a connection where the server speaks `envharness.v1`.
///
/// # Errors
/// Any [`ClientError`].
pub async fn open(address: Address, settings: Settings, opening: Opening) -> Result<Session, ClientError> {
    let wants = opening.options.as_object().is_some_and(|options| !options.is_empty());
    if settings.speech != Speech::OpenEnv && opening.query.is_none() {
        let key = (address.clone(), settings.clone());
        let known = known(&key);
        let began = Instant::now();
        let mut held = known.lock().await;
        if let Some((at, error)) = &held.failed
            && *at >= began
        {
            // Those that waited for the same connection do not try one after the other.
            return Err(error.clone());
        }
        if !held.is_openenv {
            let trunk = match held.trunk.upgrade().filter(|trunk| trunk.is_open()) {
                Some(trunk) => trunk,
                None => {
                    let opened = handshake::open(&address, &settings, "/ws").await;
                    let (stream, v1) = opened.inspect_err(|error| held.failed = Some((Instant::now(), error.clone())))?;
                    if !v1 {
                        held.is_openenv = true;
                        drop(held);
                        refuse_options(wants)?;
                        return Ok(Session::OpenEnv(OpenEnvSession::start(stream, &address, &settings)));
                    }
                    let trunk = Trunk::start(stream, &address, &settings);
                    held.trunk = Arc::downgrade(&trunk);
                    trunk
                }
            };
            drop(held);
            return trunk.open(&opening.options, opening.timeout, opening.room).await.map(Session::V1);
        }
    }
    refuse_options(wants)?;
    let path = opening.query.map_or_else(|| "/ws".to_owned(), |query| format!("/ws?{query}"));
    let settings = Settings { speech: Speech::OpenEnv, ..settings };
    let (stream, _) = handshake::open(&address, &settings, &path).await?;
    Ok(Session::OpenEnv(OpenEnvSession::start(stream, &address, &settings)))
}

fn refuse_options(wants: bool) -> Result<(), ClientError> {
    if wants {
        return Err(ClientError::NotAvailable("a server of OpenEnv's protocol takes no options for a new session".to_owned()));
    }
    Ok(())
}

/// The contract of a server: of ours the whole, of others what `/schema` and `/metadata` tell.
///
/// # Errors
/// Any [`ClientError`].
pub async fn contract(address: Address, settings: Settings, timeout: Duration) -> Result<Bytes, ClientError> {
    let reading = async {
        if settings.speech != Speech::OpenEnv
            && let Some(trunk) = trunk_of(&address, &settings).await
        {
            return trunk.contract(timeout).await;
        }
        let (status, body) = handshake::fetch(&address, &settings, "/contract", None).await?;
        if status == 200 {
            return Ok(body);
        }
        let (status, body) = handshake::fetch(&address, &settings, "/schema", None).await?;
        let schema: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status != 200 || !schema.is_object() {
            return Err(ClientError::Protocol { reason: format!("/schema answered {status}") });
        }
        let (_, metadata) = handshake::fetch(&address, &settings, "/metadata", None).await?;
        let metadata: Value = serde_json::from_slice(&metadata).unwrap_or_default();
        let told = json!({"name": metadata["name"], "version": metadata["version"], "action": schema["action"],
            "observation": schema["observation"], "state": schema["state"], "reset": null});
        Ok(Bytes::from(told.to_string()))
    };
    limited(reading, timeout).await
}

/// The open connection to a server, where there is one.
async fn trunk_of(address: &Address, settings: &Settings) -> Option<Arc<Trunk>> {
    let known = known(&(address.clone(), settings.clone()));
    let held = known.lock().await;
    held.trunk.upgrade().filter(|trunk| trunk.is_open())
}

/// Sessions in use and free on a server, as JSON; `null` where it does not tell.
///
/// # Errors
/// Any [`ClientError`].
pub async fn capacity(address: Address, settings: Settings, timeout: Duration) -> Result<Bytes, ClientError> {
    let reading = async {
        if settings.speech != Speech::OpenEnv
            && let Some(trunk) = trunk_of(&address, &settings).await
        {
            let info: Value = serde_json::from_slice(&trunk.info(timeout).await?).unwrap_or_default();
            return Ok(Bytes::from(info["sessions"].to_string()));
        }
        let (status, body) = handshake::fetch(&address, &settings, "/ready", None).await?;
        let told: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status == 404 || !told["max_sessions"].is_u64() {
            return Ok(Bytes::from_static(b"null"));
        }
        let free = if told["status"] == "ready" { told["free_sessions"].clone() } else { Value::from(0) };
        Ok(Bytes::from(json!({"active": told["active_sessions"], "max": told["max_sessions"], "free": free}).to_string()))
    };
    limited(reading, timeout).await
}

/// A POST of JSON, or a GET: the status and the body.
///
/// # Errors
/// Any [`ClientError`].
pub async fn fetch(
    address: Address,
    settings: Settings,
    path: String,
    body: Option<Bytes>,
    timeout: Duration,
) -> Result<(u16, Bytes), ClientError> {
    limited(handshake::fetch(&address, &settings, &path, body), timeout).await
}

async fn limited<T>(work: impl Future<Output = Result<T, ClientError>>, timeout: Duration) -> Result<T, ClientError> {
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(ClientError::TimedOut { seconds: timeout.as_secs_f64() }),
    }
}

/// The thread of the sockets, for a server of this process whose clients are here: nothing passes from thread to thread.
///
/// # Errors
/// No thread can be started.
pub fn threads() -> std::io::Result<tokio::runtime::Handle> {
    runtime::handle()
}

/// Starts work on the thread of the sockets; what comes of it goes to `done`.
pub fn start<T: Send + 'static>(
    work: impl Future<Output = Result<T, ClientError>> + Send + 'static,
    done: impl FnOnce(Result<T, ClientError>) + Send + 'static,
) {
    match runtime::handle() {
        Ok(handle) => drop(handle.spawn(async move { done(work.await) })),
        Err(error) => done(Err(ClientError::NotAvailable(format!("no thread can be started: {error}")))),
    }
}

/// Whether an operation can be asked by many sessions in one frame.
pub(crate) fn is_vector(op: Op) -> bool {
    matches!(op, Op::Step | Op::Reset)
}

/// The encoding of a session's protocol that is nearest to what is wanted.
pub fn encoding_for(session: &Session, wanted: Encoding) -> Encoding {
    match session {
        Session::OpenEnv(_) => Encoding::Json,
        Session::V1(_) => wanted,
    }
}
