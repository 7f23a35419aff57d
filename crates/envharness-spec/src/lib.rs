//! Specs and locks: what a person asks for, and what that resolved to; and contracts: what an environment takes and gives.
//!
//! A [`Spec`] is read from YAML, TOML, JSON or one of the usual Python requirement files, and is
//! normalised to one canonical form with one digest whatever shape it came in. A [`Lock`] is the
//! spec resolved: every package exact and hashed, per platform, as byte-stable TOML.
//!
//! A [`Contract`] holds the JSON Schemas of an environment; see [`contract`].
//!
//! The crate is pure: it reads no file by itself. Where a format includes others (`-r`, `-c`), the
//! caller passes a [`Files`] that reads them.
//!
//! ```
//! use envharness_spec::{Spec, Format};
//! let spec = Spec::parse("name: demo\ndeps: [numpy==1.24.3]\n", Format::Yaml, "demo.yaml")?;
//! assert_eq!(spec.pip[0].to_string(), "numpy==1.24.3");
//! # Ok::<(), envharness_spec::SpecError>(())
//! ```

mod builder;
mod container;
pub mod contract;
mod digest;
mod error;
pub mod import;
pub mod lock;
mod normalize;
mod requirement;
mod resources;
pub mod source;
mod spec;
mod suggest;
mod task_config;
mod write;

pub use builder::{EnvSpecBuilder, SpecFields};
pub use container::{Access, ContainerOptions, SpecMount};
pub use contract::{Contract, ContractError, Validator};
pub use digest::Digest;
pub use error::SpecError;
pub use import::{Files, Format, NoFiles};
pub use lock::{CondaSource, Lock, LockError, LockedFile, LockedImage, LockedPackage, LockedPython, LockedSource, Platform};
pub use requirement::{Requirement, normalize_name};
pub use resources::{Gpu, Resources, Timeouts, format_bytes, human_bytes, parse_bytes, parse_duration};
pub use source::{Node, Position, Value};
pub use spec::{Backend, ChannelPriority, Compile, Index, Isolation, SecretSource, Spec, TmpPolicy};
pub use suggest::nearest;
pub use task_config::{TaskConfig, spec_from_config};

/// The JSON Schema (2020-12) of a spec file, as published in `schemas/spec.schema.json`.
pub const SPEC_SCHEMA: &str = include_str!("../schemas/spec.schema.json");
