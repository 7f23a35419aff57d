//! How a client speaks to a server.

use std::path::PathBuf;
use std::time::Duration;

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Speech {
    /// `envharness.v1` where the server knows it, else OpenEnv's.
    #[default]
    Auto,
    /// OpenEnv's, a socket for each session.
    OpenEnv,
    /// `envharness.v1` or nothing.
    V1,
}

/// Which proxy is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// None.
    #[default]
    Direct,
    /// That of a URL, by `CONNECT`.
    Url(String),
}

/// The settings of a connection. Connections with equal settings are shared by sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Further headers of the handshake.
    pub headers: Vec<(String, String)>,
    /// The token that the server asks for.
    pub token: Option<String>,
    /// How long a connection may take, its handshake included.
    pub connect_timeout: Duration,
    /// After how long of silence the server is pinged.
    pub ping_interval: Duration,
    /// After how long of silence beyond that it is taken for dead.
    pub ping_timeout: Duration,
    /// How long a broken connection is tried again while sessions wait on the server.
    pub reconnect_timeout: Duration,
    /// The largest message, in bytes.
    pub most_message: usize,
    /// The proxy.
    pub proxy: Proxy,
    /// Further certificates to trust, in PEM.
    pub tls_ca: Option<PathBuf>,
    /// The protocol.
    pub speech: Speech,
    /// The digest of the contract that the server must serve.
    pub contract: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            token: None,
            connect_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(20),
            reconnect_timeout: Duration::from_secs(60),
            most_message: 100 * 1024 * 1024,
            proxy: Proxy::Direct,
            tls_ca: None,
            speech: Speech::Auto,
            contract: None,
        }
    }
}
