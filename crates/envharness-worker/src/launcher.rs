//! How processes are started: the seam to contexts and interpreters.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;

/// A process to start.
#[derive(Debug)]
pub struct Launch {
    /// Arguments of the interpreter.
    pub arguments: Vec<String>,
    /// Further variables.
    pub env: Vec<(String, String)>,
    /// Its standard input: a socket.
    pub stdin: OwnedFd,
    /// Its standard output and error.
    pub output: OwnedFd,
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    /// The process.
    pub child: Child,
}

/// Starts interpreters of one environment.
pub trait Launcher: Send + Sync {
    /// Starts the environment's interpreter. It must end when the calling thread does.
    ///
    /// # Errors
    /// What the system says.
    fn launch(&self, launch: Launch) -> io::Result<Process>;

    /// The folder of the guest, as processes see it.
    fn guest(&self) -> &Path;

    /// The path of the program that workers run.
    fn program(&self) -> String {
        self.guest().join("envharness_guest/serve/__main__.py").display().to_string()
    }

    /// The folder of the light `openenv`.
    fn light(&self) -> String {
        self.guest().join("openenv_light").display().to_string()
    }

    /// Ends every process that has `NAME=VALUE` among its variables; whatever a worker started and left behind.
    fn end_marked(&self, marker: &str);

    /// For messages: which interpreter, where.
    fn describe(&self) -> String;
}
