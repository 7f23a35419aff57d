//! The trait that every native environment implements.

use std::fmt::Write as _;

use envharness_spec::contract::Problem;
use serde_json::{Map, Value};

use crate::tensor::{self, RawOutcome};

/// What a reset or a step gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The observation: one JSON value as text, without `reward` and `done`.
    pub observation: Vec<u8>,
    /// The reward of the step; `None` where there is none to give.
    pub reward: Option<f64>,
    /// Whether the episode is over.
    pub done: bool,
}

/// What a reset was asked with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResetArgs {
    /// The seed of the episode; without it the environment goes on with the random numbers it has.
    pub seed: Option<u64>,
    /// The name that the caller gives the episode.
    pub episode_id: Option<String>,
    /// Everything else that was sent; an environment ignores what it does not know.
    pub extra: Map<String, Value>,
}

/// Why a reset or a step did not happen. The instance is as it was before the call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EnvError {
    /// The action does not fit the action schema.
    #[error("the action does not fit: {}", sentence(.0))]
    Invalid(Vec<Problem>),
    /// The environment could not do it; the text is for the caller.
    #[error("{0}")]
    Failed(String),
}

fn sentence(problems: &[Problem]) -> String {
    let mut text = String::new();
    for problem in problems {
        let separator = if text.is_empty() { "" } else { "; " };
        // Writing into a string cannot fail.
        let _ = write!(text, "{separator}{problem}");
    }
    text
}

/// One instance of an environment. It lives in one session and is called by one thread at a time.
pub trait Env: Send {
    /// Begins an episode and gives its first observation.
    fn reset(&mut self, args: &ResetArgs) -> Result<Outcome, EnvError>;

    /// Takes one action, the bytes of a JSON object already known to be JSON.
    fn step(&mut self, action: &[u8]) -> Result<Outcome, EnvError>;

    /// The state of the episode, a JSON object.
    fn state(&self) -> Vec<u8>;

    /// Begins an episode and writes its first observation as raw bytes, of which there are as many as the descriptor's
    /// `spaces` say. An environment without `spaces` cannot do it.
    fn reset_raw(&mut self, args: &ResetArgs, observation: &mut [u8]) -> Result<RawOutcome, EnvError> {
        let _ = (args, observation);
        Err(tensor::unsupported())
    }

    /// Takes one action of raw bytes and writes the observation, as [`Env::reset_raw`] does. It does not allocate.
    fn step_raw(&mut self, action: &[u8], observation: &mut [u8]) -> Result<RawOutcome, EnvError> {
        let _ = (action, observation);
        Err(tensor::unsupported())
    }
}
