//! A running service with its runtime, for callers without one.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use envharness_rig::{Reporter, Rig};
use envharness_server::{Place, RunMode, Server, ServerHandle, Upstream};
use envharness_worker::{PoolError, Stats};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::error::ServeError;
use crate::options::ServeOptions;
use crate::prepare::{Printed, What, prepare};
use crate::reload;

/// The threads of a server.
#[derive(Debug)]
enum Threads {
    Own(Runtime),
    Shared(Handle),
}

impl Threads {
    fn handle(&self) -> &Handle {
        match self {
            Self::Own(runtime) => runtime.handle(),
            Self::Shared(handle) => handle,
        }
    }
}

/// A server, its workers and the threads below them.
#[derive(Debug)]
pub struct Service {
    runtime: Mutex<Option<Threads>>,
    handle: ServerHandle,
    hurry: Arc<Notify>,
    notes: Vec<String>,
    pid: u32,
}

impl Service {
    /// Takes the address, rigs, loads, and serves.
    ///
    /// # Errors
    /// Any [`ServeError`]; nothing is left running.
    pub fn start(options: &ServeOptions, rig: &Arc<Rig>, reporter: &dyn Reporter) -> Result<Self, ServeError> {
        let variable = |name: &str| rig.settings.variable(name).map(str::trim).filter(|value| !value.is_empty());
        let number = |name: &str| -> Result<Option<usize>, ServeError> {
            let parse =
                |text: &str| text.parse().map_err(|_| ServeError::Target { reason: format!("{name}={text} is not a number"), hint: None });
            variable(name).map(parse).transpose()
        };
        let mut options = options.clone();
        options.max_sessions = options.max_sessions.or(number("MAX_CONCURRENT_ENVS")?);
        options.workers = options.workers.or(number("WEB_CONCURRENCY")?);
        let host = options.host.clone().or_else(|| variable("HOST").map(ToOwned::to_owned)).unwrap_or_else(|| "127.0.0.1".to_owned());
        let port = match (options.port, number("PORT")?) {
            (Some(port), _) => Some(port),
            (None, Some(port)) => {
                Some(u16::try_from(port).map_err(|_| ServeError::Target { reason: format!("PORT={port} is no port"), hint: None })?)
            }
            (None, None) => None,
        };
        let port = if matches!(Place::of(&host, 0), Place::Net(..)) { port } else { Some(0) };
        if variable("ENABLE_WEB_INTERFACE").is_some_and(|value| matches!(value.to_lowercase().as_str(), "true" | "1" | "yes")) {
            tracing::warn!("ENABLE_WEB_INTERFACE is set, and this server has no web interface yet; /docs shows its routes");
        }
        let mode = match (options.mode, variable("OPENENV_MODE").map(str::to_lowercase).as_deref()) {
            (Some(mode), _) => Some(mode),
            (None, Some("production")) => Some(RunMode::Production),
            (None, Some("simulation")) => Some(RunMode::Simulation),
            (None, Some(other)) => {
                return Err(ServeError::Target {
                    reason: format!("OPENENV_MODE={other} is neither simulation nor production"),
                    hint: None,
                });
            }
            (None, None) => None,
        };
        // The address first, where it is known: a port in use is told at once, not after an install.
        let early =
            port.map(|port| Server::bind(options.config(host.clone(), port, mode.unwrap_or_default()), options.insecure)).transpose()?;
        let prepared = prepare(&options, rig, reporter)?;
        let runtime = match options.runtime.take() {
            Some(handle) => Threads::Shared(handle),
            None => Threads::Own(own_threads().map_err(ServeError::Threads)?),
        };
        let stats = Stats::default();
        let slot: Arc<OnceLock<ServerHandle>> = Arc::default();
        let front = slot.clone();
        let printed: Printed = Arc::new(move |generation, session, stream, text: &[u8]| {
            if let Some(handle) = front.get() {
                handle.printed(generation, session, stream, text);
            }
        });
        let handle = runtime.handle().block_on(async {
            let hosted = match prepared.host(&options, stats.clone(), 0, &printed).await {
                Ok(served) => Ok(served),
                // An application with routes of its own is run as it is.
                Err(ServeError::Pool(error)) => match *error {
                    PoolError::Application { target } => Err(target),
                    other => return Err(other.into()),
                },
                Err(error) => return Err(error),
            };
            let port = port.or(prepared.port).unwrap_or(8000);
            let (served, upstream) = match hosted {
                Ok(served) => (Some(served), None),
                Err(app) => (None, Some(application(&prepared.what, &app, &options).await?)),
            };
            let told = served.as_ref().and_then(|served| match &served.host {
                envharness_worker::Host::Pool(pool) => Some(pool.loaded().clone()),
                envharness_worker::Host::Native(_) => None,
            });
            let said =
                told.as_ref().and_then(|loaded| loaded.mode.as_deref()).filter(|mode| *mode == "production").map(|_| RunMode::Production);
            let mode = mode.or(said).unwrap_or_default();
            if options.session_timeout.is_none() {
                options.session_timeout = told.and_then(|loaded| loaded.session_timeout).and_then(|s| Duration::try_from_secs_f64(s).ok());
            }
            let server = match early {
                Some(server) => server.with_config(options.config(host.clone(), port, mode)),
                None => Server::bind(options.config(host.clone(), port, mode), options.insecure)?,
            };
            let handle = server.start(served, upstream, &stats)?;
            let _ = slot.set(handle.clone());
            if let (true, Some(folder)) = (options.reload, prepared.watched.clone()) {
                tokio::spawn(reload::watch(handle.clone(), options.clone(), rig.clone(), folder, stats.clone(), printed.clone()));
            }
            Ok(handle)
        })?;
        Ok(Self { runtime: Mutex::new(Some(runtime)), handle, hurry: Arc::default(), notes: prepared.notes, pid: std::process::id() })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.handle.url()
    }

