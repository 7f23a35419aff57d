//! `steps`: every session steps in a closed loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::session::Session;
use crate::tally::{Tally, merged, micros, quantiles};
use crate::target::{Address, Frames, Server, address};
use crate::usage;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    /// Sessions that step at the same time
    #[arg(long, default_value_t = 1)]
    sessions: usize,
    /// How long steps are counted
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How long sessions step before that
    #[arg(long, default_value_t = 1.5)]
    warmup: f64,
    /// A pause of each session after each of its steps, in seconds
    #[arg(long, default_value_t = 0.0)]
    pause: f64,
    #[command(flatten)]
    frames: Frames,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Opening,
    Warming,
    Counting,
    Over,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let address = address(&arguments.server.url)?;
    let (phase, seen) = watch::channel(Phase::Opening);
    let (opened, mut openings) = mpsc::channel(arguments.sessions.max(1));
    let gate = Arc::new(Semaphore::new(arguments.frames.in_flight.max(1)));
    let pause = Duration::from_secs_f64(arguments.pause);
    let mut tasks = JoinSet::new();
    for _ in 0..arguments.sessions {
        tasks.spawn(session(address.clone(), arguments.frames.clone(), Arc::clone(&gate), opened.clone(), seen.clone(), pause));
    }
    drop(opened);
    while openings.recv().await.is_some() {}

    phase.send_replace(Phase::Warming);
    sleep(Duration::from_secs_f64(arguments.warmup)).await;
    let (start, server, own) = (Instant::now(), usage::cpu(arguments.server.pid)?, usage::own_cpu());
    phase.send_replace(Phase::Counting);
    sleep(Duration::from_secs_f64(arguments.seconds)).await;
    phase.send_replace(Phase::Over);
    let (wall, server, own) = (start.elapsed().as_secs_f64(), usage::cpu(arguments.server.pid)? - server, usage::own_cpu() - own);

    let mut all = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        all.add(tally?);
    }
    let count = all.steps.len() as f64;
    let each = |seconds: f64| (count > 0.0).then(|| seconds * 1e6 / count);
    let result = json!({
        "mode": "steps", "sessions": arguments.sessions, "steps": all.steps.len(), "seconds": wall,
        "steps_per_second": count / wall, "server_cpu_us_per_step": each(server), "generator_cpu_us_per_step": each(own),
        "server_cores": server / wall, "generator_cores": own / wall, "step": quantiles(&mut all.steps),
    });
    Ok(merged(result, all.common()))
}

async fn session(
    address: Address,
    frames: Frames,
    gate: Arc<Semaphore>,
    opened: mpsc::Sender<()>,
    mut phase: watch::Receiver<Phase>,
    pause: Duration,
) -> Tally {
    let mut tally = Tally::default();
    let permit = gate.acquire().await;
    let result = Session::open(&address, &frames).await;
    drop((permit, opened));
    let mut session = match result {
        Ok((session, how)) => {
            tally.opened(how);
            session
        }
        Err(failure) => {
            tally.failed(failure);
            return tally;
        }
    };
    if let Err(failure) = session.rest(&mut phase, Phase::Opening).await {
        tally.failed(failure);
        return tally;
    }
    loop {
        let result = session.step().await;
        let now = *phase.borrow();
        match result {
            Ok(time) if now == Phase::Counting => tally.steps.push(micros(time)),
            Ok(_) => {}
            Err(failure) => {
                if tally.failed(failure) {
                    return tally;
                }
                // A server that refuses at once is not to be hammered.
                sleep(Duration::from_millis(10)).await;
            }
        }
        if now == Phase::Over {
            break;
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    session.close().await;
    tally
}
