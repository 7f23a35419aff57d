//! Listening, the shared state, the sweep, and the end.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use envharness_worker::{Host, Stats};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Notify, Semaphore};

use crate::config::Config;
use crate::live::Sessions;
use crate::metrics::Metrics;
use crate::proxy::Upstream;
use crate::served::Served;
use crate::socket::{Listener, Listening, Place, Stream, here, listen, listen_at};
use crate::trace::Tracer;
use crate::trunk::seat::Seats;
use crate::ws::Pulse;

/// Calls over HTTP that have an instance of their own at once.
const MOST_PASSING: usize = 64;
/// Bytes that a connection from this process holds in either direction.
const MEMORY_BUFFER: usize = 1 << 20;
/// Descriptors that are kept for what is not a client's connection.
const SPARE_DESCRIPTORS: u64 = 512;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// Anyone on the network could drive it.
    #[error("{address} can be reached from other machines, and there is no token")]
    Open {
        /// Which.
        address: String,
    },
    /// The folder of traces cannot be made.
    #[error("cannot make the folder of traces {folder}: {source}")]
    Trace {
        /// Which.
        folder: String,
        /// Why.
        source: std::io::Error,
    },
}

impl ServerError {
    /// What may help.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                Some("another program has the port; name another by --port, or 0 for any that is free")
            }
            Self::Open { .. } => Some("give a token by --token-file or ENVHARNESS_TOKEN, or say --insecure if the network is trusted"),
            _ => None,
        }
    }
}

/// What every request and every session works with.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) sessions: Sessions,
    pub(crate) seats: Seats,
    pub(crate) pulses: Pulses,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) passing: Semaphore,
    served: RwLock<Option<Arc<Served>>>,
    began: Instant,
    draining: AtomicBool,
    drained: AtomicBool,
    generation: AtomicU32,
    stop: Notify,
}

impl Shared {
    /// What is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        let held = self.served.read().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some(served) => served.clone(),
            // Only an application with routes of its own has none, and its requests are passed on before this is asked.
            None => unreachable!("a request reached the routes of a server that only passes on"),
        }
    }

    /// Milliseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    /// Milliseconds from the start to a moment.
    pub(crate) fn at(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the server is about to end.
    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether even episodes have had their time.
    pub(crate) fn drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }
}

/// The sockets, for the sweep.
#[derive(Debug, Default)]
pub(crate) struct Pulses(Mutex<Vec<Weak<Pulse>>>);

impl Pulses {
    pub(crate) fn add(&self, pulse: &Arc<Pulse>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(pulse));
    }

    fn all(&self) -> Vec<Arc<Pulse>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|pulse| pulse.strong_count() > 0);
        held.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A server that listens and is about to serve.
#[derive(Debug)]
pub struct Server {
    listening: Listening,
    place: Place,
    config: Config,
}

/// A running server. Clones are of the same.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    shared: Arc<Shared>,
    place: Place,
}

impl Server {
    /// Takes the address, so that a port that is in use is known before anything is loaded.
    ///
    /// # Errors
    /// [`ServerError::Listen`]; [`ServerError::Open`] off loopback without a token, unless `insecure`.
    pub fn bind(mut config: Config, insecure: bool) -> Result<Self, ServerError> {
        let mut place = Place::of(&config.host, config.port);
        let name = place.to_string();
        let failed = |source| ServerError::Listen { address: name.clone(), source };
        let listening = match &mut place {
            Place::Memory => Listening::Memory,
            Place::Unix(path) => {
                *path = std::path::absolute(&*path).map_err(failed)?;
                listen_at(path).map_err(failed)?
            }
            Place::Net(host, port) => {
                let address = std::net::ToSocketAddrs::to_socket_addrs(&(host.trim_matches(['[', ']']), *port)).map_err(failed)?.next();
                let address = address.ok_or_else(|| failed(std::io::Error::from(std::io::ErrorKind::AddrNotAvailable)))?;
                if !address.ip().is_loopback() && config.doors.token.is_none() && !insecure {
                    return Err(ServerError::Open { address: name });
                }
                let listening = listen(address).map_err(failed)?;
                if let Listening::Tcp(listener) = &listening {
                    let bound = listener.local_addr().map_err(failed)?;
                    (*host, *port) = (bound.ip().to_string(), bound.port());
                    config.doors.bound = (!bound.ip().is_unspecified()).then_some(bound.ip());
                }
                if config.doors.bound.is_none() && config.doors.token.is_none() {
                    tracing::warn!("everyone who reaches {name} can use this server");
                }
                listening
            }
        };
        if !matches!(place, Place::Net(..)) {
            config.doors.bound = Some(here().ip());
        }
        Ok(Self { listening, place, config })
    }

