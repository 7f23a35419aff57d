//! What can go wrong in the store.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the store, with the path it is about.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error("failed to {action} `{}`", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The state database failed.
    #[error("the state database `{}` failed", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer program wrote the state.
    #[error("the store `{}` has format {found}, and this program knows up to {known}", path.display())]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// No context has that id.
    #[error("no context `{0}`")]
    NoContext(String),
    /// More than one context begins so.
    #[error("`{given}` is the beginning of {} contexts: {}", ids.len(), ids.join(", "))]
    Ambiguous {
        /// What was given.
        given: String,
        /// What it could mean.
        ids: Vec<String>,
    },
    /// Somebody uses it.
    #[error("`{0}` is in use")]
    InUse(String),
}

impl StoreError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { source, .. } if source.raw_os_error() == Some(28) || source.raw_os_error() == Some(122) => {
                Some("the disk is full: `envharness gc --max-size 0` removes what nobody uses".into())
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("set ENVHARNESS_HOME to a folder that you own".into())
            }
            Self::Newer { .. } => Some("update envharness, or set ENVHARNESS_HOME to another folder".into()),
            Self::NoContext(_) => Some("`envharness list` shows every context".into()),
            Self::Ambiguous { .. } => Some("give more of the id".into()),
            Self::InUse(_) => Some("end its processes first, or give `--force`".into()),
            Self::Database { .. } => Some("`envharness doctor` checks the store".into()),
            Self::Io { .. } => None,
        }
    }
}

/// Attaches what was tried on which path.
pub(crate) trait IoContext<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, StoreError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io { action, path: path.to_owned(), source })
    }
}

impl<T> IoContext<T> for rustix::io::Result<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, StoreError> {
        self.map_err(|errno| StoreError::Io { action, path: path.to_owned(), source: errno.into() })
    }
}
