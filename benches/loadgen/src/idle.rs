//! `idle`: what sessions that do nothing cost in memory and threads, and whether they still answer afterwards.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::open::{close, hold};
use crate::tally::{Tally, merged, micros, quantiles};
use crate::target::{Frames, Server, address};
use crate::usage;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    /// Sessions to leave alone
    #[arg(long, default_value_t = 1024)]
    sessions: usize,
    /// How long they are left alone before memory is read
    #[arg(long, default_value_t = 2.0)]
    hold: f64,
    #[command(flatten)]
    frames: Frames,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let address = address(&arguments.server.url)?;
    let settle = Duration::from_secs_f64(arguments.hold);
    // One session first: what a server loads once for all is not charged to those that follow.
    let first = hold(&address, &arguments.frames, 1).await;
    sleep(settle).await;
    let before = usage::footprint(arguments.server.pid)?;

    let held = hold(&address, &arguments.frames, arguments.sessions).await;
    let opened = held.opened;
    sleep(settle).await;
    let with = usage::footprint(arguments.server.pid)?;

    let (mut all, sessions) = held.release().await?;
    let mut stepping: JoinSet<_> = sessions
        .into_iter()
        .map(|mut session| async move {
            let mut tally = Tally::default();
            match session.step().await {
                Ok(time) => tally.steps.push(micros(time)),
                Err(failure) => {
                    tally.failed(failure);
                }
            }
            (tally, session)
        })
        .collect();
    let mut sessions = Vec::new();
    while let Some(result) = stepping.join_next().await {
        let (tally, session) = result?;
        all.add(tally);
        sessions.push(session);
    }
    let (tally, first) = first.release().await?;
    all.add(tally);
    sessions.extend(first);
    close(sessions).await;
    sleep(settle).await;
    let after = usage::footprint(arguments.server.pid)?;

    let result = json!({
        "mode": "idle", "sessions": arguments.sessions, "opened": opened, "answered_a_step_afterwards": all.steps.len(),
        "step": quantiles(&mut all.steps), "before": before.json(), "with": with.json(), "after": after.json(),
        "bytes_per_session": with.each(&before, opened),
    });
    Ok(merged(result, all.common()))
}
