//! Why nothing is served.

use envharness_rig::RigError;
use envharness_server::ServerError;
use envharness_spec::ContractError;
use envharness_worker::PoolError;

/// An error on the way from a target to a server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The target is nothing that can be served.
    #[error("{reason}")]
    Target {
        /// Why.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// A file of an env package cannot be used.
    #[error("{path}: {reason}")]
    Package {
        /// Which.
        path: String,
        /// Why.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// Its environment cannot be made.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// It cannot be loaded.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// Its contract is none.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// The server cannot listen.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The application with routes of its own does not run.
    #[error("{0}")]
    Application(String),
    /// The system refuses a thread or a runtime.
    #[error("cannot start the server's threads: {0}")]
    Threads(std::io::Error),
}

impl From<PoolError> for ServeError {
    fn from(error: PoolError) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl ServeError {
    /// What may help.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Target { hint, .. } | Self::Package { hint, .. } => hint.clone(),
            Self::Rig(error) => error.hint(),
            Self::Pool(error) => error.hint().map(ToOwned::to_owned),
            Self::Server(error) => error.hint().map(ToOwned::to_owned),
            Self::Contract(_) => Some("`envharness contract show` prints the schemas".to_owned()),
            Self::Application(_) | Self::Threads(_) => None,
        }
    }

    /// Lines that tell more: tracebacks, causes.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Rig(error) => error.details(),
            Self::Pool(error) => error.traceback().lines().map(ToOwned::to_owned).collect(),
            _ => Vec::new(),
        }
    }
}
