//! `grid_world`: from one corner of a small grid to the other.

use std::sync::LazyLock;

use envharness_spec::contract::Validator;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::action::{self, ActionSchema, Metadata};
use crate::env::{Env, EnvError, Outcome, ResetArgs};
use crate::episode::{Episode, NoMetadata};
use crate::registry::Descriptor;
use crate::schema;

const SIZE: u8 = 5;
const GOAL: [u8; 2] = [SIZE - 1, SIZE - 1];

/// A 5 by 5 grid: from `[0, 0]` to the goal at `[4, 4]`, a tenth of a point lost a step, one won at the goal.
///
/// As in OpenEnv's environment of this name `x` is the row, so `UP` and `DOWN` change `x`, and a move
/// against the wall is a step that changes nothing. There is nothing random in it.
#[derive(Debug, Default)]
pub struct GridWorld {
    x: u8,
    y: u8,
    episode: Episode,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Move {
    Up,
    Down,
    Left,
    Right,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    action: Move,
    #[serde(default, rename = "metadata")]
    _metadata: Metadata,
}

#[derive(Serialize)]
struct Observation {
    metadata: NoMetadata,
    x: u8,
    y: u8,
    goal: [u8; 2],
    message: &'static str,
}

impl GridWorld {
    fn outcome(&self, message: &'static str, reward: f64, done: bool) -> Result<Outcome, EnvError> {
        Outcome::of(&Observation { metadata: NoMetadata {}, x: self.x, y: self.y, goal: GOAL, message }, reward, done)
    }
}

impl Env for GridWorld {
    fn reset(&mut self, args: &ResetArgs) -> Result<Outcome, EnvError> {
        *self = Self { x: 0, y: 0, episode: Episode::begin(args) };
        self.outcome("The goal is at [4, 4].", 0.0, false)
    }

    fn step(&mut self, action: &[u8]) -> Result<Outcome, EnvError> {
        let action: Action = action::read(action, &SCHEMA)?;
        let last = SIZE - 1;
        match action.action {
            Move::Up => self.x = self.x.saturating_sub(1),
            Move::Down => self.x = (self.x + 1).min(last),
            Move::Left => self.y = self.y.saturating_sub(1),
            Move::Right => self.y = (self.y + 1).min(last),
        }
        self.episode.step_count += 1;
        match [self.x, self.y] == GOAL {
            true => self.outcome("You are at the goal.", 1.0, true),
            false => self.outcome("Not there yet.", -0.1, false),
        }
    }

    fn state(&self) -> Vec<u8> {
        self.episode.to_json()
    }
}

static SCHEMA: ActionSchema = LazyLock::new(|| Validator::compile(&action_schema()));

fn action_schema() -> Value {
    schema::action("GridWorldAction", &[("action", json!({"enum": ["UP", "DOWN", "LEFT", "RIGHT"], "title": "Action", "type": "string"}))])
}

fn observation_schema() -> Value {
    let coordinate = |title: &str| json!({"maximum": SIZE - 1, "minimum": 0, "title": title, "type": "integer"});
    let pair = json!({
        "maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "integer"}], "title": "Goal", "type": "array"
    });
    schema::observation(
        "GridWorldObservation",
        &[("x", coordinate("X")), ("y", coordinate("Y")), ("goal", pair), ("message", json!({"title": "Message", "type": "string"}))],
    )
}

/// What a server needs to know of `grid_world`.
pub(crate) const DESCRIPTOR: Descriptor = Descriptor {
    name: "grid_world",
    class_name: "GridWorld",
    description: "Find the way from one corner of a 5 by 5 grid to the other.",
    action: action_schema,
    observation: observation_schema,
    state: schema::state,
    reset: schema::reset,
    spaces: None,
    make: || Box::new(GridWorld::default()),
};
