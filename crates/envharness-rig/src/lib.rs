//! From a spec to a process: locks, prefixes, contexts, commands, files.
//!
//! `Spec -> Lock -> Prefix -> Context -> process`, each arrow one function. [`Rig`] is the door: it holds the settings and
//! the store. What happens on the way is told as [`Event`]s; nothing here prints.

mod bytecode;
mod collect;
mod conda;
mod container;
mod context;
mod deadline;
mod environment;
mod error;
mod event;
mod guest;
mod host;
mod image;
mod inspect;
mod interpreter;
mod launch;
mod load;
mod lockfile;
mod prefix;
mod process;
mod resolve;
mod rig;
mod settings;
mod source_tree;
mod terminal;
mod transfer;
mod uv;
mod writable;

pub use context::{Context, ExecOptions, ExitPolicy, Running};
pub use error::{ErrorKind, RigError};
pub use event::{Event, Quiet, Reporter, counted};
pub use image::{StageRequest, Staged, StagedPackage};
pub use inspect::ContextInfo;
pub use interpreter::{Interpreter, discover, query, satisfies};
pub use launch::{end_marked, launch};
pub use load::{DiskFiles, find_project_spec, load_spec};
pub use lockfile::{LockMode, LockRequest};
pub use process::{Input, Output, Stream};
pub use resolve::Upgrade;
pub use rig::{CreateRequest, Rig, Synced};
pub use settings::{Inputs, SETTINGS, Settings, Source};
pub use transfer::Transferred;
