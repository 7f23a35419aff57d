//! Kernel locks on files: released by the kernel when the holder dies, however it dies.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::{IoContext as _, StoreError};

/// Descriptors of all exclusive locks of this process, so that a forked child can close its copies.
static HELD: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

pub(crate) fn held() -> MutexGuard<'static, Vec<RawFd>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that is held until it is dropped.
///
/// A forked child does not hold it: its copy of the descriptor is closed by the fork hook, and dropping the value there
/// does nothing. Closing a copy never releases a `flock`; only an unlock does, and the child never unlocks.
#[derive(Debug)]
pub struct FileLock {
    file: Option<File>,
    path: PathBuf,
    pid: u32,
    exclusive: bool,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.pid == std::process::id() || !self.exclusive {
            let mut all = held();
            all.retain(|known| *known != file.as_raw_fd());
            // Not by closing alone: a child forked a moment ago may not have closed its copy yet. A shared lock is
            // what keeps a prefix, and a child goes on using that after its parent has ended.
            if self.exclusive {
                let _ = flock(&file, FlockOperation::Unlock);
            }
            drop(file);
        } else {
            // The hook closed this descriptor; its number may be somebody else's by now.
            std::mem::forget(file);
        }
    }
}

impl FileLock {
    /// Waits for the lock; `tick` runs about every 50 ms while waiting and may give up.
    ///
    /// # Errors
    /// [`StoreError::Io`], or what `tick` returns.
    pub fn acquire<E: From<StoreError>>(path: &Path, exclusive: bool, mut tick: impl FnMut(Duration) -> Result<(), E>) -> Result<Self, E> {
        let started = Instant::now();
        loop {
            if let Some(lock) = Self::try_acquire(path, exclusive)? {
                return Ok(lock);
            }
            tick(started.elapsed())?;
            std::thread::sleep(Duration::from_millis(if started.elapsed().as_millis() < 20 { 2 } else { 50 }));
        }
    }

    /// Takes the lock when it is free.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn try_acquire(path: &Path, exclusive: bool) -> Result<Option<Self>, StoreError> {
        let operation = if exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        loop {
            // Nobody forks between the opening and the entry in the list.
            let mut all = held();
            // Opened for reading and writing: some network file systems refuse to lock a read-only descriptor.
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).on("open the lock", path)?;
            match flock(&file, operation) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno).on("lock", path),
            }
            // Somebody may have removed the file between opening and locking; such a lock guards nothing.
            let same = std::fs::metadata(path)
                .is_ok_and(|now| file.metadata().is_ok_and(|mine| (now.dev(), now.ino()) == (mine.dev(), mine.ino())));
            if same {
                if exclusive {
                    all.push(file.as_raw_fd());
                }
                return Ok(Some(Self { file: Some(file), path: path.to_owned(), pid: std::process::id(), exclusive }));
            }
        }
    }

    /// Removes the file while the lock is held.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
