//! The process that has imported the target, and what it tells.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::death::PoolError;
use crate::launcher::{Launch, Launcher};
use crate::output;

/// What is to be served, as the guest takes it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Target {
    /// `folder`, `module` or `gym`.
    pub kind: String,
    /// `module:name`, or the id of a gymnasium environment.
    pub target: String,
    /// Folders that come first when importing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Package names and their folders, where the two differ.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub packages: std::collections::BTreeMap<String, String>,
    /// The current directory of workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Whether the light `openenv` answers for the real one.
    #[serde(skip)]
    pub light: bool,
    /// Further variables of workers.
    #[serde(skip)]
    pub env: Vec<(String, String)>,
}

/// What a class says about how it may run.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Facts {
    /// Its name.
    pub class: String,
    /// `SUPPORTS_CONCURRENT_SESSIONS`.
    pub concurrent: bool,
    /// `REQUIRES_SINGLE_THREAD_EXECUTOR`.
    pub single_thread: bool,
    /// Whether its reset or step is a coroutine.
    pub asynchronous: bool,
    /// `ENVHARNESS_CONCURRENCY`: how its author wants it to run.
    pub concurrency: Option<String>,
}

/// The JSON Schemas of a target.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Schemas {
    /// Of an action.
    pub action: Value,
    /// Of an observation.
    pub observation: Value,
    /// Of the state.
    pub state: Value,
    /// Of what reset returns.
    pub reset_observation: Value,
    /// Of what reset takes.
    pub reset: Value,
}

/// What a template tells when it has loaded.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Loaded {
    /// The name of the environment.
    #[serde(default)]
    pub name: String,
    /// The class of its instances, or the name of their factory.
    #[serde(default)]
    pub class: String,
    /// What the class says.
    #[serde(default)]
    pub facts: Facts,
    /// How many sessions its author allows.
    #[serde(default)]
    pub max_sessions: Option<usize>,
    /// After how many idle seconds its author ends a session that no socket holds.
    #[serde(default)]
    pub session_timeout: Option<f64>,
    /// `simulation` or `production`, where the application says so.
    #[serde(default)]
    pub mode: Option<String>,
    /// The schemas.
    #[serde(default)]
    pub schema: Schemas,
    /// The version of pydantic, as in `2.14`.
    #[serde(default)]
    pub pydantic: String,
    /// The version of Python.
    #[serde(default)]
    pub python: String,
    /// What its imports cost.
    #[serde(default)]
    pub import_seconds: f64,
    /// How many modules they loaded.
    #[serde(default)]
    pub modules: usize,
    /// The process that has loaded it.
    #[serde(default)]
    pub pid: i32,
    /// Whether it is an ASGI application instead.
    #[serde(default)]
    pub asgi: bool,
    /// Why its process cannot be forked.
    #[serde(default)]
    pub unforkable: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Told {
    loaded: Option<Loaded>,
    failed: Option<Failed>,
    forked: Option<u32>,
    pid: Option<i32>,
    exited: Option<u32>,
    status: Option<i32>,
}

#[derive(Debug, Deserialize)]
struct Failed {
    message: String,
    kind: String,
    hint: Option<String>,
    missing: Option<String>,
    #[serde(default)]
    traceback: String,
}

/// What a template tells while it lives.
#[derive(Debug)]
pub(crate) enum Event {
    /// A worker was forked.
    Forked(u32, i32),
    /// A worker ended, with its wait status.
    Exited(u32, Option<i32>),
    /// The template itself ended.
    Gone(Option<i32>),
}

/// A loaded template.
#[derive(Debug)]
pub(crate) struct Template {
    control: Mutex<UnixStream>,
    pub(crate) pid: i32,
    pub(crate) loaded: Loaded,
}

