//! A connection to a server, whatever it runs over.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::address::{Address, Way};
use crate::error::ClientError;
use crate::settings::{Proxy, Settings};

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
    Memory(DuplexStream),
}

/// Calls the same method of whichever it is.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Tls($stream) => $call,
            Stream::Unix($stream) => $call,
            Stream::Memory($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// Makes connections to a server in this process.
pub type Dialer = Arc<dyn Fn() -> Option<DuplexStream> + Send + Sync>;

static DIALERS: LazyLock<Mutex<HashMap<u64, Dialer>>> = LazyLock::new(Mutex::default);
/// The servers in this process, by number.
pub(crate) fn dialers() -> MutexGuard<'static, HashMap<u64, Dialer>> {
    DIALERS.lock().unwrap_or_else(PoisonError::into_inner)
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A server in this process becomes reachable; the number is for [`Address::memory`].
pub fn add_dialer(dialer: Dialer) -> u64 {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
    dialers().insert(number, dialer);
    number
}

/// It is not any more.
pub fn remove_dialer(number: u64) {
    dialers().remove(&number);
}

/// Connects.
pub(crate) async fn dial(address: &Address, settings: &Settings) -> Result<Stream, ClientError> {
    let failed = |reason: String, hint: Option<&str>| ClientError::Connect {
        address: address.to_string(),
        reason,
        hint: hint.map(ToOwned::to_owned),
    };
    let io = |error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Some("no server listens there; `envharness serve` starts one"),
            _ => None,
        };
        failed(error.to_string(), hint)
    };
    let (host, port, tls) = match &address.way {
        Way::Memory(number) => {
            let dialer = dialers().get(number).cloned();
            return dialer.and_then(|dial| dial()).map(Stream::Memory).ok_or_else(|| failed("it has ended".to_owned(), None));
        }
        Way::Unix(path) => return UnixStream::connect(path).await.map(Stream::Unix).map_err(io),
        Way::Net { host, port, tls } => (host.as_str(), *port, *tls),
    };
    let tcp = match &settings.proxy {
        Proxy::Url(proxy) if !address.is_local() => through(proxy, host, port).await.map_err(|reason| failed(reason, None))?,
        _ => TcpStream::connect((host, port)).await.map_err(io)?,
    };
    let _ = tcp.set_nodelay(true);
    if !tls {
        return Ok(Stream::Tcp(tcp));
    }
    let config = tls_config(settings).map_err(|reason| failed(reason, None))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string(), None))?;
    let secured = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
    secured
        .map(|stream| Stream::Tls(Box::new(stream)))
        .map_err(|error| failed(format!("TLS: {error}"), Some("`tls_ca` names further certificates to trust")))
}

/// The certificates of the system, and those that were given.
fn tls_config(settings: &Settings) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = &settings.tls_ca {
        let read = CertificateDer::pem_file_iter(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        for certificate in read {
            let certificate = certificate.map_err(|error| format!("{} is no PEM: {error}", path.display()))?;
            roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// A connection through a proxy by `CONNECT` (RFC 9110, section 9.3.6).
async fn through(proxy: &str, host: &str, port: u16) -> Result<TcpStream, String> {
    let place = Address::parse(proxy).map_err(|error| format!("the proxy: {error}"))?;
    let Way::Net { host: proxy_host, port: proxy_port, tls: false } = &place.way else {
        return Err(format!("the proxy {place} is not one of http://"));
    };
    let failed = |error: String| format!("the proxy {place}: {error}");
    let tcp = TcpStream::connect((proxy_host.as_str(), *proxy_port)).await.map_err(|error| failed(error.to_string()))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await.map_err(|error| failed(error.to_string()))?;
    tokio::spawn(connection.with_upgrades());
    let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut request = http::Request::connect(&target).header(http::header::HOST, &target);
    if let Some(basic) = &place.basic {
        request = request.header(http::header::PROXY_AUTHORIZATION, basic);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
    let mut response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
    if !response.status().is_success() {
        return Err(failed(format!("it answered {} to CONNECT {target}", response.status())));
    }
    let upgraded = hyper::upgrade::on(&mut response).await.map_err(|error| failed(error.to_string()))?;
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().map_err(|_| failed("it cannot be passed on".to_owned()))?;
    // The server does not speak first, in TLS or HTTP.
    drop(response.into_body());
    Ok(parts.io.into_inner())
}
