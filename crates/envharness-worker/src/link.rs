//! The socket to a worker: requests leave together, answers find their request by its number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes, BytesMut};
use envharness_wire::frame::{self, Answer, Header, Op};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};

use crate::session::Reply;
use crate::stats::Stats;

/// The largest answer of a worker that is read at all.
const MOST_ANSWER: usize = 1 << 30;

/// Something a worker said without being asked.
#[derive(Debug)]
pub(crate) enum Said {
    /// A session printed.
    Log(u32, u8, Bytes),
    /// An event as JSON.
    Event(Bytes),
}

/// The front's end of the socket.
#[derive(Debug, Default)]
pub(crate) struct Link {
    out: Mutex<Vec<u8>>,
    wake: Notify,
    pending: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    next: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Sends a request; the answer arrives at the receiver, or the receiver fails when the worker has ended.
    pub(crate) fn ask(&self, op: Op, flags: u8, session: u32, payload: &[u8]) -> oneshot::Receiver<Reply> {
        let request = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        locked(&self.pending).insert(request, sender);
        frame::push(&mut locked(&self.out), op, flags, session, request, payload);
        self.wake.notify_one();
        receiver
    }

    /// Fails everything that waits.
    pub(crate) fn close(&self) {
        locked(&self.pending).clear();
    }

    /// Writes what is asked for until the socket fails or the link is dropped.
    pub(crate) async fn write(&self, mut half: OwnedWriteHalf) {
        loop {
            let batch = std::mem::take(&mut *locked(&self.out));
            if batch.is_empty() {
                self.wake.notified().await;
                continue;
            }
            if half.write_all(&batch).await.is_err() {
                return;
            }
            // The buffer is used again, so that a busy link does not allocate for each batch.
            let mut out = locked(&self.out);
            if out.is_empty() && batch.capacity() <= 1 << 20 {
                let mut batch = batch;
                batch.clear();
                *out = batch;
            }
        }
    }

    /// Reads answers until the worker closes its end.
    pub(crate) async fn read(&self, mut half: OwnedReadHalf, stats: &Stats, said: &(dyn Fn(Said) + Send + Sync)) {
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        loop {
            if buffer.capacity() - buffer.len() < 16 * 1024 {
                buffer.reserve(64 * 1024);
            }
            match half.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let mut answers = 0_u32;
            while let Some(header) = Header::read(&buffer) {
                if header.length > MOST_ANSWER {
                    return;
                }
                if buffer.len() < frame::HEADER + header.length {
                    buffer.reserve(frame::HEADER + header.length - buffer.len());
                    break;
                }
                buffer.advance(frame::HEADER);
                let payload = buffer.split_to(header.length).freeze();
                match header.answer() {
                    Some(Answer::Log) if !payload.is_empty() => said(Said::Log(header.session, payload[0], payload.slice(1..))),
                    Some(Answer::Event) => said(Said::Event(payload)),
                    Some(kind) => {
                        answers += 1;
                        let waiting = locked(&self.pending).remove(&header.request);
                        if let Some(waiting) = waiting {
                            let _ = waiting.send(Reply { kind, flags: header.flags, payload });
                        }
                    }
                    None => return,
                }
            }
            if answers > 0 {
                stats.batch.observe(f64::from(answers));
            }
        }
    }
}
