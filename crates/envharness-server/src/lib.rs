//! The front of environment servers: HTTP and WebSocket, sessions, doors, MCP, metrics, traces.
//!
//! A [`Server`] listens, checks who comes in ([`Doors`]), holds sessions and speaks OpenEnv's wire protocol; the environments
//! themselves live behind an [`envharness_worker::Host`]. It prints nothing: what happens goes to `tracing`.

mod answer;
mod config;
mod doors;
mod http;
mod live;
mod mcp;
mod metrics;
mod pages;
mod proxy;
mod served;
mod server;
mod socket;
mod tasks;
mod trace;
mod trunk;
mod ws;

pub use config::{Config, RunMode};
pub use doors::{Doors, Token};
pub use proxy::Upstream;
pub use served::{Origin, Served};
pub use server::{Server, ServerError, ServerHandle};
pub use socket::Place;
