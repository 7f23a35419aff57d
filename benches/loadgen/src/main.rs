//! Drives environment servers with many sessions and prints what that cost: one JSON object a run, on standard output.
//!
//! A session is one WebSocket to `/ws` with one outstanding request (a closed loop). Frames are plain text:
//! permessage-deflate is not offered, so that no server pays for it. All sessions share one thread, so the generator takes
//! one core at most; its own CPU time is in the result, to see where it is the limit.

mod first_reset;
mod idle;
mod open;
mod session;
mod slow;
mod steps;
mod tally;
mod target;
mod usage;

use std::io::Write;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};

/// Drives an environment server on this machine with many sessions.
#[derive(Parser)]
#[command(name = "envharness-loadgen", version)]
struct Arguments {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Steps in a closed loop: CPU time of the server a step, steps a second, latencies.
    Steps(steps::Arguments),
    /// Opens sessions (connect and reset), so many in flight, and holds them: sessions a second and CPU time each.
    Open(open::Arguments),
    /// Opens sessions and leaves them alone: memory and threads of the server, before, with them and after.
    Idle(idle::Arguments),
    /// Steps that take a known time in the environment: success share, and the latency beyond that time.
    Slow(slow::Arguments),
    /// Starts a server and measures how long it takes until the first reset is answered.
    FirstReset(first_reset::Arguments),
}

fn main() -> Result<()> {
    let mode = Arguments::parse().mode;
    let limit = raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let mut result = runtime.block_on(async {
        match mode {
            Mode::Steps(arguments) => steps::run(arguments).await,
            Mode::Open(arguments) => open::run(arguments).await,
            Mode::Idle(arguments) => idle::run(arguments).await,
            Mode::Slow(arguments) => slow::run(arguments).await,
            Mode::FirstReset(arguments) => first_reset::run(arguments).await,
        }
    })?;
    if let Value::Object(keys) = &mut result {
        keys.insert("open_files_limit".into(), json!(limit));
    }
    writeln!(std::io::stdout(), "{result}").context("cannot write the result")
}

/// Lifts the soft limit on open files to the hard one and returns what holds then.
fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it was; a run that needs more fails with the name of the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    getrlimit(Resource::Nofile).current
}
