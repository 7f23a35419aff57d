//! From a task to an environment that runs: evidence, decisions with reasons, checks and mends.
//!
//! [`read`] gathers what a task says of itself ([`Evidence`]), without running any of it. [`decide`] turns that into a [`Plan`], of
//! which each part has its reason. [`Rigger`] tries the plan in a context; what fails is looked up in the [`rules`], whose
//! proposals, like an advisor's, pass the [`gate`]. The end is a spec and a lock that passed their check, or an account of what
//! stands in the way.
//!
//! Everything but [`read`] and [`Rigger`] is pure.

pub mod advisor;
mod attempt;
mod course;
pub mod decide;
mod error;
pub mod evidence;
pub mod gate;
mod plan;
mod problem;
mod prove;
pub mod read;
mod rigger;
pub mod rules;
mod survey;
mod table;
mod world;

pub use attempt::Check;
pub use decide::{Decision, Wishes, decide};
pub use error::RiggerError;
pub use evidence::Evidence;
pub use plan::{Change, Origin, Plan, Reasoned, Wanted};
pub use problem::{Problem, Stage};
pub use read::Target;
pub use rigger::{Attempted, Options, Progress, Rigged, Rigger};
pub use table::TABLE;
pub use world::World;
