//! Docker and Podman for envharness.
//!
//! [`find`] says where an engine listens, [`Engine`] speaks to it: images, hardened containers, commands and files in them.
//! Every call blocks, ends when its limit is over or its caller asks, and tells what a person can do about a failure. What is
//! made carries [`label`]s, so that a janitor knows whose it is.

mod address;
mod containers;
mod engine;
mod error;
mod exec;
mod files;
mod images;
pub mod label;
mod streams;

pub use address::{Address, Kind, find};
pub use containers::{Container, ContainerSpec, Gpus, Mount, Usage};
pub use engine::{Call, Endless, Engine, Facts, Patient};
pub use error::EngineError;
pub use exec::{Ended, ExecSpec, Stdin};
pub use files::PathStat;
pub use images::{Credentials, ImageFacts, PullStep};
