//! How a target is to be served.

use std::path::PathBuf;
use std::time::Duration;

use envharness_server::{Config, RunMode, Token};
use envharness_worker::Mode;

/// Everything that can be asked for; `Default` asks for nothing.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// The target; empty for the current folder.
    pub target: String,
    /// The folder that modules and folders are looked up in; else the current one.
    pub base: Option<PathBuf>,
    /// Where to listen: a name, an address, `unix:PATH`, or `memory:` for this process alone; else `HOST`, else loopback.
    pub host: Option<String>,
    /// The port; else `PORT`, else the package's, else 8000.
    pub port: Option<u16>,
    /// Worker processes; else one a core.
    pub workers: Option<usize>,
    /// Sessions at once; else `MAX_CONCURRENT_ENVS`, else what the author allows.
    pub max_sessions: Option<usize>,
    /// Sessions that one address may have.
    pub sessions_per_client: Option<usize>,
    /// After how long a session that no socket holds ends.
    pub session_timeout: Option<Duration>,
    /// How long a session waits for its client to come back after its connection broke; zero for not at all.
    pub resume_timeout: Option<Duration>,
    /// After how long a silent client's socket is closed, however alive.
    pub idle_timeout: Option<Duration>,
    /// The longest reset or step; zero for none.
    pub step_timeout: Option<Duration>,
    /// The longest load.
    pub start_timeout: Option<Duration>,
    /// How long episodes may go on when the server is asked to end.
    pub drain_timeout: Option<Duration>,
    /// How sessions run.
    pub concurrency: Option<Mode>,
    /// The token of clients.
    pub token: Option<Token>,
    /// Whether to serve other machines without a token.
    pub insecure: bool,
    /// Further host names that may be asked for.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may ask.
    pub allowed_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<std::net::IpAddr>,
    /// The largest message in bytes.
    pub max_message: Option<usize>,
    /// What clients may do; else `OPENENV_MODE`, else what the application says.
    pub mode: Option<RunMode>,
    /// Whether the contract judges, and NaN is an error.
    pub strict: bool,
    /// Where traces go.
    pub trace: Option<PathBuf>,
    /// Whether the real `openenv` is used.
    pub reference: bool,
    /// Further packages.
    pub with: Vec<String>,
    /// The spec of the environment.
    pub spec: Option<PathBuf>,
    /// Whether changed sources are loaded anew.
    pub reload: bool,
    /// The threads to run on, where they are not to be its own.
    pub runtime: Option<tokio::runtime::Handle>,
}

/// The longest reset or step where nobody says.
const STEP_TAKES: Duration = Duration::from_secs(600);
/// The longest load where nobody says.
const START_TAKES: Duration = Duration::from_secs(120);

impl ServeOptions {
    /// The deadline of calls.
    pub(crate) fn step_limit(&self) -> Option<Duration> {
        Some(self.step_timeout.unwrap_or(STEP_TAKES)).filter(|limit| !limit.is_zero())
    }

    /// The deadline of a load.
    pub(crate) fn start_limit(&self) -> Duration {
        self.start_timeout.unwrap_or(START_TAKES)
    }

    /// The front's settings. `mode` and `session_timeout` are what the application says.
    pub(crate) fn config(&self, host: String, port: u16, mode: RunMode) -> Config {
        let mut config = Config { host, port, mode, strict: self.strict, trace: self.trace.clone(), ..Config::default() };
        config.doors.token.clone_from(&self.token);
        config.doors.allowed_hosts.clone_from(&self.allowed_hosts);
        config.doors.allowed_origins.clone_from(&self.allowed_origins);
        config.trusted_proxies.clone_from(&self.trusted_proxies);
        config.sessions_per_client = self.sessions_per_client;
        config.idle_timeout = self.idle_timeout;
        config.resume_timeout = self.resume_timeout.unwrap_or(config.resume_timeout);
        config.most_message = self.max_message.unwrap_or(config.most_message);
        config.drain_timeout = self.drain_timeout.unwrap_or(config.drain_timeout);
        config.session_timeout = self.session_timeout.or(config.session_timeout).filter(|limit| !limit.is_zero());
        config
    }
}
