//! What is driven: the address, the frames that are sent and what an answer must look like.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use http::Uri;

/// The server that is driven.
#[derive(Args)]
pub struct Server {
    /// Where it is: ws://127.0.0.1:PORT/ws
    #[arg(long)]
    pub url: String,
    /// Its process; those below it are counted too
    #[arg(long)]
    pub pid: u32,
}

/// The frames, and how many sessions may be opening at once.
#[derive(Args, Clone)]
pub struct Frames {
    /// The text of the reset frame
    #[arg(long, value_name = "JSON", default_value = r#"{"type":"reset","data":{}}"#)]
    pub reset: String,
    /// The text of the step frame
    #[arg(long, value_name = "JSON", default_value = r#"{"type":"step","data":{"message":"Hello from the trainer"}}"#)]
    pub step: String,
    /// Text that every reply to a step must hold; a reply without it is a failure
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub expect: String,
    /// Sessions that may be opening (connect and reset) at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub in_flight: usize,
    /// Longest wait for one reply, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub timeout: f64,
}

impl Frames {
    /// The longest wait for one reply.
    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }
}

/// A server on this machine.
#[derive(Clone)]
pub struct Address {
    /// The whole URL, as it goes into the handshake.
    pub uri: Uri,
    /// Where to connect.
    pub socket: SocketAddr,
}

/// Reads a `ws://` URL and refuses all but loopback addresses.
pub fn address(url: &str) -> Result<Address> {
    let uri: Uri = url.parse().with_context(|| format!("not a URL: {url}"))?;
    if uri.scheme_str() != Some("ws") {
        bail!("only ws:// URLs are driven, not {url}");
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let ip = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => host.parse().with_context(|| format!("not an address: {host}"))?,
    };
    if !ip.is_loopback() {
        bail!("{ip} is not a loopback address; a load is made on this machine only");
    }
    let socket = SocketAddr::new(ip, uri.port_u16().unwrap_or(80));
    Ok(Address { uri, socket })
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn loopback_only() {
        assert!(address("ws://127.0.0.1:80/ws").is_ok());
        assert!(address("ws://localhost:80/ws").is_ok());
        assert!(address("ws://[::1]:80/ws").is_ok());
        for url in ["ws://192.0.2.1:80/ws", "ws://example.com/ws", "wss://127.0.0.1/ws", "http://127.0.0.1/ws", "ws://0.0.0.0:80/ws"] {
            assert!(address(url).is_err(), "{url}");
        }
    }
}