    /// The same address with other settings, for what is known only when the target is loaded.
    #[must_use]
    pub fn with_config(self, mut config: Config) -> Self {
        config.doors.bound = self.config.doors.bound;
        Self { config, ..self }
    }

    /// Begins to serve, on the runtime of the caller.
    ///
    /// # Errors
    /// [`ServerError::Listen`], [`ServerError::Trace`].
    pub fn start(self, served: Option<Served>, upstream: Option<Upstream>, stats: &Stats) -> Result<ServerHandle, ServerError> {
        let Self { listening, place, config } = self;
        let failed = |source| ServerError::Listen { address: place.to_string(), source };
        let listener = Listener::new(listening, &place).map_err(failed)?;
        let tracer = config
            .trace
            .as_deref()
            .map(|folder| Tracer::start(folder).map_err(|source| ServerError::Trace { folder: folder.display().to_string(), source }));
        let shared = Arc::new(Shared {
            metrics: Metrics::new(stats),
            sessions: Sessions::default(),
            seats: Seats::default(),
            pulses: Pulses::default(),
            tracer: tracer.transpose()?,
            upstream,
            passing: Semaphore::new(MOST_PASSING),
            served: RwLock::new(served.map(Arc::new)),
            began: Instant::now(),
            draining: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            stop: Notify::new(),
            config,
        });
        tokio::spawn(accept(shared.clone(), listener));
        tokio::spawn(sweep(Arc::downgrade(&shared)));
        Ok(ServerHandle { shared, place })
    }
}

/// How connections are spoken to.
fn http(shared: &Shared) -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.head_timeout)
        .max_buf_size(32 * 1024)
        .max_headers(100)
        .half_close(false);
    builder
}

async fn accept(shared: Arc<Shared>, listener: Listener) {
    let builder = http(&shared);
    let most = i64::try_from(raise_descriptors().saturating_sub(SPARE_DESCRIPTORS)).unwrap_or(i64::MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stop.notified() => return,
        };
        let (stream, peer) = match accepted {
            Ok(pair) => pair,
            Err(error) => {
                // Out of descriptors, most likely: others will close.
                tracing::warn!("a connection could not be taken: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        if shared.metrics.connections.get() >= most {
            tracing::warn!("{most} connections are open; no more are taken");
            continue;
        }
        tokio::spawn(carry(shared.clone(), builder.clone(), stream, client_ip(peer)));
    }
}

/// Speaks to one connection until its end, or until it is a WebSocket.
async fn carry(shared: Arc<Shared>, builder: hyper::server::conn::http1::Builder, stream: Stream, ip: IpAddr) {
    let held = Connection::new(&shared);
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, std::convert::Infallible>(crate::http::answer(shared, ip, request).await) }
    });
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::trace!(client = %ip, "a connection ended: {error}");
    }
    drop(held);
}

/// A v4 client of a v6 socket is that v4 client.
fn client_ip(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// Counts a connection while it is open.
#[derive(Debug)]
pub(crate) struct Connection(Arc<Shared>);

impl Connection {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.metrics.connections.inc();
        Self(shared.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}

/// Raises the limit of open files as far as it goes, and gives it.
fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, wanted);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Pings silent sockets, lets go of dead ones, and ends sessions that nobody holds any more.
async fn sweep(shared: Weak<Shared>) {
    let mut pause = Duration::from_secs(1);
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade() else { return };
        let config = &shared.config;
        let shortest = [Some(config.ping_interval), Some(config.ping_timeout), config.session_timeout, config.idle_timeout];
        pause = shortest
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Duration::from_secs(4))
            .div_f64(4.0)
            .clamp(Duration::from_millis(50), Duration::from_secs(2));
        let now = shared.now();
        for pulse in shared.pulses.all() {
            let since = |at: u64| Duration::from_millis(now.saturating_sub(at));
            let silent = since(pulse.heard.load(Ordering::Relaxed));
            if silent > config.ping_interval + config.ping_timeout {
                pulse.dead.store(true, Ordering::Relaxed);
            } else if config.idle_timeout.is_some_and(|limit| since(pulse.spoke.load(Ordering::Relaxed)) > limit) {
                pulse.idle.store(true, Ordering::Relaxed);
            } else if silent > config.ping_interval {
                pulse.ping.store(true, Ordering::Relaxed);
            } else {
                continue;
            }
            pulse.poke.notify_one();
        }
        if let Some(limit) = config.session_timeout {
            for live in shared.sessions.all() {
                if !live.attached.load(Ordering::Relaxed) && !live.is_busy() && live.idle() > limit {
                    live.end("nobody used it");
                }
            }
        }
    }
}

