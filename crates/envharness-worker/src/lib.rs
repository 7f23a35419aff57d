//! Worker processes that host environments: started from templates, spoken to in batches, watched and replaced.
//!
//! A [`Pool`] serves one target. It has a *template*, a process that has imported the target, forks workers from it, puts
//! sessions onto them and sees to it that a worker that ends or hangs costs its own sessions and nothing else. How a process
//! is started is the business of a [`Launcher`], so that the same pool runs in a plain interpreter and in a rigged context.

mod death;
mod launcher;
mod link;
mod mode;
mod native;
mod output;
mod pool;
mod session;
mod stats;
mod template;
mod worker;

pub use death::{Death, PoolError};
pub use launcher::{Launch, Launcher, Process};
pub use mode::{Limits, Memory, Mode};
pub use native::NativeHost;
pub use pool::{Pool, PoolConfig};
pub use session::{Asked, Failure, Host, Reply, Session};
pub use stats::Stats;
pub use template::{Facts, Loaded, Schemas, Target};