    /// A connection from this process; none when it has ended.
    pub fn connect(&self) -> Option<tokio::io::DuplexStream> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let _inside = runtime.as_ref()?.handle().enter();
        Some(self.handle.connect())
    }

    /// What was decided on the way, and why; for a person.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Sessions in use, and how many there may be.
    pub fn capacity(&self) -> (usize, usize) {
        self.handle.capacity()
    }

    /// Has a drain that runs end at once.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Whether the application that is passed on to has ended by itself.
    pub fn has_failed(&self) -> bool {
        self.handle.application_has_ended()
    }

    /// Ends it: no new sessions, episodes end or are told, workers go. A second call does nothing; nor does one in a forked
    /// child, whose server this is not.
    pub fn stop(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runtime) = runtime else { return };
        if self.pid != std::process::id() {
            // Its threads are the parent's.
            std::mem::forget(runtime);
            return;
        }
        let hurry = self.hurry.clone();
        runtime.handle().block_on(self.handle.drain(async move { hurry.notified().await }));
        if let Threads::Own(runtime) = runtime {
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.hurry();
        self.stop();
    }
}

fn own_threads() -> std::io::Result<Runtime> {
    // A second core for the front helps where there are four; on two it would only take it from the workers.
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).clamp(1, 8);
    Builder::new_multi_thread().worker_threads(threads).thread_name("envharness-front").enable_all().build()
}

async fn application(what: &What, app: &str, options: &ServeOptions) -> Result<Upstream, ServeError> {
    let (launcher, folder) = match what {
        What::Application { launcher, folder, .. } => (launcher.clone(), Some(folder.display().to_string())),
        What::Hosted { launcher, target, .. } => (launcher.clone(), target.cwd.clone()),
        What::Native(_) => return Err(ServeError::Application("a native environment has no application".to_owned())),
    };
    Upstream::start(launcher, app, folder.as_deref(), Vec::new(), options.start_limit()).await.map_err(ServeError::Application)
}
