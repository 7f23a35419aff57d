//! The writing half of a socket. A task writes; a blocking caller writes by itself where nobody else does, which saves waking
//! the task.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::stream::SplitSink;
use futures_util::{Sink as _, SinkExt as _};
use tokio::sync::Mutex;
use tokio_websockets::{Error, Message, WebSocketStream};

use crate::socket::Socket;

type Half = SplitSink<WebSocketStream<Socket>, Message>;

/// The half, while there is a connection.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    half: Mutex<Option<Half>>,
    /// Something was written that has not left.
    unflushed: AtomicBool,
}

impl Pen {
    /// There is a connection.
    pub(crate) async fn set(&self, half: Half) {
        self.unflushed.store(false, Ordering::Relaxed);
        *self.half.lock().await = Some(half);
    }

    /// There is none any more.
    pub(crate) async fn take(&self) -> Option<Half> {
        self.half.lock().await.take()
    }

    /// Writes all that `next` gives, in that order, until it gives nothing.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) async fn write(&self, next: impl Fn() -> Vec<Message>) -> Result<(), Error> {
        let mut held = self.half.lock().await;
        let Some(half) = held.as_mut() else { return Err(Error::AlreadyClosed) };
        loop {
            // Under the lock: what a caller would write now comes after.
            let messages = next();
            if messages.is_empty() && !self.unflushed.swap(false, Ordering::Relaxed) {
                return Ok(());
            }
            for message in messages {
                half.feed(message).await?;
            }
            half.flush().await?;
        }
    }

    /// The same on the caller's thread, without waiting. False: the task has to; `back` takes what was not written.
    pub(crate) fn try_write(&self, next: impl FnOnce() -> Vec<Message>, back: impl FnOnce(Vec<Message>)) -> bool {
        let Ok(mut held) = self.half.try_lock() else { return false };
        let Some(half) = held.as_mut() else { return false };
        let mut half = Pin::new(half);
        let mut cx = Context::from_waker(Waker::noop());
        let mut messages = next().into_iter();
        loop {
            if messages.len() == 0 {
                break;
            }
            if !matches!(half.as_mut().poll_ready(&mut cx), Poll::Ready(Ok(()))) {
                back(messages.collect());
                self.unflushed.store(true, Ordering::Relaxed);
                return false;
            }
            if let Some(message) = messages.next()
                && half.as_mut().start_send(message).is_err()
            {
                back(messages.collect());
                return false;
            }
        }
        let left = matches!(half.as_mut().poll_flush(&mut cx), Poll::Ready(Ok(())));
        self.unflushed.store(!left, Ordering::Relaxed);
        left
    }
}
