//! Where connections come from, and the stream below a WebSocket once the handshake is over.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The prefix of a host that is the path of a Unix socket.
const UNIX: &str = "unix:";
/// The host of a server that only its own process reaches.
const MEMORY: &str = "memory:";

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A host and a port.
    Net(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
    /// Nowhere: connections come from this process.
    Memory,
}

impl Place {
    /// From a host as it is configured: a name, an address, `unix:PATH` or `memory:`.
    pub fn of(host: &str, port: u16) -> Self {
        match host.strip_prefix(UNIX) {
            Some(path) => Self::Unix(PathBuf::from(path)),
            None if host == MEMORY => Self::Memory,
            None => Self::Net(host.to_owned(), port),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Net(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Self::Memory => f.write_str("this process"),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listening {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
    Memory,
}

/// Listens with room for a storm of connections.
pub(crate) fn listen(address: SocketAddr) -> io::Result<Listening> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, 4096)?;
    Ok(Listening::Tcp(std::net::TcpListener::from(socket)))
}

/// Listens on a path that only its owner can connect to. What a server that is gone left there is replaced.
pub(crate) fn listen_at(path: &Path) -> io::Result<Listening> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before it has its name: nobody else may slip in between.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 4096)?;
    Ok(Listening::Unix(std::os::unix::net::UnixListener::from(socket)))
}

/// The same on the runtime.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
    Memory,
}

impl Listener {
    /// Of a listening socket, whose name is `place`.
    pub(crate) fn new(listening: Listening, place: &Place) -> io::Result<Self> {
        Ok(match (listening, place) {
            (Listening::Tcp(listener), _) => {
                listener.set_nonblocking(true)?;
                Self::Tcp(TcpListener::from_std(listener)?)
            }
            (Listening::Unix(listener), Place::Unix(path)) => {
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?, path.clone())
            }
            _ => Self::Memory,
        })
    }

    /// The next connection, and where it is from.
    pub(crate) async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), peer))
            }
            Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| (Stream::Unix(stream), here())),
            Self::Memory => std::future::pending().await,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What stands for the address of a client on this machine that has none.
pub(crate) fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(DuplexStream),
}

/// Calls the same method of whichever it is.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
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

/// A stream after its handshake, and what was read of it too early.
#[derive(Debug)]
pub(crate) struct Socket {
    early: Bytes,
    stream: Stream,
}

impl Socket {
    /// Takes the stream out of hyper's hands, so that neither its buffers nor its indirection stay.
    pub(crate) fn of(upgraded: Upgraded) -> Option<Self> {
        let parts = upgraded.downcast::<TokioIo<Stream>>().ok()?;
        Some(Self { early: parts.read_buf, stream: parts.io.into_inner() })
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early[..length]);
        self.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
