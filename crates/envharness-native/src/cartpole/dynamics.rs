//! The cart, the pole and the rules, without any JSON.

use std::f64::consts::PI;

use crate::env::EnvError;
use crate::random::SplitMix64;

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const TOTAL_MASS: f64 = POLE_MASS + CART_MASS;
/// Half the pole's length.
const LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = POLE_MASS * LENGTH;
const FORCE: f64 = 10.0;
/// Seconds between two states.
const TAU: f64 = 0.02;
pub(super) const THETA_LIMIT: f64 = 12.0 * 2.0 * PI / 360.0;
pub(super) const X_LIMIT: f64 = 2.4;
/// An episode begins within this distance of zero, in every number.
const START: f64 = 0.05;

/// The step at which an episode is cut off.
pub const MAX_STEPS: u32 = 500;

/// What one step of a [`CartPole`] gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transition {
    /// Cart position, cart velocity, pole angle, pole angular velocity.
    pub observation: [f32; 4],
    /// 1.0, also for the step at which the pole falls; 0.0 after it.
    pub reward: f64,
    /// Whether the pole fell or the cart left the track.
    pub terminated: bool,
    /// Whether the episode has had its [`MAX_STEPS`].
    pub truncated: bool,
}

/// Gymnasium's `CartPole-v1`: the same constants, the same Euler step, the same end.
///
/// Episodes start from numbers of [`SplitMix64`] and not of numpy: a seed repeats an episode here,
/// but gives another one than in Gymnasium. From one state and one action on, both agree.
///
/// ```
/// use envharness_native::CartPole;
///
/// let mut pole = CartPole::new();
/// pole.reset(Some(7));
/// let mut steps = 1;
/// while !pole.step_action(steps % 2)?.terminated {
///     steps += 1;
/// }
/// assert!(steps > 5);
/// # Ok::<(), envharness_native::EnvError>(())
/// ```
#[derive(Debug, Clone)]
pub struct CartPole {
    random: SplitMix64,
    /// `None` before the first reset.
    state: Option<[f64; 4]>,
    steps: u32,
    fallen: bool,
}

impl Default for CartPole {
    fn default() -> Self {
        Self::new()
    }
}

impl CartPole {
    /// A cart that still needs its first [`reset`](Self::reset).
    pub fn new() -> Self {
        Self { random: SplitMix64::from_entropy(), state: None, steps: 0, fallen: false }
    }

    /// Begins an episode from four numbers in [-0.05, 0.05). Without a seed the random numbers go on.
    pub fn reset(&mut self, seed: Option<u64>) -> [f32; 4] {
        if let Some(seed) = seed {
            self.random = SplitMix64::new(seed);
        }
        let state = std::array::from_fn(|_| self.random.uniform(-START, START));
        self.set_state(state);
        observe(state)
    }

    /// Begins an episode from a given state: cart position and velocity, pole angle and angular velocity.
    pub fn set_state(&mut self, state: [f64; 4]) {
        self.state = Some(state);
        self.steps = 0;
        self.fallen = false;
    }

    /// The state in full precision; `None` before the first reset.
    pub fn state(&self) -> Option<[f64; 4]> {
        self.state
    }

    /// Pushes the cart to the left (0) or to the right (1).
    ///
    /// As in Gymnasium a step after the end is allowed, earns nothing once the pole has fallen, and
    /// stays an end.
    pub fn step_action(&mut self, action: usize) -> Result<Transition, EnvError> {
        let Some(state) = self.state else {
            return Err(EnvError::Failed("`cartpole` needs a reset before its first step".to_owned()));
        };
        let force = match action {
            0 => -FORCE,
            1 => FORCE,
            _ => return Err(EnvError::Failed(format!("`cartpole` has the actions 0 and 1, and not {action}"))),
        };
        let state = advance(state, force);
        self.state = Some(state);
        self.steps = self.steps.saturating_add(1);
        let [x, _, theta, _] = state;
        let terminated = !(-X_LIMIT..=X_LIMIT).contains(&x) || !(-THETA_LIMIT..=THETA_LIMIT).contains(&theta);
        let reward = if terminated && self.fallen { 0.0 } else { 1.0 };
        self.fallen |= terminated;
        Ok(Transition { observation: observe(state), reward, terminated, truncated: self.steps >= MAX_STEPS })
    }
}

/// One Euler step; the order of the operations is Gymnasium's, so that the floats come out the same.
fn advance([x, x_dot, theta, theta_dot]: [f64; 4], force: f64) -> [f64; 4] {
    let (sin, cos) = (theta.sin(), theta.cos());
    let temp = (force + POLE_MASS_LENGTH * (theta_dot * theta_dot) * sin) / TOTAL_MASS;
    let theta_acc = (GRAVITY * sin - cos * temp) / (LENGTH * (4.0 / 3.0 - POLE_MASS * (cos * cos) / TOTAL_MASS));
    let x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / TOTAL_MASS;
    [x + TAU * x_dot, x_dot + TAU * x_acc, theta + TAU * theta_dot, theta_dot + TAU * theta_acc]
}

#[expect(clippy::cast_possible_truncation, reason = "observations are float32, as in Gymnasium")]
fn observe(state: [f64; 4]) -> [f32; 4] {
    state.map(|value| value as f32)
}
