//! What is about to leave on a socket: frames that become ready together leave in one message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use envharness_wire::v1::{self, Header};
use tokio::sync::Notify;

/// A message is closed, and another begun, beyond this many bytes.
const ONE_MESSAGE: usize = 256 * 1024;

/// Frames in the order in which they leave.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: Mutex<Vec<Vec<u8>>>,
    closed: AtomicBool,
    pub(super) wake: Notify,
}

impl Outbox {
    /// Adds a frame.
    pub(super) fn push(&self, header: Header, payload: &[u8]) {
        if self.is_closed() {
            return;
        }
        {
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            match messages.last_mut() {
                Some(last) if last.len() < ONE_MESSAGE => v1::push(last, header, payload),
                _ => {
                    let mut first = Vec::with_capacity(payload.len() + v1::HEADER);
                    v1::push(&mut first, header, payload);
                    messages.push(first);
                }
            }
        }
        self.wake.notify_one();
    }

    /// The messages that are ready.
    pub(super) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::len).sum()
    }

    /// Its socket is gone.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.take();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}
