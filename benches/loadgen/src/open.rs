//! `open`: sessions are opened, so many in flight, and held until all are there.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::session::Session;
use crate::tally::{Tally, merged};
use crate::target::{Address, Frames, Server, address};
use crate::usage;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    /// Sessions to open
    #[arg(long, default_value_t = 1024)]
    sessions: usize,
    #[command(flatten)]
    frames: Frames,
}

/// Sessions that are open and at rest, and what they saw.
pub struct Held {
    phase: watch::Sender<bool>,
    tasks: JoinSet<(Tally, Option<Session>)>,
    /// Sessions that could be opened.
    pub opened: usize,
}

/// Opens sessions and keeps them at rest, answering pings.
pub async fn hold(address: &Address, frames: &Frames, sessions: usize) -> Held {
    let (phase, seen) = watch::channel(true);
    let (done, mut openings) = mpsc::channel(sessions.max(1));
    let gate = Arc::new(Semaphore::new(frames.in_flight.max(1)));
    let mut tasks = JoinSet::new();
    for _ in 0..sessions {
        let (address, frames, gate, done, mut seen) = (address.clone(), frames.clone(), Arc::clone(&gate), done.clone(), seen.clone());
        tasks.spawn(async move {
            let mut tally = Tally::default();
            let permit = gate.acquire().await;
            let result = Session::open(&address, &frames).await;
            drop(permit);
            let _ = done.try_send(result.is_ok());
            drop(done);
            let failure = match result {
                Ok((mut session, how)) => {
                    tally.opened(how);
                    match session.rest(&mut seen, true).await {
                        Ok(()) => return (tally, Some(session)),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            tally.failed(failure);
            (tally, None)
        });
    }
    drop(done);
    let mut opened = 0;
    while let Some(success) = openings.recv().await {
        opened += usize::from(success);
    }
    Held { phase, tasks, opened }
}

impl Held {
    /// Ends the rest and returns the sessions that lasted.
    pub async fn release(mut self) -> Result<(Tally, Vec<Session>)> {
        self.phase.send_replace(false);
        let (mut all, mut sessions) = (Tally::default(), Vec::new());
        while let Some(result) = self.tasks.join_next().await {
            let (tally, session) = result?;
            all.add(tally);
            sessions.extend(session);
        }
        Ok((all, sessions))
    }
}

/// Closes sessions, all at once.
pub async fn close(sessions: Vec<Session>) {
    let closing: JoinSet<()> = sessions.into_iter().map(Session::close).collect();
    closing.join_all().await;
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let address = address(&arguments.server.url)?;
    let (start, server, own) = (Instant::now(), usage::cpu(arguments.server.pid)?, usage::own_cpu());
    let held = hold(&address, &arguments.frames, arguments.sessions).await;
    let (wall, server, own) = (start.elapsed().as_secs_f64(), usage::cpu(arguments.server.pid)? - server, usage::own_cpu() - own);
    let opened = held.opened;
    let (mut all, sessions) = held.release().await?;
    close(sessions).await;
    let each = |seconds: f64| seconds * 1e6 / opened.max(1) as f64;
    let result = json!({
        "mode": "open", "sessions": arguments.sessions, "opened": opened, "in_flight": arguments.frames.in_flight, "seconds": wall,
        "opened_per_second": opened as f64 / wall, "server_cpu_us_per_session": each(server), "generator_cpu_us_per_session": each(own),
    });
    Ok(merged(result, all.common()))
}
