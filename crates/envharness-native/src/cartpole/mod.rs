//! `cartpole`: Gymnasium's `CartPole-v1` in Rust.

mod dynamics;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use envharness_spec::contract::Validator;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use dynamics::{CartPole, MAX_STEPS, Transition};

use crate::action::{self, ActionSchema, Choice, Metadata};
use crate::env::{Env, EnvError, Outcome, ResetArgs};
use crate::episode::{Episode, NoMetadata};
use crate::registry::Descriptor;
use crate::schema;

/// [`CartPole`] behind the JSON of the wire.
#[derive(Debug, Default)]
struct CartPoleEnv {
    pole: CartPole,
    episode: Episode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    #[serde(deserialize_with = "Choice::<2>::read")]
    action: usize,
    #[serde(default, rename = "metadata")]
    _metadata: Metadata,
}

/// The floats are Gymnasium's `float32`, in the shortest text that reads back as the same `float32`.
#[derive(Serialize)]
struct Observation {
    metadata: NoMetadata,
    observation: [f32; 4],
    terminated: bool,
    truncated: bool,
}

impl Env for CartPoleEnv {
    fn reset(&mut self, args: &ResetArgs) -> Result<Outcome, EnvError> {
        let observation = self.pole.reset(args.seed);
        self.episode = Episode::begin(args);
        Outcome::of(&Observation { metadata: NoMetadata {}, observation, terminated: false, truncated: false }, 0.0, false)
    }

    fn step(&mut self, action: &[u8]) -> Result<Outcome, EnvError> {
        let action: Action = action::read(action, &SCHEMA)?;
        let Transition { observation, reward, terminated, truncated } = self.pole.step_action(action.action)?;
        self.episode.step_count += 1;
        Outcome::of(&Observation { metadata: NoMetadata {}, observation, terminated, truncated }, reward, terminated || truncated)
    }

    fn state(&self) -> Vec<u8> {
        self.episode.to_json()
    }
}

static SCHEMA: ActionSchema = LazyLock::new(|| Validator::compile(&action_schema()));

fn action_schema() -> Value {
    schema::action("CartPoleAction", &[("action", json!({"enum": [0, 1], "title": "Action", "type": "integer"}))])
}

fn observation_schema() -> Value {
    let floats = json!({"items": {"type": "number"}, "maxItems": 4, "minItems": 4, "title": "Observation", "type": "array"});
    let flag = |title: &str| json!({"title": title, "type": "boolean"});
    schema::observation(
        "CartPoleObservation",
        &[("observation", floats), ("terminated", flag("Terminated")), ("truncated", flag("Truncated"))],
    )
}

/// What a server needs to know of `cartpole`.
pub(crate) const DESCRIPTOR: Descriptor = Descriptor {
    name: "cartpole",
    class_name: "CartPole",
    description: "Balance a pole on a cart, with the dynamics of Gymnasium's CartPole-v1.",
    action: action_schema,
    observation: observation_schema,
    state: schema::state,
    reset: schema::reset,
    make: || Box::new(CartPoleEnv::default()),
};
