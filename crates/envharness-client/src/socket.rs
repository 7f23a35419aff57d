//! The stream below a WebSocket, with what was read of it too early.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::ClientError;
use crate::stream::Stream;

/// Why a socket cannot be read any more: what came is wrong, or nothing comes.
pub(crate) fn broken(error: tokio_websockets::Error) -> ClientError {
    use tokio_websockets::Error;
    match error {
        Error::PayloadTooLong { len, max_len } => {
            ClientError::Protocol { reason: format!("a message of {len} bytes came, where {max_len} are the most") }
        }
        Error::Protocol(error) => ClientError::Protocol { reason: error.to_string() },
        error => ClientError::Lost { reason: error.to_string() },
    }
}

/// A stream after its handshake.
#[derive(Debug)]
pub(crate) struct Socket {
    early: Bytes,
    stream: Stream,
}

impl Socket {
    pub(crate) fn new(early: Bytes, stream: Stream) -> Self {
        Self { early, stream }
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
