//! Every process of a run, also those that left its session, and their end.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::namespace::Namespace;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// Recognises the processes of a run: by a variable in the environment they started with, or by the mount namespace
/// that the run has to itself. `setsid`, double forks and ignored signals change neither.
#[derive(Debug, Clone)]
pub struct Tree {
    /// `NAME=value`, unique to the run or the context.
    pub marker: String,
    /// The run's mount namespace, when it has one of its own.
    pub namespace: Option<Namespace>,
}

/// The number of a process's mount namespace.
fn mount_namespace(pid: u32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()?;
    link.to_string_lossy().trim_start_matches("mnt:[").trim_end_matches(']').parse().ok()
}

/// Gives way to all other work: for background jobs.
pub fn lower_priority(pid: u32) {
    // SAFETY: takes numbers only; a refusal changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, pid, 19) };
}

/// Live processes by the value of a variable in the environment they started with.
pub fn processes_by_variable(name: &str) -> HashMap<String, Vec<u32>> {
    let prefix = format!("{name}=");
    let mut out: HashMap<String, Vec<u32>> = HashMap::new();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let value = environ.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        if let Some(value) = value.filter(|_| pid != std::process::id() && !is_zombie(pid)) {
            out.entry(String::from_utf8_lossy(value).into_owned()).or_default().push(pid);
        }
    }
    out
}

impl Tree {
    /// Live processes of the tree, this one never.
    pub fn members(&self) -> Vec<u32> {
        let own = std::process::id();
        let namespace = self.foreign_namespace();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| *pid != own && self.is_member(*pid, namespace) && !is_zombie(*pid)).collect()
    }

    fn is_member(&self, pid: u32, namespace: Option<u64>) -> bool {
        if namespace.is_some() && mount_namespace(pid) == namespace {
            return true;
        }
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|entry| entry == self.marker.as_bytes()))
    }

    /// Kills all of the tree, again and again until none is left or a second has passed; returns who is left.
    pub fn kill(&self) -> Vec<u32> {
        let started = Instant::now();
        loop {
            let members = self.members();
            if members.is_empty() || started.elapsed() > Duration::from_secs(1) {
                return members;
            }
            for pid in &members {
                self.signal(*pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks all of the tree to end.
    pub fn terminate(&self) {
        for pid in self.members() {
            self.signal(pid, Signal::TERM);
        }
    }

    /// Signals a member. The number may have passed to a stranger since the scan: a descriptor pins the process, which
    /// is then looked at again.
    fn signal(&self, pid: u32, signal: Signal) {
        let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw) else { return };
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pinned) if self.is_member(number, self.foreign_namespace()) => {
                let _ = pidfd_send_signal(&pinned, signal);
            }
            Err(rustix::io::Errno::NOSYS) => {
                let _ = kill_process(pid, signal);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// The run's namespace, unless it is this process's own.
    fn foreign_namespace(&self) -> Option<u64> {
        let inode = self.namespace.as_ref()?.inode;
        (Some(inode) != mount_namespace(std::process::id())).then_some(inode)
    }
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| matches!(rest.trim_start().chars().next(), None | Some('Z' | 'X')))
}
