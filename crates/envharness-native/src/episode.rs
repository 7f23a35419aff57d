//! The part of the state that every environment has.

use serde::Serialize;

use crate::env::{EnvError, Outcome, ResetArgs};

/// Which episode it is and how far it is along.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Episode {
    episode_id: Option<String>,
    pub(crate) step_count: u64,
}

impl Episode {
    pub(crate) fn begin(args: &ResetArgs) -> Self {
        Self { episode_id: args.episode_id.clone(), step_count: 0 }
    }

    /// `{"episode_id": .., "step_count": ..}`.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| b"{}".to_vec())
    }
}

/// An empty JSON object, where OpenEnv's observations carry their metadata.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct NoMetadata {}

impl Outcome {
    /// Writes a typed observation.
    pub(crate) fn of(observation: &impl Serialize, reward: f64, done: bool) -> Result<Self, EnvError> {
        let mut bytes = Vec::with_capacity(128);
        serde_json::to_writer(&mut bytes, observation)
            .map_err(|error| EnvError::Failed(format!("failed to write the observation: {error}")))?;
        Ok(Self { observation: bytes, reward: Some(reward), done })
    }
}
