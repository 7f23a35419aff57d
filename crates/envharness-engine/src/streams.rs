//! What a command in a container reads.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

/// How long a read that nobody may want any more waits before it looks.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Pieces of a descriptor as they come. Nothing more is read once it is dropped, so that what follows is left to others.
pub(crate) struct Feed {
    pieces: mpsc::Receiver<Vec<u8>>,
    over: Arc<AtomicBool>,
}

impl Feed {
    pub(crate) fn of(source: OwnedFd) -> Self {
        let (sender, pieces) = mpsc::channel(8);
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        std::thread::spawn(move || {
            let mut buffer = vec![0_u8; 1 << 16];
            while !seen.load(Ordering::Relaxed) {
                match read_once(&source, &mut buffer) {
                    Ok(None) => {}
                    Ok(Some(0)) | Err(_) => return,
                    Ok(Some(read)) => {
                        if sender.blocking_send(buffer[..read].to_vec()).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Self { pieces, over }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        self.pieces.recv().await
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn read_once(source: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let mut fds = [PollFd::new(source, PollFlags::IN)];
    let ready = match poll(&mut fds, Some(&LOOK)) {
        Err(rustix::io::Errno::INTR) => return Ok(None),
        other => other?,
    };
    if ready == 0 {
        return Ok(None);
    }
    match rustix::io::read(source.as_fd(), buffer) {
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
        other => Ok(Some(other?)),
    }
}
