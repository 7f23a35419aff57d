//! One worker process, from its socket's two ends to its death.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use envharness_wire::Code;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::sync::{Notify, watch};

use crate::death::{Death, explain};
use crate::link::{Link, Said};
use crate::output::{self, LastOutput};
use crate::stats::Stats;

/// How long the wait status of a worker may take after its socket has closed.
const STATUS_TAKES: Duration = Duration::from_millis(500);

/// A worker of a pool.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: u32,
    pub(crate) marker: String,
    pub(crate) link: Link,
    /// Sessions that it holds, those being closed included.
    pub(crate) sessions: AtomicUsize,
    /// It takes no new sessions and ends with its last one.
    pub(crate) tainted: AtomicBool,
    /// Whether it has answered a reset.
    pub(crate) proven: AtomicBool,
    process: OnceLock<(i32, Option<OwnedFd>)>,
    status: Mutex<Option<Option<i32>>>,
    exited: Notify,
    retiring: Notify,
    planned: Mutex<Option<(Code, String)>>,
    death: watch::Sender<Option<Arc<Death>>>,
    output: LastOutput,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a worker process is given.
pub(crate) struct Ends {
    pub(crate) socket: UnixStream,
    pub(crate) output: OwnedFd,
}

impl Worker {
    /// Makes the front's side of a worker, and what its process is to be given.
    pub(crate) fn new(number: u32) -> io::Result<(Arc<Self>, tokio::net::UnixStream, Ends)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (pipe, sink) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let output = output::follow(pipe, format!("worker {number}"))?;
        let worker = Self {
            number,
            marker: format!("{}-{number}-{:x}", std::process::id(), fresh_number()),
            link: Link::default(),
            sessions: AtomicUsize::new(0),
            tainted: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            process: OnceLock::new(),
            status: Mutex::new(None),
            exited: Notify::new(),
            retiring: Notify::new(),
            planned: Mutex::new(None),
            death: watch::Sender::new(None),
            output,
        };
        Ok((Arc::new(worker), tokio::net::UnixStream::from_std(ours)?, Ends { socket: theirs, output: sink }))
    }

    /// The template says which process it is.
    pub(crate) fn is_process(&self, pid: i32) {
        let descriptor = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let _ = self.process.set((pid, descriptor));
        if locked(&self.planned).is_some() {
            self.signal(Signal::KILL);
        }
    }

    /// Its process id, once known.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.process.get().map(|(pid, _)| *pid)
    }

    /// The template says how it ended.
    pub(crate) fn has_exited(&self, status: Option<i32>) {
        *locked(&self.status) = Some(status);
        self.exited.notify_one();
    }

    fn signal(&self, signal: Signal) {
        let Some((pid, descriptor)) = self.process.get() else { return };
        if let Some(descriptor) = descriptor {
            let _ = pidfd_send_signal(descriptor.as_fd(), signal);
        }
        if let Some(pid) = Pid::from_raw(*pid) {
            // Its group: what it started and did not put into a session of its own.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Ends it. Its sessions are told `code` and `reason`.
    pub(crate) fn kill(&self, code: Code, reason: String) {
        self.tainted.store(true, Ordering::Relaxed);
        locked(&self.planned).get_or_insert((code, reason));
        self.signal(Signal::KILL);
    }

    /// Lets it end by itself: its socket is closed.
    pub(crate) fn retire(&self) {
        self.tainted.store(true, Ordering::Relaxed);
        self.retiring.notify_one();
    }

    /// The end, when it has come.
    pub(crate) fn death(&self) -> watch::Receiver<Option<Arc<Death>>> {
        self.death.subscribe()
    }

    /// Whether it has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.death.borrow().is_some()
    }

    /// Carries the socket until the worker ends; then everything that waits is told.
    pub(crate) async fn carry(&self, socket: tokio::net::UnixStream, stats: &Stats, said: &(dyn Fn(Said) + Send + Sync)) -> Arc<Death> {
        let (read, write) = socket.into_split();
        let mut retired = false;
        {
            let reading = self.link.read(read, stats, said);
            tokio::pin!(reading);
            let writing = self.link.write(write);
            tokio::pin!(writing);
            tokio::select! {
                () = &mut reading => {}
                () = &mut writing => {}
                () = self.exited.notified() => {
                    // A descendant may hold the socket open; what the worker had written is still read.
                    let _ = tokio::time::timeout(Duration::from_millis(50), &mut reading).await;
                    self.exited.notify_one();
                }
                () = self.retiring.notified() => retired = true,
            }
        }
        // Both halves are closed here, which ends a worker that still lives.
        let status = self.wait(retired).await;
        let (mut reason, signal, exit) = explain(status);
        let mut code = Code::WorkerDied;
        if let Some((planned, why)) = locked(&self.planned).clone() {
            (code, reason) = (planned, why);
        } else if !retired {
            stats.died.inc();
        }
        let death = Arc::new(Death { code, reason, signal, exit, last_output: self.output.text() });
        self.death.send_replace(Some(death.clone()));
        self.link.close();
        // Whatever of its group is left ends with it.
        if let Some(pid) = self.pid().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        death
    }

    /// Waits for the wait status; a worker that does not end by itself is killed.
    async fn wait(&self, retired: bool) -> Option<i32> {
        for round in 0..2 {
            let limit = if retired && round == 0 { Duration::from_secs(4) } else { STATUS_TAKES };
            let _ = tokio::time::timeout(limit, async {
                while locked(&self.status).is_none() {
                    self.exited.notified().await;
                }
            })
            .await;
            let status = *locked(&self.status);
            match status {
                Some(status) => return status,
                None => self.signal(Signal::KILL),
            }
        }
        None
    }
}

/// A number that no other worker of this machine has beside its process id.
fn fresh_number() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
