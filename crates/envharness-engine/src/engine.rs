//! A connection to an engine, and how its answers are waited for.

use std::cell::RefCell;
use std::future::Future;
use std::time::{Duration, Instant};

use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::address::{Address, Kind};
use crate::error::{EngineError, of_client};

/// How long an engine may take to answer what costs it little.
pub(crate) const ANSWER: Duration = Duration::from_secs(120);
/// How often a wait looks whether its caller still wants the answer.
const LOOK: Duration = Duration::from_millis(20);
/// The version of the API that every engine since Docker 20.10 and Podman 3 speaks.
const API: ClientVersion = ClientVersion { major_version: 1, minor_version: 40 };

/// How long a call may take and who may end it.
pub trait Call {
    /// Whether the caller wants to stop.
    fn interrupted(&self) -> bool {
        false
    }

    /// The time that is left; `None` for as long as it takes.
    fn left(&self) -> Option<Duration> {
        Some(ANSWER)
    }
}

/// Waits as long as an engine may take, and never stops before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patient;

impl Call for Patient {}

/// Waits as long as it takes: for what depends on the size of files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Endless;

impl Call for Endless {
    fn left(&self) -> Option<Duration> {
        None
    }
}

/// What an engine is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Its version.
    pub version: String,
    /// Whether it runs without root, so that its root is this user.
    pub rootless: bool,
    /// Whether users of containers are mapped to others.
    pub userns: bool,
    /// Whether SELinux confines containers.
    pub selinux: bool,
    /// `cgroup1` or `cgroup2`; empty when it enforces no limits.
    pub cgroup: String,
    /// The runtimes it knows.
    pub runtimes: Vec<String>,
}

/// An engine that is spoken to.
#[derive(Debug, Clone)]
pub struct Engine {
    address: Address,
    client: Docker,
}

thread_local! {
    /// One for each thread: nothing is shared over a fork, and no thread of ours runs while nobody waits.
    static RUNTIME: RefCell<Option<(u32, Runtime)>> = const { RefCell::new(None) };
}

impl Engine {
    /// Prepares to speak to an engine; says nothing to it yet.
    ///
    /// # Errors
    /// [`EngineError::Down`] when its socket is not there.
    pub fn new(address: Address) -> Result<Self, EngineError> {
        let seconds = 24 * 3600;
        let made = match address.socket() {
            Some(socket) => Docker::connect_with_unix(&socket.to_string_lossy(), seconds, &API),
            None => Docker::connect_with_http(&address.url, seconds, API_DEFAULT_VERSION),
        };
        let client = made.map_err(|error| of_client(address.kind, &address.url, "connect", error))?;
        Ok(Self { address, client })
    }

    /// Which engine.
    pub fn kind(&self) -> Kind {
        self.address.kind
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn client(&self) -> &Docker {
        &self.client
    }

    pub(crate) fn error(&self, action: &str, error: bollard::errors::Error) -> EngineError {
        of_client(self.kind(), &self.address.url, action, error)
    }

    /// Asks what the engine is.
    ///
    /// # Errors
    /// [`EngineError`]: this is where an engine that is down or forbidden is met.
    pub fn facts(&self, call: &dyn Call) -> Result<Facts, EngineError> {
        let (version, info) = self.wait("say what it is", call, async { Ok((self.client.version().await?, self.client.info().await?)) })?;
        let options = info.security_options.unwrap_or_default();
        let has = |name: &str| options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}")));
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let driver = info.cgroup_driver.map(|driver| driver.to_string()).unwrap_or_default();
        let cgroup = match info.cgroup_version.map(|version| version.to_string()).as_deref() {
            _ if driver == "none" => String::new(),
            Some("2") => "cgroup2".into(),
            _ => "cgroup1".into(),
        };
        let version = version.version.unwrap_or_default();
        Ok(Facts { version, rootless: has("rootless"), userns: has("userns"), selinux: has("selinux"), cgroup, runtimes })
    }

    /// Waits for an answer.
    pub(crate) fn wait<T>(
        &self,
        action: &str,
        call: &dyn Call,
        answer: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        self.wait_for(action, call, async { answer.await.map_err(|error| self.error(action, error)) })
    }

    /// Waits for what has errors of its own.
    pub(crate) fn wait_for<T>(
        &self,
        action: &str,
        call: &dyn Call,
        answer: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let limit = call.left();
        let started = Instant::now();
        let mut answer = std::pin::pin!(answer);
        loop {
            if let Ok(answer) = self.run(action, async { tokio::time::timeout(LOOK, &mut answer).await })? {
                return answer;
            }
            // Outside of the runtime: whoever is asked may speak to the engine himself.
            if call.interrupted() {
                return Err(EngineError::Interrupted);
            }
            if let Some(limit) = limit.filter(|limit| started.elapsed() >= *limit) {
                return Err(EngineError::Timeout { kind: self.kind(), action: action.to_owned(), limit });
            }
        }
    }

    /// Runs a future on this thread.
    pub(crate) fn run<T>(&self, action: &str, future: impl Future<Output = T>) -> Result<T, EngineError> {
        let cut = |error: std::io::Error| EngineError::Cut { kind: self.kind(), action: action.to_owned(), reason: error.to_string() };
        block_on(future).map_err(cut)
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> std::io::Result<T> {
    // Taken out while it runs, so that a callback may wait for something itself.
    let kept = RUNTIME.with_borrow_mut(Option::take);
    let runtime = match kept {
        Some((pid, runtime)) if pid == std::process::id() => runtime,
        stale => {
            // Its descriptors are those of the process that was forked from.
            std::mem::forget(stale);
            tokio::runtime::Builder::new_current_thread().enable_all().build()?
        }
    };
    let value = runtime.block_on(future);
    RUNTIME.with_borrow_mut(|place| *place = Some((std::process::id(), runtime)));
    Ok(value)
}