impl Template {
    /// Starts a process and waits until it has loaded the target. Its later events go to the receiver.
    pub(crate) async fn start(
        launcher: Arc<dyn Launcher>,
        target: &Target,
        limit: Duration,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Event>), PoolError> {
        let interpreter = launcher.describe();
        let failed = |source: io::Error| PoolError::Start { interpreter: interpreter.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let (pipe, sink) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        // `from_owned_fd` of the reader wants it so.
        rustix::io::ioctl_fionbio(&pipe, true).map_err(|e| failed(e.into()))?;
        let last_output = output::follow(pipe, "template".to_owned()).map_err(failed)?;
        let mut message = serde_json::to_value(target).unwrap_or_default();
        message["op"] = json!("load");
        if target.light {
            message["light"] = json!(launcher.light());
        }
        let mut reading = ours.try_clone().map_err(failed)?;
        let launch = Launch { arguments: vec![launcher.program()], env: target.env.clone(), stdin: OwnedFd::from(theirs), output: sink };
        let (started, wait_started) = tokio::sync::oneshot::channel();
        let (tell, told) = mpsc::unbounded_channel();
        // The process ends with the thread that started it; this thread lives as long as the process is wanted.
        let spawned = std::thread::Builder::new().name("envharness-template".to_owned()).spawn(move || {
            let mut process = match launcher.launch(launch) {
                Ok(process) => process,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(process.child.id()));
            let _ = reading.write_all(format!("{message}\n").as_bytes());
            for line in BufReader::new(&mut reading).lines() {
                let Ok(line) = line else { break };
                match serde_json::from_str::<Told>(&line) {
                    Ok(message) => {
                        if tell.send(Line::Told(Box::new(message))).is_err() {
                            break;
                        }
                    }
                    Err(error) => tracing::error!("a template said what cannot be read: {error}: {line}"),
                }
            }
            // Where the socket closed because the process became a worker, this waits for that worker's end.
            let status = process.child.wait().ok().map(std::os::unix::process::ExitStatusExt::into_raw);
            let _ = tell.send(Line::Ended(status));
        });
        spawned.map_err(failed)?;
        let pid = match wait_started.await {
            Ok(Ok(pid)) => pid,
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => return Err(failed(io::Error::other("its thread ended"))),
        };
        let mut told = told;
        let name = target.target.clone();
        let first = tokio::time::timeout(limit, told.recv()).await;
        let loaded = match first {
            Err(_) => {
                kill(pid);
                return Err(PoolError::Slow { target: name, seconds: limit.as_secs() });
            }
            Ok(Some(Line::Told(message))) => match (message.loaded, message.failed) {
                (Some(loaded), _) => loaded,
                (None, Some(failed)) => {
                    let reason = if failed.kind == "LoadError" { failed.message } else { format!("{}: {}", failed.kind, failed.message) };
                    let Failed { hint, missing, traceback, .. } = failed;
                    return Err(PoolError::Load { target: name, reason, hint, missing, traceback });
                }
                (None, None) => return Err(PoolError::Ended { target: name, reason: "it said something else first".to_owned() }),
            },
            Ok(Some(Line::Ended(status))) => {
                // What it printed is on its way through another pipe.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let printed = last_output.text();
                let (how, ..) = crate::death::explain(status);
                let how = how.replace("the worker of this session", "it");
                return Err(PoolError::Ended { target: name, reason: if printed.is_empty() { how } else { format!("{how}\n{printed}") } });
            }
            Ok(None) => return Err(PoolError::Ended { target: name, reason: "it could not be started".to_owned() }),
        };
        let (events, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(line) = told.recv().await {
                let event = match line {
                    Line::Told(message) => match (message.forked, message.exited) {
                        (Some(worker), _) => Event::Forked(worker, message.pid.unwrap_or(0)),
                        (None, Some(worker)) => Event::Exited(worker, message.status),
                        (None, None) => continue,
                    },
                    Line::Ended(status) => Event::Gone(status),
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        });
        let pid = loaded.pid;
        Ok((Self { control: Mutex::new(ours), pid, loaded }, receiver))
    }

    /// Asks for a worker; its socket and the pipe of its output go along.
    pub(crate) fn order(&self, op: &str, worker: u32, mode: &str, marker: &str, fds: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        let line = format!("{}\n", json!({"op": op, "worker": worker, "mode": mode, "marker": marker}));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        // A line is far shorter than the socket's buffer: it goes out whole.
        sendmsg(control.as_fd(), &[io::IoSlice::new(line.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        // Its end of the socket sees this and the process ends; its workers' sockets are closed by then.
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = control.shutdown(std::net::Shutdown::Both);
    }
}

enum Line {
    Told(Box<Told>),
    Ended(Option<i32>),
}

/// Ends a process that is our own child's.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
