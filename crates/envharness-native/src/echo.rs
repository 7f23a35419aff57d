//! `echo`: says back what it is told.

use std::sync::LazyLock;

use envharness_spec::contract::Validator;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::action::{self, ActionSchema, Metadata};
use crate::env::{Env, EnvError, Outcome, ResetArgs};
use crate::episode::{Episode, NoMetadata};
use crate::registry::Descriptor;
use crate::schema;

/// Says each message back; the reward is a tenth of its length in characters, and no episode ends.
#[derive(Debug, Default)]
pub struct Echo {
    episode: Episode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    message: String,
    #[serde(default, rename = "metadata")]
    _metadata: Metadata,
}

#[derive(Serialize)]
struct Observation<'a> {
    metadata: NoMetadata,
    echoed_message: &'a str,
    message_length: usize,
}

impl Observation<'_> {
    fn of(echoed_message: &str, message_length: usize) -> Observation<'_> {
        Observation { metadata: NoMetadata {}, echoed_message, message_length }
    }
}

impl Env for Echo {
    fn reset(&mut self, args: &ResetArgs) -> Result<Outcome, EnvError> {
        self.episode = Episode::begin(args);
        Outcome::of(&Observation::of("ready", 0), 0.0, false)
    }

    fn step(&mut self, action: &[u8]) -> Result<Outcome, EnvError> {
        let action: Action = action::read(action, &SCHEMA)?;
        let length = action.message.chars().count();
        self.episode.step_count += 1;
        #[expect(clippy::cast_precision_loss, reason = "no message has 2^53 characters")]
        Outcome::of(&Observation::of(&action.message, length), length as f64 * 0.1, false)
    }

    fn state(&self) -> Vec<u8> {
        self.episode.to_json()
    }
}

static SCHEMA: ActionSchema = LazyLock::new(|| Validator::compile(&action_schema()));

fn action_schema() -> Value {
    schema::action("EchoAction", &[("message", json!({"title": "Message", "type": "string"}))])
}

fn observation_schema() -> Value {
    schema::observation(
        "EchoObservation",
        &[
            ("echoed_message", json!({"title": "Echoed Message", "type": "string"})),
            ("message_length", json!({"minimum": 0, "title": "Message Length", "type": "integer"})),
        ],
    )
}

/// What a server needs to know of `echo`.
pub(crate) const DESCRIPTOR: Descriptor = Descriptor {
    name: "echo",
    class_name: "Echo",
    description: "Says each message back; the reward is a tenth of its length.",
    action: action_schema,
    observation: observation_schema,
    state: schema::state,
    reset: schema::reset,
    spaces: None,
    make: || Box::new(Echo::default()),
};
