//! From a target to a running server: where the two halves meet.
//!
//! A target is a folder, `module:name`, `gym:ID` or `native:name`. Its dependencies are rigged where it needs any, workers run
//! in that context or interpreter, and a front serves them. Command line and Python use [`Service`].

mod error;
mod launchers;
mod memory;
mod options;
mod package;
mod prepare;
mod reload;
mod service;
mod target;

pub use error::ServeError;
pub use options::ServeOptions;
pub use package::{EnvPackage, Replacement};
pub use prepare::{contract_of, prepare};
pub use service::Service;
pub use target::TargetName;
