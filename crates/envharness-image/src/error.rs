//! What can go wrong with images.

use std::io;
use std::path::{Path, PathBuf};

/// Who has to do something about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What was asked for.
    Asked,
    /// The disk, the network, another program.
    Outside,
    /// The caller interrupted.
    Interrupted,
}

/// An error of the images.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file operation failed.
    #[error("failed to {action} `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] envharness_store::StoreError),
    /// A name is none.
    #[error("`{name}` is not the name of an image: {reason}")]
    Name {
        /// What was given.
        name: String,
        /// Why not.
        reason: String,
    },
    /// No image has that name.
    #[error("no image `{0}` is in the store")]
    Unknown(String),
    /// A layout or archive cannot be read.
    #[error("`{place}` is not an image that can be read: {reason}")]
    Broken {
        /// The path, or the name.
        place: String,
        /// Why.
        reason: String,
    },
    /// A blob is not what its digest says.
    #[error("the blob {digest} of `{place}` is damaged: {reason}")]
    Damaged {
        /// Its digest.
        digest: String,
        /// Where it came from.
        place: String,
        /// How it differs.
        reason: String,
    },
    /// The base does not fit.
    #[error("{reason}")]
    Base {
        /// Why.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// A file cannot be in an image.
    #[error("`{}` cannot be in an image: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Byte-code could not be compiled.
    #[error("failed to compile byte-code for the image: {reason}")]
    Bytecode {
        /// Why.
        reason: String,
    },
    /// A registry wants other credentials.
    #[error("the registry `{registry}` refused {action}: {reason}")]
    Refused {
        /// The registry.
        registry: String,
        /// What was tried.
        action: String,
        /// What it said.
        reason: String,
    },
    /// A registry does not answer.
    #[error("the registry `{registry}` cannot be reached: {reason}")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The cause.
        reason: String,
    },
    /// A registry has no such image.
    #[error("the registry `{registry}` has no `{name}`")]
    NotThere {
        /// The registry.
        registry: String,
        /// What was asked for.
        name: String,
    },
    /// A registry answered with what cannot be used.
    #[error("the registry `{registry}` failed to {action}: {reason}")]
    Registry {
        /// The registry.
        registry: String,
        /// What was tried.
        action: String,
        /// What it said.
        reason: String,
    },
    /// A file of credentials, or the helper it names, failed.
    #[error("the credentials of `{registry}` cannot be read: {reason}")]
    Credentials {
        /// The registry.
        registry: String,
        /// Why.
        reason: String,
    },
    /// `--offline`, and the network is needed.
    #[error("the registry `{0}` is not asked while offline")]
    Offline(String),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ImageError {
    /// Who has to do something.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Name { .. } | Self::Unknown(_) | Self::Base { .. } | Self::Content { .. } | Self::Offline(_) => Fault::Asked,
            Self::Broken { .. } => Fault::Asked,
            Self::Interrupted => Fault::Interrupted,
            _ => Fault::Outside,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Io { source, .. } if source.raw_os_error() == Some(28) => {
                Some("the disk is full: `envharness image prune` removes layers that no image has".into())
            }
            Self::Name { .. } => Some("write NAME:TAG, such as `trainer:1` or `registry.example.org/team/trainer:1`".into()),
            Self::Unknown(_) => Some("`envharness image list` shows every image; `envharness image pull` fetches one".into()),
            Self::Broken { .. } => Some("give the folder of an OCI layout, an archive of `docker save`, or a root file system".into()),
            Self::Damaged { .. } => Some("fetch or build it again".into()),
            Self::Base { hint, .. } => Some(hint.clone()),
            Self::Content { .. } => Some("remove it, or leave its package out of the spec".into()),
            Self::Refused { registry, .. } => {
                Some(format!("`docker login {registry}` or `podman login {registry}` writes credentials that are read here too"))
            }
            Self::Unreachable { .. } => Some("check the address, the network and the proxy".into()),
            Self::Credentials { .. } => Some("mend ~/.docker/config.json, or name another file in REGISTRY_AUTH_FILE".into()),
            Self::Offline(_) => Some("leave `--offline` away".into()),
            _ => None,
        }
    }

    pub(crate) fn broken(place: impl ToString, reason: impl ToString) -> Self {
        Self::Broken { place: place.to_string(), reason: reason.to_string() }
    }
}

/// Attaches what was tried on which path.
pub(crate) trait IoContext<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, ImageError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn on(self, action: &'static str, path: &Path) -> Result<T, ImageError> {
        self.map_err(|source| ImageError::Io { action, path: path.to_owned(), source })
    }
}
