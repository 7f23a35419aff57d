//! `cartpole`: Gymnasium's `CartPole-v1` in Rust.

mod dynamics;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use envharness_spec::contract::Validator;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use dynamics::{CartPole, MAX_STEPS, Transition};
use dynamics::{THETA_LIMIT, X_LIMIT};

use crate::action::{self, ActionSchema, Choice, Metadata};
use crate::env::{Env, EnvError, Outcome, ResetArgs};
use crate::episode::{Episode, NoMetadata};
use crate::registry::Descriptor;
use crate::schema;
use crate::tensor::{self, DType, RawOutcome, TensorSpace, TensorSpaces};

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

    fn reset_raw(&mut self, args: &ResetArgs, observation: &mut [u8]) -> Result<RawOutcome, EnvError> {
        tensor::check_room(observation, SPACES.observation)?;
        tensor::write_f32(self.pole.reset(args.seed), observation);
        self.episode = Episode::begin(args);
        Ok(RawOutcome::BEGUN)
    }

    fn step_raw(&mut self, action: &[u8], observation: &mut [u8]) -> Result<RawOutcome, EnvError> {
        tensor::check_room(observation, SPACES.observation)?;
        let Transition { observation: seen, reward, terminated, truncated } = self.pole.step_action(choice(action)?)?;
        self.episode.step_count += 1;
        tensor::write_f32(seen, observation);
        Ok(RawOutcome { reward, terminated, truncated })
    }
}

const SPACES: TensorSpaces =
    TensorSpaces { action: TensorSpace { dtype: DType::I64, shape: &[] }, observation: TensorSpace { dtype: DType::F32, shape: &[4] } };

/// The action of its bytes, a number of Gymnasium's `Discrete(2)`.
fn choice(action: &[u8]) -> Result<usize, EnvError> {
    let Ok(bytes) = <[u8; 8]>::try_from(action) else {
        return Err(tensor::refused("Discrete(2)", json!(format!("{} bytes in the place of 8", action.len()))));
    };
    match i64::from_le_bytes(bytes) {
        0 => Ok(0),
        1 => Ok(1),
        other => Err(tensor::refused("Discrete(2)", json!(other))),
    }
}

static SCHEMA: ActionSchema = LazyLock::new(|| Validator::compile(&action_schema()));

fn action_schema() -> Value {
    let choice = json!({
        "enum": [0, 1], "title": "Action", "type": "integer",
        "x-space": {"kind": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
    });
    schema::action("CartPoleAction", &[("action", choice)])
}

fn observation_schema() -> Value {
    // As Gymnasium has them: twice the limits, so that the observation that ends an episode is within them.
    #[expect(clippy::cast_possible_truncation, reason = "the bounds are float32, as in Gymnasium")]
    let [x, theta] = [X_LIMIT, THETA_LIMIT].map(|limit| f64::from((limit * 2.0) as f32));
    let floats = json!({
        "items": {"type": "number"}, "maxItems": 4, "minItems": 4, "title": "Observation", "type": "array",
        "x-space": {
            "kind": "Box", "shape": [4], "dtype": "float32",
            "low": [-x, "-inf", -theta, "-inf"], "high": [x, "inf", theta, "inf"]
        }
    });
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
    spaces: Some(|| SPACES),
    make: || Box::new(CartPoleEnv::default()),
};
