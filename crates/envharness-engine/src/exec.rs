//! Commands in a container that runs.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::exec::{ResizeExecOptions, StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::engine::{Engine, Patient};
use crate::error::EngineError;
use crate::streams::Feed;

/// How often a running command's caller is asked whether it goes on.
const LOOK: Duration = Duration::from_millis(20);

/// How long a command may take to have a process.
const START: Duration = Duration::from_secs(10);

/// Gets the id of a process once it has begun.
pub type Begun = Box<dyn Fn(u32) + Send>;

/// A command.
#[derive(Default)]
pub struct ExecSpec {
    /// The program and its words.
    pub argv: Vec<String>,
    /// Variables beside the container's, `NAME=VALUE`.
    pub env: Vec<String>,
    /// The folder.
    pub cwd: String,
    /// `uid:gid`; empty for the container's.
    pub user: String,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Gets its process id on the engine's machine.
    pub pid: Option<Begun>,
}

/// What a command reads.
#[derive(Debug)]
pub enum Stdin {
    /// Nothing.
    Closed,
    /// These bytes.
    Bytes(Vec<u8>),
    /// What comes out of a descriptor.
    From(OwnedFd),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(i32),
    /// Its caller stopped listening; it may run on.
    Left,
}

type Output = std::pin::Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
type Input = std::pin::Pin<Box<dyn AsyncWrite + Send>>;

impl Engine {
    /// Runs a command. `sink` gets its output, with whether it is an error's; `go_on` is asked all the while and ends the
    /// listening when it says no; `size` tells columns and rows of a terminal.
    ///
    /// # Errors
    /// [`EngineError`]; a cut connection is one, not an end.
    pub fn exec(
        &self,
        container: &str,
        spec: &ExecSpec,
        stdin: Stdin,
        sink: &mut dyn FnMut(bool, &[u8]),
        go_on: &mut dyn FnMut() -> bool,
        size: &dyn Fn() -> Option<(u16, u16)>,
    ) -> Result<Ended, EngineError> {
        let action = format!("run `{}` in `{container}`", spec.argv.first().map_or("", String::as_str));
        let config = ExecConfig {
            attach_stdin: Some(!matches!(stdin, Stdin::Closed)),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(spec.terminal),
            env: Some(spec.env.clone()),
            cmd: Some(spec.argv.clone()),
            working_dir: Some(spec.cwd.clone()).filter(|cwd| !cwd.is_empty()),
            user: Some(spec.user.clone()).filter(|user| !user.is_empty()),
            ..ExecConfig::default()
        };
        let missing = |error: EngineError| match error {
            error if error.is_missing() => EngineError::NoContainer { name: container.to_owned() },
            other => other,
        };
        let started = self.wait(&action, &Patient, async {
            let exec = self.client().create_exec(container, config).await?;
            let options = StartExecOptions { detach: false, tty: spec.terminal, output_capacity: Some(1 << 16) };
            Ok((exec.id.clone(), self.client().start_exec(&exec.id, Some(options)).await?))
        });
        let (id, attached) = started.map_err(missing)?;
        let StartExecResults::Attached { output, input } = attached else {
            let reason = "it did not attach".to_owned();
            return Err(EngineError::Cut { kind: self.kind(), action, reason });
        };
        if let Some(begun) = &spec.pid {
            begun(self.begun(&action, &id)?);
        }
        let listened = self.listen(&action, &id, output, input, stdin, sink, go_on, size)?;
        if !listened {
            return Ok(Ended::Left);
        }
        let told = self.wait(&action, &Patient, self.client().inspect_exec(&id)).map_err(|error| match error {
            // It ran: what is gone now must not be taken for what never began.
            error if error.is_missing() => {
                EngineError::Cut { kind: self.kind(), action: action.clone(), reason: "the container was removed while it ran".into() }
            }
            other => other,
        })?;
        if told.running.unwrap_or(false) {
            let reason = "its output ended before the command did".to_owned();
            return Err(EngineError::Cut { kind: self.kind(), action, reason });
        }
        Ok(Ended::Code(told.exit_code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-1)))
    }

    /// The process id of a command that was just started; 0 when it ended before it was seen, or never began.
    fn begun(&self, action: &str, id: &str) -> Result<u32, EngineError> {
        let since = Instant::now();
        loop {
            let told = self.wait(action, &Patient, self.client().inspect_exec(id))?;
            let pid = told.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
            // For a moment it has neither an id nor an end.
            if pid != 0 || told.exit_code.is_some() || since.elapsed() > START {
                return Ok(pid);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether it was listened to the end.
    #[expect(clippy::too_many_arguments, reason = "both directions of a conversation, and who may end it")]
    fn listen(
        &self,
        action: &str,
        id: &str,
        mut output: Output,
        mut input: Input,
        stdin: Stdin,
        sink: &mut dyn FnMut(bool, &[u8]),
        go_on: &mut dyn FnMut() -> bool,
        size: &dyn Fn() -> Option<(u16, u16)>,
    ) -> Result<bool, EngineError> {
        let feed = async {
            match stdin {
                Stdin::Closed => return,
                // A command that reads nothing must not stop the rest.
                Stdin::Bytes(bytes) => drop(input.write_all(&bytes).await),
                Stdin::From(source) => {
                    let mut feed = Feed::of(source);
                    while let Some(piece) = feed.next().await {
                        if input.write_all(&piece).await.is_err() || input.flush().await.is_err() {
                            break;
                        }
                    }
                }
            }
            let _ = input.shutdown().await;
        };
        let mut feed = std::pin::pin!(feed);
        let (mut fed, mut shown, mut looked) = (false, None, Instant::now());
        loop {
            let heard = self.run(action, async {
                tokio::select! {
                    piece = output.next() => Heard::Output(piece),
                    () = &mut feed, if !fed => Heard::Fed,
                    () = tokio::time::sleep(LOOK) => Heard::Nothing,
                }
            })?;
            // Outside of the runtime: a callback may speak to the engine itself.
            match heard {
                Heard::Output(None) => return Ok(true),
                Heard::Output(Some(Ok(LogOutput::StdErr { message }))) => sink(true, &message),
                Heard::Output(Some(Ok(piece))) => sink(false, &piece.into_bytes()),
                Heard::Output(Some(Err(error))) => return Err(self.error(action, error)),
                Heard::Fed => fed = true,
                Heard::Nothing => {}
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if !go_on() {
                    return Ok(false);
                }
                if let Some((width, height)) = size().filter(|now| shown != Some(*now)) {
                    shown = Some((width, height));
                    let resized = self.client().resize_exec(id, ResizeExecOptions { height, width });
                    let _ = self.wait(action, &Patient, resized);
                }
            }
        }
    }
}

/// What happens next while a command runs.
enum Heard {
    Output(Option<Result<LogOutput, bollard::errors::Error>>),
    Fed,
    Nothing,
}
