//! What a server is told.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::doors::Doors;

/// What clients may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunMode {
    /// Everything.
    #[default]
    Simulation,
    /// Tools and state of the world only: reset, step and state are not served, on no transport.
    Production,
}

/// The settings of a front.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens.
    pub host: String,
    /// The port; 0 for any that is free.
    pub port: u16,
    /// Who comes in.
    pub doors: Doors,
    /// The largest message in either direction, in bytes.
    pub most_message: usize,
    /// After how long a session that no socket holds ends.
    pub session_timeout: Option<Duration>,
    /// How long a session waits for its client to come back after its socket broke; only clients of `envharness.v1` do.
    pub resume_timeout: Duration,
    /// After how long a socket without a message is closed, however alive.
    pub idle_timeout: Option<Duration>,
    /// How long a silent socket waits for a ping.
    pub ping_interval: Duration,
    /// How long a pong may take.
    pub ping_timeout: Duration,
    /// How long episodes may go on when the server is asked to end.
    pub drain_timeout: Duration,
    /// How long a request's head may take.
    pub head_timeout: Duration,
    /// What clients may do.
    pub mode: RunMode,
    /// Whether actions are judged by the contract before their environment sees them, and NaN is an error.
    pub strict: bool,
    /// Where traces go.
    pub trace: Option<PathBuf>,
    /// Sessions that one address may have.
    pub sessions_per_client: Option<usize>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            doors: Doors::default(),
            most_message: 100 * 1024 * 1024,
            session_timeout: Some(Duration::from_secs(3600)),
            resume_timeout: Duration::from_secs(30),
            idle_timeout: None,
            ping_interval: Duration::from_secs(15),
            ping_timeout: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(10),
            mode: RunMode::Simulation,
            strict: false,
            trace: None,
            sessions_per_client: None,
            trusted_proxies: Vec::new(),
        }
    }
}
