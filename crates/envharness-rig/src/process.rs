//! Running one command: streams, time-outs, and an end for its whole tree.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use envharness_sandbox::{NamespaceChannel, Tree};
use rustix::event::{PollFd, PollFlags, poll};

use crate::error::RigError;

/// The most output that is kept of one command; the middle of more is left out.
pub const MOST_OUTPUT: usize = 16 * 1024 * 1024;
/// After the command has ended, a descendant that holds its pipes may write for this long.
const GRACE: Duration = Duration::from_millis(250);

/// Which stream a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Receives output as it comes.
pub type Sink<'a> = &'a mut dyn FnMut(Stream, &[u8]);

/// What a command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; 128 and the signal for a command that a signal ended.
    pub exit_code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Both, in the order in which they came.
    pub logs: Vec<u8>,
    /// Bytes that were left out of the middle.
    pub omitted: usize,
    /// How long it ran.
    pub elapsed: Duration,
    /// What may help, where a failure has a likely cause.
    pub hint: Option<String>,
}

/// What a command reads.
#[derive(Debug, Clone, Copy, Default)]
pub enum Input<'a> {
    /// Nothing: its standard input is at its end from the start.
    #[default]
    Closed,
    /// These bytes.
    Bytes(&'a [u8]),
    /// What the caller would read.
    Inherited,
    /// All three streams are the caller's; nothing is kept.
    Terminal,
}

/// The limits of one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunLimits {
    /// The longest run.
    pub timeout: Option<Duration>,
    /// The longest silence.
    pub no_output: Option<Duration>,
}

/// Keeps the beginning and the end of a stream.
#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    omitted: usize,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let room = (MOST_OUTPUT / 2).saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend(&bytes[room..]);
        let over = self.tail.len().saturating_sub(MOST_OUTPUT / 2);
        self.tail.drain(..over);
        self.omitted += over;
    }

    fn finish(mut self) -> Vec<u8> {
        if self.omitted > 0 {
            self.head.extend_from_slice(format!("\n[... {} bytes left out ...]\n", self.omitted).as_bytes());
        }
        self.head.extend(self.tail);
        self.head
    }
}

/// Keeps what a command prints.
#[derive(Default)]
pub(crate) struct Record {
    out: Kept,
    err: Kept,
    both: Kept,
}

impl Record {
    pub(crate) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Out { &mut self.out } else { &mut self.err }.push(bytes);
        self.both.push(bytes);
    }

    /// What has been printed by now.
    pub(crate) fn printed(&self) -> String {
        let tail: Vec<u8> = self.both.tail.iter().copied().collect();
        String::from_utf8_lossy(&self.both.head).into_owned() + &String::from_utf8_lossy(&tail)
    }

    pub(crate) fn finish(self, exit_code: i32, elapsed: Duration, hint: Option<String>) -> Output {
        let omitted = self.both.omitted;
        Output { exit_code, stdout: self.out.finish(), stderr: self.err.finish(), logs: self.both.finish(), omitted, elapsed, hint }
    }
}

/// Runs a command to its end. `left_behind` is told of the tree after a regular end, when parts of it may go on.
///
/// # Errors
/// [`RigError::Timeout`] with the output so far, [`RigError::Interrupted`], [`RigError::Start`]; in each case the whole
/// tree is ended first.
#[expect(clippy::too_many_arguments, reason = "each is another side of a run: what, who, input, limits, output, end")]
pub fn run(
    command: &mut Command,
    marker: &str,
    channel: Option<&NamespaceChannel>,
    input: Input<'_>,
    limits: RunLimits,
    sink: Sink<'_>,
    interrupted: &dyn Fn() -> bool,
    left_behind: &mut dyn FnMut(&Tree),
) -> Result<Output, RigError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let terminal = matches!(input, Input::Terminal);
    command.stdin(match input {
        Input::Closed => Stdio::null(),
        Input::Bytes(_) => Stdio::piped(),
        Input::Inherited | Input::Terminal => Stdio::inherit(),
    });
    command.stdout(if terminal { Stdio::inherit() } else { Stdio::piped() });
    command.stderr(if terminal { Stdio::inherit() } else { Stdio::piped() });
    let started = Instant::now();
    let mut child = command.spawn().map_err(|source| RigError::Start { program: program.clone(), source, hint: None })?;
    // Only a namespace that the run has to itself tells its processes from others.
    let namespace = channel.and_then(NamespaceChannel::receive);
    let tree = Tree { marker: marker.to_owned(), namespace };
    if let (Some(mut stdin), Input::Bytes(bytes)) = (child.stdin.take(), input) {
        // A command that reads nothing must not stop the rest.
        let bytes = bytes.to_vec();
        std::thread::spawn(move || stdin.write_all(&bytes));
    }
    let result = watch(&mut child, &program, limits, sink, interrupted, started);
    if result.is_err() {
        tree.kill();
        reap(&mut child);
    } else {
        left_behind(&tree);
    }
    result
}

