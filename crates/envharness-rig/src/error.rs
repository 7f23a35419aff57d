//! What can go wrong between a spec and a process.

use std::path::PathBuf;
use std::time::Duration;

use envharness_conda::CondaError;
use envharness_engine::EngineError;
use envharness_sandbox::ViewError;
use envharness_spec::{LockError, SpecError};
use envharness_store::StoreError;

/// Who has to do something about an error; callers map it to exit codes and exception types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The spec.
    Spec,
    /// The lock, or a resolution.
    Lock,
    /// The network, the disk, another program.
    Outside,
    /// A context that is not there, or not in the state for it.
    Context,
    /// A file transfer.
    Transfer,
    /// A time-out.
    Timeout,
    /// The caller interrupted.
    Interrupted,
    /// Known, and not there yet.
    NotAvailable,
}

/// An error of the rig.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The spec was refused.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A lock file cannot be used.
    #[error("`{}`: {source}", path.display())]
    LockFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: LockError,
    },
    /// `--locked`, and the lock does not answer the spec.
    #[error("the lock `{}` does not answer its spec: {}", path.display(), reasons.join("; "))]
    StaleLock {
        /// The file.
        path: PathBuf,
        /// What changed.
        reasons: Vec<String>,
    },
    /// `--frozen` or `--locked`, and there is no lock.
    #[error("there is no lock `{}`", path.display())]
    NoLock {
        /// Where it would be.
        path: PathBuf,
    },
    /// No set of versions satisfies the spec.
    #[error("no versions satisfy `{name}` on Python {python}")]
    Unsolvable {
        /// The spec's name.
        name: String,
        /// The Python tried.
        python: String,
        /// What collides, who asks for it, and what to try.
        explanation: Vec<String>,
        /// The shortest way out.
        hint: Option<String>,
    },
    /// conda's part failed.
    #[error(transparent)]
    Conda(Box<CondaError>),
    /// A container engine failed.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// No interpreter fits.
    #[error("no Python fits `{wanted}`")]
    NoPython {
        /// The specifier.
        wanted: String,
        /// What was found.
        found: Vec<String>,
    },
    /// A path that was given as a Python is none.
    #[error("`{path}` is not a Python that works: {reason}")]
    BadPython {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// Another program failed.
    #[error("{program} failed to {action}")]
    Program {
        /// Which.
        program: &'static str,
        /// What it was to do.
        action: String,
        /// The end of what it printed.
        output: String,
    },
    /// A program is missing.
    #[error("the program `{0}` was not found")]
    NoProgram(&'static str),
    /// A part of the design that is not built yet.
    #[error("{0} is not available yet")]
    NotAvailable(String),
    /// Something took too long.
    #[error("{action} took longer than {}", seconds(limit))]
    Timeout {
        /// What.
        action: String,
        /// The limit.
        limit: Duration,
        /// What had been printed by then.
        output: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A file operation failed.
    #[error("failed to {action} `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A command could not be started.
    #[error("failed to start `{program}`")]
    Start {
        /// The command.
        program: String,
        /// The cause.
        #[source]
        source: std::io::Error,
        /// What may help.
        hint: Option<String>,
    },
    /// The view of a context cannot be made.
    #[error("failed to make the context's view of the file system")]
    View(#[from] ViewError),
    /// A file cannot be transferred.
    #[error("cannot {direction} `{path}`: {reason}")]
    Transfer {
        /// `upload` or `download`.
        direction: &'static str,
        /// The path.
        path: String,
        /// Why.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// A secret is not there when a process starts.
    #[error("the secret `{name}` is not there: {reason}")]
    Secret {
        /// The variable.
        name: String,
        /// Why.
        reason: String,
    },
    /// A context cannot do what was asked.
    #[error("the context `{id}` {reason}")]
    Context {
        /// The id.
        id: String,
        /// Why not.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// The settings cannot be used.
    #[error("{place}: {message}")]
    Settings {
        /// The file and line, or the variable.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// The machine has fewer GPUs than asked for.
    #[error("the spec asks for {wanted} GPUs and this machine has {present}")]
    Gpus {
        /// Asked for.
        wanted: u32,
        /// Present.
        present: u32,
    },
    /// The host's environment lacks what the spec asks for.
    #[error("the adopted environment `{environment}` lacks {}", missing.join(", "))]
    HostLacks {
        /// Which.
        environment: String,
        /// What.
        missing: Vec<String>,
    },
}

impl From<CondaError> for RigError {
    fn from(error: CondaError) -> Self {
        Self::Conda(Box::new(error))
    }
}

impl From<EngineError> for RigError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Interrupted => Self::Interrupted,
            other => Self::Engine(Box::new(other)),
        }
    }
}

fn seconds(limit: &Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

impl RigError {
    /// Who has to do something.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Spec(_) | Self::Settings { .. } | Self::Gpus { .. } => ErrorKind::Spec,
            Self::LockFile { .. } | Self::StaleLock { .. } | Self::NoLock { .. } | Self::Unsolvable { .. } | Self::HostLacks { .. } => {
                ErrorKind::Lock
            }
            Self::Conda(error) => match **error {
                CondaError::MatchSpec { .. } | CondaError::Channel { .. } | CondaError::VirtualPackage { .. } => ErrorKind::Spec,
                CondaError::NoPackage { .. } | CondaError::Unsolvable { .. } | CondaError::Record { .. } => ErrorKind::Lock,
                CondaError::Stopped => ErrorKind::Interrupted,
                _ => ErrorKind::Outside,
            },
            Self::Engine(error) => match **error {
                EngineError::NoImage { .. } => ErrorKind::Lock,
                EngineError::NoContainer { .. } => ErrorKind::Context,
                EngineError::Timeout { .. } => ErrorKind::Timeout,
                _ => ErrorKind::Outside,
            },
            Self::NotAvailable(_) => ErrorKind::NotAvailable,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Transfer { .. } => ErrorKind::Transfer,
            Self::Context { .. } | Self::Secret { .. } | Self::Start { .. } | Self::View(_) => ErrorKind::Context,
            Self::Store(StoreError::NoContext(_) | StoreError::Ambiguous { .. } | StoreError::InUse(_)) => ErrorKind::Context,
            Self::Store(_)
            | Self::Program { .. }
            | Self::NoProgram(_)
            | Self::Io { .. }
            | Self::NoPython { .. }
            | Self::BadPython { .. } => ErrorKind::Outside,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Spec(error) => error.hint.clone(),
            Self::Store(error) => error.hint(),
            Self::Conda(error) => error.hint(),
            Self::Engine(error) => error.hint(),
            Self::LockFile { source, .. } => Some(source.hint().to_owned()),
            Self::StaleLock { .. } => Some("run `envharness lock`, or leave `--locked` away".into()),
            Self::NoLock { .. } => Some("run `envharness lock` first, or leave `--locked` and `--frozen` away".into()),
            Self::Unsolvable { hint, .. } | Self::Start { hint, .. } | Self::Transfer { hint, .. } | Self::Context { hint, .. } => {
                hint.clone()
            }
            Self::NoPython { .. } => Some("install one (for instance with pyenv), put it on PATH, or change `python:`".into()),
            Self::NoProgram("uv") => Some("`pip install uv`, or set ENVHARNESS_UV to its path".into()),
            Self::NotAvailable(what) if what.contains("isolation") => Some("leave `isolation` at `none`".into()),
            Self::NotAvailable(_) => Some("use `backend: venv` with pip packages".into()),
            Self::Timeout { .. } => Some("raise the limit under `resources.timeouts`, or find what hangs with `--log-level DEBUG`".into()),
            Self::Secret { name, .. } => Some(format!("export {name}, or give a command under `secrets`")),
            Self::Gpus { .. } => Some("lower `resources.gpu`, or run on another machine".into()),
            Self::HostLacks { .. } => Some("install them there, or use `backend: venv`".into()),
            Self::Program { output, .. } if is_offline(output) => {
                Some("check the network, the proxy and the index; `--offline` works from what is downloaded".into())
            }
            Self::Io { source, .. } if source.raw_os_error() == Some(28) => {
                Some("the disk is full: `envharness gc --max-size 0` removes what nobody uses".into())
            }
            _ => None,
        }
    }

    /// Longer text to show below the message: an explanation, or what a program printed.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Unsolvable { explanation, .. } => explanation.clone(),
            Self::Conda(error) => error.details(),
            Self::NoPython { found, .. } if found.is_empty() => vec!["no Python 3.8 or newer was found".into()],
            Self::NoPython { found, .. } => std::iter::once("found:".to_owned()).chain(found.iter().map(|f| format!("  {f}"))).collect(),
            Self::Program { output, .. } | Self::Timeout { output, .. } => output.lines().map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }
}

fn is_offline(output: &str) -> bool {
    ["error sending request", "dns error", "Could not resolve host", "Connection refused", "timed out"]
        .iter()
        .any(|sign| output.contains(sign))
}

/// Attaches what was tried on which path.
pub(crate) trait IoContext<T> {
    fn on(self, action: &'static str, path: &std::path::Path) -> Result<T, RigError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn on(self, action: &'static str, path: &std::path::Path) -> Result<T, RigError> {
        self.map_err(|source| RigError::Io { action, path: path.to_owned(), source })
    }
}
