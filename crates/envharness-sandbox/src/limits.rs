//! Limits of a process tree, and who enforces them.

use std::io;

/// Limits for a child and what it starts; `None` means none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Memory of each process in bytes.
    pub memory: Option<u64>,
    /// Size of each file written, in bytes.
    pub file_size: Option<u64>,
    /// Processes of the user.
    pub pids: Option<u64>,
    /// CPU cores.
    pub cpus: Option<f64>,
}

/// Who enforces a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcer {
    /// `setrlimit(2)`, per process.
    Rlimit,
    /// Control groups of the first kind, for all of a container.
    Cgroup1,
    /// Control groups of the second kind, for all of a container.
    Cgroup2,
    /// Nobody on this machine.
    Nothing,
}

impl Enforcer {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rlimit => "rlimit",
            Self::Cgroup1 => "cgroup1",
            Self::Cgroup2 => "cgroup2",
            Self::Nothing => "nothing",
        }
    }
}

/// One limit and its enforcer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Which.
    pub name: &'static str,
    /// The value for a person.
    pub value: String,
    /// Who enforces it.
    pub enforcer: Enforcer,
}

impl Limits {
    /// Who enforces each limit that is set.
    pub fn enforced(&self) -> Vec<Limit> {
        // SAFETY: reads the caller's id.
        let root = unsafe { libc::geteuid() } == 0;
        let mut out = Vec::new();
        let mut add = |name, value: Option<String>, enforcer| {
            if let Some(value) = value {
                out.push(Limit { name, value, enforcer });
            }
        };
        add("memory", self.memory.map(|v| v.to_string()), Enforcer::Rlimit);
        add("disk", self.file_size.map(|v| v.to_string()), Enforcer::Rlimit);
        // RLIMIT_NPROC does not bind root (setrlimit(2)).
        add("pids", self.pids.map(|v| v.to_string()), if root { Enforcer::Nothing } else { Enforcer::Rlimit });
        add("cpus", self.cpus.map(|v| v.to_string()), Enforcer::Nothing);
        out
    }

    /// Sets what rlimits can hold. RLIMIT_DATA counts private writable memory, and so not the address space that
    /// CUDA and large files reserve.
    pub(crate) fn apply(&self) -> io::Result<()> {
        set(libc::RLIMIT_DATA, self.memory)?;
        set(libc::RLIMIT_FSIZE, self.file_size)?;
        set(libc::RLIMIT_NPROC, self.pids)
    }
}

fn set(resource: libc::__rlimit_resource_t, value: Option<u64>) -> io::Result<()> {
    let Some(value) = value else { return Ok(()) };
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` lives over the call.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
