//! What a child does between `fork` and `exec`.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::limits::Limits;
use crate::plan::Plan;

/// How a child differs from its parent.
#[derive(Debug, Clone, Default)]
pub struct ChildOptions {
    /// The view it enters.
    pub plan: Option<Plan>,
    /// Whether it leads a session of its own, away from the caller's terminal and signals.
    pub new_session: bool,
    /// Whether it takes standard input as its controlling terminal (with `new_session`).
    pub terminal: bool,
    /// Whether it is killed when the thread that started it ends.
    pub die_with_parent: bool,
    /// Descriptors that it keeps beside 0, 1 and 2.
    pub keep_fds: Vec<RawFd>,
    /// Where it sends its mount namespace, once it has one.
    pub namespace_to: Option<RawFd>,
    /// Its limits.
    pub limits: Limits,
}

/// Makes a command start its child so.
pub fn configure(command: &mut Command, options: &ChildOptions) {
    let options = options.clone();
    let parent = std::process::id();
    // SAFETY: the closure runs in the child after `fork`; it makes system calls on memory prepared before, allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            if options.new_session {
                check(libc::setsid())?;
            }
            if options.terminal {
                check(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
            }
            if options.die_with_parent {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                // The parent may have died before the call above could notice.
                if u32::try_from(libc::getppid()) != Ok(parent) {
                    libc::_exit(137);
                }
            }
            options.limits.apply()?;
            close_others(&options.keep_fds)?;
            options.plan.as_ref().map_or(Ok(()), Plan::run)?;
            if let Some(socket) = options.namespace_to {
                crate::namespace::send_own(socket);
            }
            Ok(())
        });
    }
}

fn check(result: i32) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Marks every descriptor from 3 on to close at `exec`, so that none of the caller's leaks, then exempts some.
fn close_others(keep: &[RawFd]) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: takes numbers only. A kernel before 5.11 refuses; Rust and Python mark their descriptors themselves.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    for fd in keep {
        // SAFETY: changes a flag of a descriptor that the caller said is open.
        check(unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) })?;
    }
    Ok(())
}
