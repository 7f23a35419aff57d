//! Where a server is.

use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine as _;
use http::Uri;

use crate::error::ClientError;

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Way {
    /// A host and a port, with TLS or without.
    Net {
        /// The host, an IPv6 one without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether by TLS.
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// A server in this process, by a number of its own.
    Memory(u64),
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The way there.
    pub way: Way,
    /// What stands before `/ws`, without a slash at its end.
    pub prefix: String,
    /// The value of an `Authorization` header, from `user:password@`.
    pub basic: Option<String>,
}

impl Address {
    /// Reads `ws://HOST:PORT`, `http://…`, their TLS forms, a bare `HOST:PORT`, `unix:PATH`; a `/ws` at the end is let go.
    ///
    /// # Errors
    /// [`ClientError::Address`].
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = |reason: &str| ClientError::Address { address: shown(text), reason: reason.to_owned() };
        let text = text.trim();
        for start in ["unix://", "unix:", "ws+unix://", "http+unix://"] {
            if let Some(path) = text.strip_prefix(start) {
                if path.is_empty() {
                    return Err(bad("a path is missing"));
                }
                return Ok(Self { way: Way::Unix(PathBuf::from(path)), prefix: String::new(), basic: None });
            }
        }
        let whole = if text.contains("://") { text.to_owned() } else { format!("ws://{text}") };
        let uri: Uri = whole.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let tls = match uri.scheme_str() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            other => return Err(bad(&format!("the scheme {} is not known", other.unwrap_or("")))),
        };
        let authority = uri.authority().ok_or_else(|| bad("a host is missing"))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(bad("a host is missing"));
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().rsplit(['@', ']']).next().is_some_and(|end| end.contains(':')) => {
                return Err(bad("the port is none"));
            }
            None if tls => 443,
            None => 80,
        };
        let basic = authority.as_str().rsplit_once('@').map(|(user, _)| {
            let pair = percent_decoded(user);
            let pair = if pair.contains(':') { pair } else { format!("{pair}:") };
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        });
        let path = uri.path().trim_end_matches('/');
        let prefix = path.strip_suffix("/ws").unwrap_or(path).to_owned();
        Ok(Self { way: Way::Net { host, port, tls }, prefix, basic })
    }

    /// A server in this process.
    pub fn memory(number: u64) -> Self {
        Self { way: Way::Memory(number), prefix: String::new(), basic: None }
    }

    /// What a `Host` header says.
    pub fn authority(&self) -> String {
        match &self.way {
            Way::Net { host, port, tls } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                if *port == if *tls { 443 } else { 80 } { host } else { format!("{host}:{port}") }
            }
            _ => "localhost".to_owned(),
        }
    }

    /// Whether it is on this machine.
    pub fn is_local(&self) -> bool {
        match &self.way {
            Way::Net { host, .. } => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            _ => true,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.way {
            Way::Net { tls, .. } => write!(f, "{}://{}{}", if *tls { "wss" } else { "ws" }, self.authority(), self.prefix),
            Way::Unix(path) => write!(f, "unix:{}", path.display()),
            Way::Memory(_) => f.write_str("the server in this process"),
        }
    }
}

/// An address without the secret in it.
fn shown(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}…{}", &text[..scheme + 3], &text[at..]),
        _ => text.to_owned(),
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        match digits {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (String, String) {
        let address = Address::parse(text).unwrap();
        (address.to_string(), address.authority())
    }

    #[test]
    fn addresses() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(parse("http://127.0.0.1:8000/"), pair("ws://127.0.0.1:8000", "127.0.0.1:8000"));
        assert_eq!(parse("localhost:8000"), pair("ws://localhost:8000", "localhost:8000"));
        assert_eq!(parse("wss://a.example/b/ws"), pair("wss://a.example/b", "a.example"));
        assert_eq!(parse("https://a.example:8443"), pair("wss://a.example:8443", "a.example:8443"));
        assert_eq!(parse("ws://[::1]:80"), pair("ws://[::1]", "[::1]"));
        assert_eq!(parse("unix:/tmp/a"), pair("unix:/tmp/a", "localhost"));
        assert_eq!(parse("unix:///tmp/a"), pair("unix:/tmp/a", "localhost"));
        assert!(Address::parse("localhost").unwrap().is_local());
        assert!(!Address::parse("ws://a.example").unwrap().is_local());
    }

    #[test]
    fn secrets_of_addresses_are_sent_and_not_shown() {
        let address = Address::parse("ws://u:p%40ss@h:1").unwrap();
        assert_eq!(address.basic.as_deref(), Some("Basic dTpwQHNz"));
        assert_eq!(address.to_string(), "ws://h:1");
        let error = Address::parse("ftp://u:secret@h").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn what_is_no_address() {
        for text in ["", "unix:", "ftp://h", "ws://", "ws://h:99999", "ws://h:x", "://", "ws:// h"] {
            assert!(matches!(Address::parse(text), Err(ClientError::Address { .. })), "{text}");
        }
    }
}
