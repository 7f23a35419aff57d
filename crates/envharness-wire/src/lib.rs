//! Messages, codecs and the worker protocol of environment servers. No I/O.
//!
//! A client's text becomes a [`Request`] that points into the text; a worker's bytes become a reply by splicing. The payload of
//! either is never turned into values here.

mod code;
pub mod frame;
pub mod handshake;
pub mod json;
pub mod reply;
mod request;
pub mod rpc;
pub mod v1;

pub use code::Code;
pub use request::{Refused, Request};
