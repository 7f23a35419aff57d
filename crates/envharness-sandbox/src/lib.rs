//! Private views, limits and whole-tree ends for the processes of a context.
//!
//! This is the only crate with `unsafe`: each block says why it is sound. Work that has to happen between `fork` and
//! `exec` is planned beforehand as a list of system calls, since the child may not allocate there.
#![expect(unsafe_code, reason = "system calls between fork and exec have no safe face")]

mod child;
mod limits;
mod namespace;
mod plan;
mod tree;
mod view;

pub use child::{ChildOptions, configure};
pub use limits::{Enforcer, Limit, Limits};
pub use namespace::{Namespace, NamespaceChannel};
pub use plan::{Plan, PlanError};
pub use tree::{Tree, lower_priority, processes_by_variable};
pub use view::{Overlay, View, ViewError, namespaces_available, privileged};
