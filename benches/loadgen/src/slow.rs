//! `slow`: steps that take a known time in the environment; what the server adds is the rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::open::{close, hold};
use crate::tally::{Tally, merged, micros, quantiles};
use crate::target::{Frames, Server, address};
use crate::usage;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    /// Sessions that step at the same time
    #[arg(long, default_value_t = 1024)]
    sessions: usize,
    /// Steps of each session
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// How long the environment takes for a step, in seconds
    #[arg(long, default_value_t = 1.0)]
    delay: f64,
    /// Sessions take their first step evenly spread over so many seconds; 0 for all at one instant
    #[arg(long, default_value_t = 1.0)]
    spread: f64,
    #[command(flatten)]
    frames: Frames,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let address = address(&arguments.server.url)?;
    let (start, server, own) = (Instant::now(), usage::cpu(arguments.server.pid)?, usage::own_cpu());
    let held = hold(&address, &arguments.frames, arguments.sessions).await;
    let opening = start.elapsed().as_secs_f64();
    let (opened, opening_cpu) = (held.opened, usage::cpu(arguments.server.pid)? - server);
    sleep(Duration::from_millis(500)).await;
    let with = usage::footprint(arguments.server.pid)?;
    let (mut all, sessions) = held.release().await?;

    let (start, server) = (Instant::now(), usage::cpu(arguments.server.pid)?);
    let begin = tokio::time::Instant::now() + Duration::from_millis(100);
    let (steps, delay, count) = (arguments.steps, Duration::from_secs_f64(arguments.delay), sessions.len().max(1));
    let succeeded = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks: JoinSet<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(number, mut session)| {
            let offset = Duration::from_secs_f64(arguments.spread * number as f64 / count as f64);
            let succeeded = Arc::clone(&succeeded);
            async move {
                sleep_until(begin + offset).await;
                let mut tally = Tally::default();
                for _ in 0..steps {
                    match session.step().await {
                        Ok(time) => tally.steps.push(micros(time)),
                        Err(failure) => {
                            tally.failed(failure);
                            return (tally, session);
                        }
                    }
                }
                succeeded.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                (tally, session)
            }
        })
        .collect();
    let mut sessions = Vec::new();
    while let Some(result) = tasks.join_next().await {
        let (tally, session) = result?;
        all.add(tally);
        sessions.push(session);
    }
    let (wall, server, own) = (start.elapsed().as_secs_f64(), usage::cpu(arguments.server.pid)? - server, usage::own_cpu() - own);
    close(sessions).await;

    let done = all.steps.len().max(1) as f64;
    let early = all.steps.iter().filter(|&&time| time < micros(delay)).count();
    let mut added: Vec<u32> = all.steps.iter().map(|time| time.saturating_sub(micros(delay))).collect();
    let succeeded = succeeded.load(std::sync::atomic::Ordering::Relaxed);
    let result = json!({
        "mode": "slow", "sessions": arguments.sessions, "opened": opened, "succeeded": succeeded,
        "success_share": succeeded as f64 / arguments.sessions.max(1) as f64, "steps": all.steps.len(), "earlier_than_the_delay": early,
        "step": quantiles(&mut all.steps), "added": quantiles(&mut added), "seconds": wall, "opening_seconds": opening,
        "server_cpu_us_per_session_opened": opening_cpu * 1e6 / opened.max(1) as f64, "server_cpu_us_per_step": server * 1e6 / done,
        "generator_cpu_seconds": own, "with": with.json(),
    });
    Ok(merged(result, all.common()))
}