impl ServerHandle {
    /// Where it listens.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its URL; `unix:PATH` where it has none.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Net(host, port) => {
                let ip = host.parse::<IpAddr>().unwrap_or(here().ip());
                let shown = if ip.is_unspecified() { here().ip() } else { ip };
                format!("http://{}", SocketAddr::new(shown, *port))
            }
            other => other.to_string(),
        }
    }

    /// A connection from this process. Must be called on the server's runtime.
    pub fn connect(&self) -> tokio::io::DuplexStream {
        let (near, far) = tokio::io::duplex(MEMORY_BUFFER);
        tokio::spawn(carry(self.shared.clone(), http(&self.shared), Stream::Memory(far), here().ip()));
        near
    }

    /// Open sessions.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.len()
    }

    /// Sessions in use, and how many there may be.
    pub fn capacity(&self) -> (usize, usize) {
        match &*self.shared.served.read().unwrap_or_else(PoisonError::into_inner) {
            Some(served) => served.host.capacity(),
            None => (0, 0),
        }
    }

    /// The next generation's number, for a target that is loaded anew.
    pub fn next_generation(&self) -> u32 {
        self.shared.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes what a session printed; the front of an output sink.
    pub fn printed(&self, generation: u32, number: u32, stream: u8, text: &[u8]) {
        match self.shared.sessions.by_number(generation, number) {
            Some(live) => live.printed(stream, text),
            None => tracing::info!(target: "envharness::output", stream, text = %String::from_utf8_lossy(text)),
        }
    }

    /// Serves something newer from now on. Sessions of the old go on until they end; then its workers do.
    pub fn replace(&self, served: Served) {
        let old = self.shared.served.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::new(served));
        let Some(old) = old else { return };
        tokio::spawn(async move {
            while Arc::strong_count(&old) > 1 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            if let Host::Pool(pool) = &old.host {
                pool.end().await;
            }
        });
    }

    /// Whether the application that is passed on to has ended by itself.
    pub fn application_has_ended(&self) -> bool {
        self.shared.upstream.as_ref().is_some_and(Upstream::has_ended)
    }

    /// Ends it: no new sessions; those between episodes are told at once, the others when their episode ends or `hurry`
    /// completes or the drain's time is over; then the workers end.
    pub async fn drain(&self, hurry: impl Future<Output = ()>) {
        let shared = &self.shared;
        shared.draining.store(true, Ordering::Relaxed);
        let sessions = shared.sessions.len();
        if sessions > 0 {
            tracing::info!("draining {sessions} sessions");
        }
        let emptied = async {
            while shared.sessions.len() > 0 {
                for live in shared.sessions.all() {
                    if !live.attached.load(Ordering::Relaxed) {
                        live.end("the server ends");
                    }
                }
                shared.pulses.all().iter().for_each(|pulse| pulse.poke.notify_one());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = emptied => {}
            () = tokio::time::sleep(shared.config.drain_timeout) => {}
            () = hurry => {}
        }
        shared.drained.store(true, Ordering::Relaxed);
        let told = async {
            while shared.sessions.len() > 0 {
                shared.pulses.all().iter().for_each(|pulse| pulse.poke.notify_one());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
        shared.stop.notify_one();
        let served = shared.served.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(served) = served
            && let Host::Pool(pool) = &served.host
        {
            pool.end().await;
        }
        if let Some(upstream) = &shared.upstream {
            upstream.end().await;
        }
    }
}
