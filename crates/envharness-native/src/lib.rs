//! Environments written in Rust, and the trait behind them.
//!
//! An [`Env`] is one instance of an environment: `reset`, `step` and `state` over JSON bytes, as
//! they travel on the wire, and where its values are single tensors `reset_raw` and `step_raw` over the bytes of those. A [`Descriptor`] is the kind: its name, the JSON Schemas of what it
//! takes and gives, and how to make an instance. A server hosts them without any Python; a test or a
//! benchmark uses them as environments that cost next to nothing.
//!
//! The schemas and the errors have the shape that pydantic gives them, and an action is judged as
//! a pydantic model of the same fields judges it, so that a client cannot tell such an environment
//! from one written in Python.
//!
//! ```
//! use envharness_native::{ResetArgs, find};
//!
//! let mut env = (find("cartpole").ok_or("no such environment")?.make)();
//! env.reset(&ResetArgs { seed: Some(7), ..ResetArgs::default() })?;
//! let outcome = env.step(br#"{"action": 1}"#)?;
//! assert_eq!(outcome.reward, Some(1.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
mod cartpole;
mod echo;
mod env;
mod episode;
mod grid_world;
mod random;
mod registry;
mod schema;
mod tensor;

pub use cartpole::{CartPole, MAX_STEPS, Transition};
pub use echo::Echo;
pub use env::{Env, EnvError, Outcome, ResetArgs};
pub use envharness_spec::contract::{Loc, Problem};
pub use grid_world::GridWorld;
pub use random::SplitMix64;
pub use registry::{Descriptor, all, find};
pub use tensor::{DType, RawOutcome, TensorSpace, TensorSpaces};
