//! The native environments by name.

use serde_json::Value;

use crate::env::Env;
use crate::tensor::TensorSpaces;
use crate::{cartpole, echo, grid_world};

/// A kind of environment: what a server tells of it, and how to make one.
///
/// The schemas are JSON Schemas (2020-12) as pydantic writes them for OpenEnv's models.
#[derive(Debug)]
pub struct Descriptor {
    /// The name it is asked for by, such as `cartpole`.
    pub name: &'static str,
    /// The name of the type, such as `CartPole`; OpenEnv's `/metadata` shows a class name.
    pub class_name: &'static str,
    /// What it is, in one sentence.
    pub description: &'static str,
    /// The schema of an action.
    pub action: fn() -> Value,
    /// The schema of an observation, with `reward` and `done`, which the wire carries beside it.
    pub observation: fn() -> Value,
    /// The schema of the state.
    pub state: fn() -> Value,
    /// The schema of the reset arguments.
    pub reset: fn() -> Value,
    /// The raw values of its actions and observations, where both are single tensors.
    pub spaces: Option<fn() -> TensorSpaces>,
    /// Makes an instance.
    pub make: fn() -> Box<dyn Env>,
}

static ALL: [Descriptor; 3] = [cartpole::DESCRIPTOR, echo::DESCRIPTOR, grid_world::DESCRIPTOR];

/// All native environments, by name.
pub fn all() -> &'static [Descriptor] {
    &ALL
}

/// The native environment of a name.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    ALL.iter().find(|descriptor| descriptor.name == name)
}
