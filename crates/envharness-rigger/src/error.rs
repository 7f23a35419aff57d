//! Why nothing could be tried.

use std::path::PathBuf;

use envharness_rig::RigError;

use crate::decide::Contradiction;

/// An error on the way from a task to its first attempt. That an attempt fails is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum RiggerError {
    /// The target is nothing that can be rigged.
    #[error("`{target}`: {reason}")]
    Target {
        /// As it was named.
        target: String,
        /// Why.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// The evidence contradicts itself.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The advisor did not do what an advisor does.
    #[error("the advisor `{command}` {reason}")]
    Advisor {
        /// Its command.
        command: String,
        /// What it did.
        reason: String,
    },
    /// A result would replace a file.
    #[error("`{}` is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The rig failed in a way that no other plan changes.
    #[error(transparent)]
    Rig(#[from] RigError),
}

impl RiggerError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Target { hint, .. } => hint.clone(),
            Self::Contradiction(error) => error.hint.clone(),
            Self::Advisor { .. } => Some("it reads one JSON object a line and answers with one, as docs/rigger.md has it".into()),
            Self::Exists { .. } => Some("name another by `--output`, or replace it by `--force`".into()),
            Self::Rig(error) => error.hint(),
        }
    }
}
