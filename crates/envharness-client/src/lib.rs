//! Clients of environment servers.
//!
//! [`open`] gives a [`Session`] on OpenEnv's protocol or, where the server knows it, on `envharness.v1`, whose connections carry
//! many sessions, are made again when they break, and lose and double no step. A [`Vector`] drives many sessions with one call.
//! Sockets are read on a thread of this crate's own, so that pings are answered whatever the caller does.

mod address;
mod call;
mod error;
mod handshake;
mod openenv;
mod pen;
mod runtime;
mod seats;
mod session;
mod settings;
mod socket;
mod stream;
mod trunk;
mod vector;

pub use address::{Address, Way};
pub use call::{Answer, Ask, Outcome, Sink, Slots};
pub use error::ClientError;
pub use openenv::OpenEnvSession;
pub use session::{
    Opening, Session, after_fork, before_fork, capacity, close_all, contract, encoding_for, fetch, forget, open, start, threads,
};
pub use settings::{Proxy, Settings, Speech};
pub use stream::{Dialer, add_dialer, remove_dialer};
pub use trunk::{Seat, Trunk};
pub use vector::{Bell, Outcomes, Vector};