/// Waits for a killed process, but not for one that the kernel cannot end (in an uninterruptible sleep).
pub(crate) fn reap(child: &mut Child) {
    let started = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && started.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn watch(
    child: &mut Child,
    program: &str,
    limits: RunLimits,
    sink: Sink<'_>,
    interrupted: &dyn Fn() -> bool,
    started: Instant,
) -> Result<Output, RigError> {
    let mut pipes: Vec<(Stream, OwnedFd)> = Vec::new();
    pipes.extend(child.stdout.take().map(|pipe| (Stream::Out, OwnedFd::from(pipe))));
    pipes.extend(child.stderr.take().map(|pipe| (Stream::Err, OwnedFd::from(pipe))));
    let pid = rustix::process::Pid::from_child(child);
    let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
    let mut record = Record::default();
    let mut last_output = started;
    // The outer option: it has ended. The inner: its status, unless somebody else took it (SIGCHLD ignored, `wait` by
    // another part of the process).
    let mut status: Option<(Option<ExitStatus>, Instant)> = None;
    let mut buffer = vec![0_u8; 64 * 1024];
    while !pipes.is_empty() || status.is_none() {
        let mut fds: Vec<PollFd<'_>> = pipes.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        if let (Some(ended), None) = (&ended, &status) {
            fds.push(PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN));
        }
        // Short enough for Ctrl-C, and the fallback where the kernel has no pidfd.
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: if ended.is_some() { 50_000_000 } else { 2_000_000 } };
        let _ = poll(&mut fds, Some(&wait));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut closed = Vec::new();
        for (index, (stream, fd)) in pipes.iter().enumerate() {
            if !ready.get(index).copied().unwrap_or(false) {
                continue;
            }
            match rustix::io::read(fd, &mut buffer) {
                Ok(0) => closed.push(index),
                Ok(read) => {
                    let bytes = &buffer[..read];
                    last_output = Instant::now();
                    record.push(*stream, bytes);
                    sink(*stream, bytes);
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(_) => closed.push(index),
            }
        }
        for index in closed.into_iter().rev() {
            pipes.remove(index);
        }
        if status.is_none() {
            status = match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some((Some(status), Instant::now())),
                Err(_) => Some((None, Instant::now())),
            };
        }
        if let Some((_, at)) = status
            && at.elapsed() > GRACE
        {
            break;
        }
        if interrupted() {
            return Err(RigError::Interrupted);
        }
        if let Some(limit) = limits.timeout.filter(|limit| status.is_none() && started.elapsed() >= *limit) {
            return Err(RigError::Timeout { action: format!("`{program}`"), limit, output: record.printed() });
        }
        if let Some(limit) = limits.no_output.filter(|limit| status.is_none() && last_output.elapsed() >= *limit) {
            return Err(RigError::Timeout { action: format!("`{program}` printed nothing and"), limit, output: record.printed() });
        }
    }
    let known = status.and_then(|(status, _)| status);
    let exit_code = known.map_or(-1, exit_code);
    let hint = known.is_none().then(|| "the exit code is lost: this process ignores SIGCHLD or waits for every child".to_owned());
    Ok(record.finish(exit_code, started.elapsed(), hint))
}

/// The code a shell would give: 128 and the signal for a death by signal.
pub fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
