//! A list of system calls, prepared before `fork` and run after it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// One system call with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Unshare(i32),
    /// Writes a short file; a refusal is an error only where `must` is set.
    Write {
        path: CString,
        text: CString,
        must: bool,
    },
    Mount {
        source: Option<CString>,
        target: CString,
        kind: Option<CString>,
        flags: u64,
        data: Option<CString>,
    },
    Mkdir(CString),
    Touch(CString),
    Symlink {
        target: CString,
        path: CString,
    },
    /// Makes a folder the root; where the old root cannot be put away, changes root only.
    EnterRoot(CString),
    Chdir(CString),
}

/// Calls to run in a child, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub(crate) calls: Vec<Call>,
}

/// A path that cannot be given to the kernel.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` holds a NUL byte")]
pub struct PlanError(pub String);

pub(crate) fn c_path(path: &Path) -> Result<CString, PlanError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| PlanError(path.display().to_string()))
}

impl Plan {
    pub(crate) fn bind(&mut self, source: &Path, target: &Path) -> Result<(), PlanError> {
        self.mount(Some(source), target, libc::MS_BIND | libc::MS_REC)
    }

    pub(crate) fn mount(&mut self, source: Option<&Path>, target: &Path, flags: u64) -> Result<(), PlanError> {
        let source = source.map(c_path).transpose()?;
        self.calls.push(Call::Mount { source, target: c_path(target)?, kind: None, flags, data: None });
        Ok(())
    }

    /// The calls as text, one a line, for tests and logs.
    pub fn describe(&self) -> Vec<String> {
        self.calls.iter().map(|call| format!("{call:?}")).collect()
    }

    /// Runs the calls. Only for a child between `fork` and `exec`: it changes the whole process.
    pub(crate) fn run(&self) -> io::Result<()> {
        for call in &self.calls {
            call.run()?;
        }
        Ok(())
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn pointer(text: &Option<CString>) -> *const libc::c_char {
    text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
}

impl Call {
    /// Allocates nothing and takes no lock, so it may run after `fork` in a process with threads.
    fn run(&self) -> io::Result<()> {
        match self {
            // SAFETY: takes flags only.
            Self::Unshare(flags) => check(unsafe { libc::unshare(*flags) }),
            Self::Write { path, text, must } => {
                // SAFETY: `path` and `text` are NUL-terminated and live over the calls; the descriptor is closed here.
                let written = unsafe {
                    let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                    if fd < 0 {
                        Err(io::Error::last_os_error())
                    } else {
                        let bytes = text.as_bytes();
                        let count = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
                        let result = if count < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
                        libc::close(fd);
                        result
                    }
                };
                if *must { written } else { Ok(()) }
            }
            Self::Mount { source, target, kind, flags, data } => {
                // SAFETY: every pointer is null or a NUL-terminated string that lives over the call.
                check(unsafe { libc::mount(pointer(source), target.as_ptr(), pointer(kind), *flags, pointer(data).cast()) })
            }
            // SAFETY: a NUL-terminated string that lives over the call.
            Self::Mkdir(path) => exists_is_fine(unsafe { libc::mkdir(path.as_ptr(), 0o755) }),
            Self::Touch(path) => {
                // SAFETY: a NUL-terminated string that lives over the call; the descriptor is closed here.
                unsafe {
                    let fd = libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC, 0o644);
                    if fd < 0 {
                        return Err(io::Error::last_os_error());
                    }
                    check(libc::close(fd))
                }
            }
            // SAFETY: two NUL-terminated strings that live over the call.
            Self::Symlink { target, path } => exists_is_fine(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) }),
            Self::EnterRoot(path) => {
                // SAFETY: NUL-terminated strings that live over the calls. `pivot_root(".", ".")` stacks the old root
                // on the new one, from where it is detached (pivot_root(2), "pivot_root(".", ".")").
                unsafe {
                    check(libc::chdir(path.as_ptr()))?;
                    if libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) == 0 {
                        check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH))?;
                        check(libc::chdir(c"/".as_ptr()))
                    } else {
                        check(libc::chroot(c".".as_ptr()))
                    }
                }
            }
            // SAFETY: a NUL-terminated string that lives over the call.
            Self::Chdir(path) => check(unsafe { libc::chdir(path.as_ptr()) }),
        }
    }
}

fn exists_is_fine(result: i32) -> io::Result<()> {
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}
