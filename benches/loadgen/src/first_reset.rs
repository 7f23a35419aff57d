//! `first-reset`: from the start of a server's process to the first reset it answers.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::session::Session;
use crate::target::{Frames, address};
use crate::usage;

#[derive(Args)]
pub struct Arguments {
    /// Where the server will be; without it the first line with a URL that the command prints says so
    #[arg(long)]
    url: Option<String>,
    /// Longest wait, in seconds
    #[arg(long, default_value_t = 120.0)]
    within: f64,
    #[command(flatten)]
    frames: Frames,
    /// The command that starts the server
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The server, ended with the value.
struct Server(Child);

pub async fn run(arguments: Arguments) -> Result<Value> {
    if let Some(url) = &arguments.url {
        address(url)?;
    }
    let (program, rest) = arguments.command.split_first().context("no command")?;
    let start = Instant::now();
    let mut server = Server(
        Command::new(program)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?,
    );
    let mut url = announced(&mut server, arguments.url.clone());
    let (mut tries, mut said, mut last) = (0_u64, None, "it named no address".to_string());
    loop {
        if start.elapsed().as_secs_f64() > arguments.within {
            bail!("no reset answered within {} s: {last}", arguments.within);
        }
        if let Some(status) = server.0.try_wait()? {
            bail!("the server ended before the first reset: {status}");
        }
        let known = url.borrow_and_update().clone();
        let Some(known) = known else {
            let _ = tokio::time::timeout(Duration::from_millis(50), url.changed()).await;
            continue;
        };
        said.get_or_insert_with(|| start.elapsed().as_secs_f64());
        tries += 1;
        match Session::open(&address(&known)?, &arguments.frames).await {
            Ok((session, _)) => {
                let (wall, cpu) = (start.elapsed().as_secs_f64(), usage::cpu(server.0.id())?);
                let footprint = usage::footprint(server.0.id())?;
                session.close().await;
                return Ok(json!({
                    "mode": "first-reset", "seconds": wall, "server_cpu_seconds": cpu, "address_known_seconds": said, "tries": tries,
                    "footprint": footprint.json(),
                }));
            }
            // Refused until the server listens; a refused connect on loopback costs little, so that 5 ms is fine.
            Err(failure) => {
                last = failure.text;
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// The URL of the socket: the given one at once, else when the server has printed it. The server's output is read to its
/// end, so that it never waits for us.
fn announced(server: &mut Server, url: Option<String>) -> watch::Receiver<Option<String>> {
    let missing = url.is_none();
    let (say, heard) = watch::channel(url);
    if let Some(output) = server.0.stdout.take() {
        std::thread::spawn(move || {
            let mut missing = missing;
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(at) = line.find("http://").filter(|_| missing) {
                    let base = line[at + "http://".len()..].split_whitespace().next().unwrap_or_default().trim_end_matches('/');
                    say.send_replace(Some(format!("ws://{base}/ws")));
                    missing = false;
                }
            }
        });
    }
    heard
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..500 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
