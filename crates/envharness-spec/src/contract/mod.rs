//! Contracts: what an environment's action, observation, reset arguments and state look like.
//!
//! A [`Contract`] is four JSON Schemas (2020-12) with the name and version of the package they were
//! built from. Its [digest](Contract::digest) changes when and only when what is accepted or given may
//! have changed, and not when a docstring was edited. A [`Validator`] is one of the schemas compiled; its
//! verdicts are [`Problem`]s in the words of pydantic.
//!
//! ```
//! use envharness_spec::contract::Validator;
//! use serde_json::json;
//!
//! let action = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
//! let validator = Validator::compile(&action)?;
//! assert!(validator.is_valid(&json!({"n": 3})));
//! let problems = validator.problems(&json!({"n": "three"}));
//! assert_eq!(problems[0].to_string(), "n: Input should be a valid integer");
//! # Ok::<(), envharness_spec::contract::ContractError>(())
//! ```

mod alternatives;
mod canonical;
mod document;
mod error;
mod meaning;
mod problem;
mod report;
#[cfg(test)]
mod tests;
mod validator;
mod wording;

pub use canonical::canonical;
pub use document::{Contract, FORMAT, Part};
pub use error::ContractError;
pub use meaning::meaning;
pub use problem::{Loc, Problem};
pub use validator::{Validator, ValidatorOptions};
