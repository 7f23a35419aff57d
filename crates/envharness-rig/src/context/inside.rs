//! Commands in the container of a context.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use envharness_engine::{Ended, EngineError, ExecSpec, Patient, Stdin};

use super::exec::End;
use super::{Context, ExecOptions, PROCESS_OF, Running};
use crate::container::ContainerPlace;
use crate::error::{IoContext as _, RigError};
use crate::process::{Input, Output, Record, RunLimits, Sink, Stream};
use crate::terminal::Raw;

/// Ends every process that started with a variable of a value, and says how many are left; `$1` is `NAME=VALUE`.
const END: &str = r#"
sweep() { for place in /proc/[0-9]*; do
    tr '\000' '\n' <"$place/environ" 2>/dev/null | grep -qxF -- "$1" && "$2" "${place#/proc/}" 2>/dev/null; done; }
end() { kill "$signal" "$1"; }
count() { case "$(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null)" in Z|'') ;; *) left=$((left + 1)) ;; esac; }
signal="$2"
command -v tr >/dev/null && command -v grep >/dev/null || exit 90
left=0
sweep "$1" end; [ "$signal" != -9 ] || sweep "$1" end; sweep "$1" count
exit $((left > 80 ? 80 : left))
"#;

/// As much of a command's output as a runtime's words may take.
const MOST_WORDS: usize = 4096;
/// Why listening to a command ended before the command did.
enum Stop {
    Time(Duration),
    Silence(Duration),
    Asked,
}

/// Who hears a command, and for how long.
pub(super) struct Listener<'a> {
    pub limits: RunLimits,
    pub sink: Sink<'a>,
    pub interrupted: &'a dyn Fn() -> bool,
}

impl Context {
    /// What a process inside begins with.
    fn exec_spec(
        &self,
        place: &ContainerPlace,
        argv: &[String],
        options: &ExecOptions<'_>,
        secrets: &BTreeMap<String, String>,
        marker: &str,
    ) -> Result<ExecSpec, RigError> {
        let refused = |reason: String| Err(RigError::Context { id: self.id.clone(), reason, hint: None });
        if argv.is_empty() {
            return refused("was given an empty command".into());
        }
        if let Some(bad) = argv.iter().find(|arg| arg.contains('\0')) {
            return refused(format!("was given an argument with a NUL byte: {bad:?}"));
        }
        let mut variables = self.variables();
        variables.extend(secrets.iter().chain(&options.env).map(|(name, value)| (name.clone(), value.clone())));
        variables.insert(PROCESS_OF.into(), self.id.clone());
        if let Some((name, value)) = marker.split_once('=') {
            variables.insert(name.into(), value.into());
        }
        let env = variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let terminal = matches!(options.input, Input::Terminal);
        let cwd = self.cwd_inside(options).display().to_string();
        Ok(ExecSpec { argv: argv.to_vec(), env, cwd, user: place.user.clone(), terminal, pid: None })
    }

    /// The caller's directory where the container sees it, else the context's own.
    fn cwd_inside(&self, options: &ExecOptions<'_>) -> PathBuf {
        let current = std::env::current_dir().unwrap_or_else(|_| self.workdir());
        let wanted = options.cwd.as_ref().map(|cwd| current.join(cwd));
        let visible = self.visible().iter().any(|folder| current.starts_with(folder));
        wanted.unwrap_or(if visible { current } else { self.workdir() })
    }

    /// Runs a command in the container; see [`Context::execute`].
    pub(super) fn execute_inside(
        &self,
        place: &ContainerPlace,
        argv: &[String],
        options: &ExecOptions<'_>,
        listener: &mut Listener<'_>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Output, RigError> {
        self.refresh(place)?;
        self.mark_used()?;
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let spec = self.exec_spec(place, argv, options, secrets, &marker)?;
        let first = self.listen(place, &spec, options, listener, &marker);
        match first {
            // Nothing of it ran: the container was paused, or ended with its engine.
            Err(RigError::Engine(error)) if is_asleep(&error) => {
                self.revive(place)?;
                self.listen(place, &spec, options, listener, &marker)
            }
            other => other,
        }
    }

    fn listen(
        &self,
        place: &ContainerPlace,
        spec: &ExecSpec,
        options: &ExecOptions<'_>,
        listener: &mut Listener<'_>,
        marker: &str,
    ) -> Result<Output, RigError> {
        let Listener { limits, sink, interrupted } = listener;
        let program = spec.argv[0].clone();
        let started = Instant::now();
        let record = std::cell::RefCell::new((Record::default(), started));
        let stop = std::cell::RefCell::new(None);
        let raw = if spec.terminal { Raw::enter() } else { None };
        let size = || raw.as_ref().and_then(Raw::size);
        let mut heard = |is_error: bool, bytes: &[u8]| {
            let stream = if is_error { Stream::Err } else { Stream::Out };
            if spec.terminal {
                crate::terminal::show(bytes);
                return;
            }
            let mut record = record.borrow_mut();
            record.0.push(stream, bytes);
            record.1 = Instant::now();
            drop(record);
            sink(stream, bytes);
        };
        let mut go_on = || {
            let last = record.borrow().1;
            let reason = match (limits.timeout, limits.no_output) {
                _ if interrupted() => Some(Stop::Asked),
                (Some(limit), _) if started.elapsed() >= limit => Some(Stop::Time(limit)),
                (_, Some(limit)) if last.elapsed() >= limit => Some(Stop::Silence(limit)),
                _ => None,
            };
            let go_on = reason.is_none();
            *stop.borrow_mut() = reason;
            go_on
        };
        let ended = place.engine()?.exec(&self.id, spec, stdin_of(options.input)?, &mut heard, &mut go_on, &size);
        drop(raw);
        let record = record.into_inner().0;
        match ended {
            Ok(Ended::Code(code)) => {
                if let Some(error) = not_started(code, &program, &record.printed()) {
                    return Err(error);
                }
                Ok(record.finish(code, started.elapsed(), None))
            }
            Ok(Ended::Left) => {
                self.end_marked(place, marker)?;
                let output = record.printed();
                Err(match stop.into_inner() {
                    Some(Stop::Time(limit)) => RigError::Timeout { action: format!("`{program}`"), limit, output },
                    Some(Stop::Silence(limit)) => RigError::Timeout { action: format!("`{program}` printed nothing and"), limit, output },
                    Some(Stop::Asked) | None => RigError::Interrupted,
                })
            }
            Err(error) => {
                if !is_asleep(&error) {
                    // Whatever was heard last, nothing of the command may run on.
                    let _ = self.end_marked(place, marker);
                }
                Err(of_exec(error, &program))
            }
        }
    }

    /// Ends every process that carries a mark: from outside where this user may, else from inside, else with the container.
    fn end_marked(&self, place: &ContainerPlace, marker: &str) -> Result<(), RigError> {
        let tree = envharness_sandbox::Tree { marker: marker.to_owned(), namespace: None };
        tree.kill();
        if self.is_seen_from_here(place) && tree.members().is_empty() || end_all(place, &self.id, marker, "-9") {
            return Ok(());
        }
        let engine = place.engine()?;
        engine.stop(&self.id, 0, &Patient)?;
        Ok(engine.resume(&self.id, &Patient)?)
    }

    /// Whether this machine's kernel shows the container's processes to this user.
    fn is_seen_from_here(&self, place: &ContainerPlace) -> bool {
        let may = rustix::process::geteuid().is_root() || place.user == "0:0";
        may && self.spec.container.runtime.is_none() && place.address.starts_with("unix://")
    }

    /// Ends what commands left running.
    pub(super) fn end_processes_inside(&self, place: &ContainerPlace) {
        if self.is_seen_from_here(place) {
            return;
        }
        let marker = format!("{PROCESS_OF}={}", self.id);
        if let Err(error) = self.end_marked(place, &marker) {
            tracing::warn!(%error, id = self.id, "what runs in the container was not ended");
        }
    }
}

/// A process in a container, listened to by a thread.
pub(super) struct Inside {
    shared: Arc<Shared>,
    place: ContainerPlace,
    container: String,
    marker: String,
}

#[derive(Default)]
struct Shared {
    pid: AtomicU32,
    ended: Mutex<Option<Result<i32, RigError>>>,
}

impl Inside {
    pub(super) fn id(&self) -> u32 {
        self.shared.pid.load(Ordering::Relaxed)
    }

    pub(super) fn poll(&self) -> Result<Option<i32>, RigError> {
        let mut ended = self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.take() {
            None => Ok(None),
            Some(Ok(code)) => {
                *ended = Some(Ok(code));
                Ok(Some(code))
            }
            Some(Err(error)) => {
                *ended = Some(Ok(-1));
                Err(error)
            }
        }
    }

    pub(super) fn kill(&self) {
        end_all(&self.place, &self.container, &self.marker, "-9");
    }

    pub(super) fn terminate(&self) {
        end_all(&self.place, &self.container, &self.marker, "-15");
    }
}

/// Sends a signal to every process that carries a mark; says whether none of them is left.
fn end_all(place: &ContainerPlace, container: &str, marker: &str, signal: &str) -> bool {
    let argv = ["/bin/sh", "-c", END, "sh", marker, signal].map(str::to_owned).into();
    let spec = ExecSpec { argv, user: place.user.clone(), ..ExecSpec::default() };
    let since = Instant::now();
    let mut go_on = || since.elapsed() < Duration::from_secs(20);
    let ended = place.engine().and_then(|engine| Ok(engine.exec(container, &spec, Stdin::Closed, &mut |_, _| {}, &mut go_on, &|| None)?));
    ended.is_ok_and(|ended| ended == Ended::Code(0))
}

impl Context {
    /// Starts a command in the container; see [`Context::spawn`].
    pub(super) fn spawn_inside(
        &self,
        place: &ContainerPlace,
        argv: &[String],
        options: &ExecOptions<'_>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Running, RigError> {
        self.refresh(place)?;
        self.revive(place)?;
        self.mark_used()?;
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let spec = self.exec_spec(place, argv, options, secrets, &marker)?;
        let pipe = || std::io::pipe().on("make a pipe to", Path::new(&argv[0]));
        let (stdin, stdout, stderr) = (pipe()?, pipe()?, pipe()?);
        let shared = Arc::new(Shared::default());
        let inside = Inside { shared: Arc::clone(&shared), place: place.clone(), container: self.id.clone(), marker };
        let (engine, container, input) = (place.engine()?, self.id.clone(), Stdin::From(stdin.0.into()));
        let (mut out, mut err) = (stdout.1, stderr.1);
        let told = Arc::clone(&shared);
        let (started, wait) = std::sync::mpsc::channel();
        let program = argv[0].clone();
        let over = started.clone();
        let begun = move |pid| {
            told.pid.store(pid, Ordering::Relaxed);
            let _ = started.send(());
        };
        std::thread::spawn(move || {
            let spec = ExecSpec { pid: Some(Box::new(begun)), ..spec };
            let mut first = Vec::new();
            let mut heard = |is_error: bool, bytes: &[u8]| {
                use std::io::Write as _;
                if first.len() < MOST_WORDS {
                    first.extend_from_slice(&bytes[..bytes.len().min(MOST_WORDS)]);
                }
                // A caller that reads no more is no reason to end the command.
                let _ = if is_error { &mut err } else { &mut out }.write_all(bytes);
            };
            let ended = engine.exec(&container, &spec, input, &mut heard, &mut || true, &|| None);
            let ended = match ended {
                Ok(Ended::Code(code)) => not_started(code, &program, &String::from_utf8_lossy(&first)).map_or(Ok(code), Err),
                Ok(Ended::Left) => Ok(-1),
                Err(error) => Err(of_exec(error, &program)),
            };
            *shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            let _ = over.send(());
        });
        // It answers as soon as the command has begun, or failed to.
        let _ = wait.recv();
        if inside.id() == 0 {
            // Over before it was looked at, or never begun; an engine that says neither is not waited for.
            let _ = wait.recv_timeout(Duration::from_secs(10));
        }
        if let Ok(mut ended) = inside.shared.ended.try_lock()
            && matches!(*ended, Some(Err(_)))
            && let Some(Err(error)) = ended.take()
        {
            return Err(error);
        }
        let streams = (stdin.1.into(), stdout.0.into(), stderr.0.into());
        Ok(Running::new(Some(streams), End::Inside(inside)))
    }
}

fn stdin_of(input: Input<'_>) -> Result<Stdin, RigError> {
    Ok(match input {
        Input::Closed => Stdin::Closed,
        Input::Bytes(bytes) => Stdin::Bytes(bytes.to_vec()),
        Input::Inherited | Input::Terminal => {
            let own: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().on("read", Path::new("the standard input"))?;
            Stdin::From(own)
        }
    })
}

/// Whether nothing was run because the container does not run.
fn is_asleep(error: &EngineError) -> bool {
    match error {
        EngineError::NoContainer { .. } => true,
        EngineError::Refused { status: 409 | 500, reason, .. } => {
            ["is not running", "is paused", "not running", "container state improper", "is stopped"]
                .iter()
                .any(|sign| reason.contains(sign))
        }
        _ => false,
    }
}

/// The words of a runtime that found no such program.
fn start_error(program: &str, text: &str) -> Option<RigError> {
    let missing = ["executable file not found", "no such file or directory", "No such file or directory", "not found in $PATH"];
    let (kind, hint) = if text.contains("chdir to cwd") {
        (std::io::ErrorKind::NotFound, "the directory is not in the container; `mounts` gives it more of this machine")
    } else if missing.iter().any(|sign| text.contains(sign)) {
        let line = "a command is a list of words; a shell line goes to `ctx.run`, or to `sh -c`";
        (std::io::ErrorKind::NotFound, if program.contains(' ') { line } else { "it is neither in the environment nor in the image" })
    } else if text.contains("permission denied") {
        (std::io::ErrorKind::PermissionDenied, "it is not executable")
    } else {
        return None;
    };
    Some(RigError::Start { program: program.to_owned(), source: kind.into(), hint: Some(hint.to_owned()) })
}

/// A program that was never started looks like one that ended: the runtime prints why and gives a shell's code.
fn not_started(code: i32, program: &str, printed: &str) -> Option<RigError> {
    let by_runtime = matches!(code, 126 | 127) && (printed.contains("OCI runtime exec failed") || printed.contains("exec failed:"));
    by_runtime.then(|| start_error(program, printed)).flatten()
}

fn of_exec(error: EngineError, program: &str) -> RigError {
    match &error {
        EngineError::Refused { reason, .. } if !is_asleep(&error) => start_error(program, reason).unwrap_or_else(|| error.into()),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_told_from_one_that_failed() {
        let docker = "OCI runtime exec failed: exec failed: unable to start container process: exec: \"nosuch\": executable file not found in $PATH: unknown";
        let error = not_started(126, "nosuch", docker).expect("an error");
        assert!(error.to_string().contains("nosuch") && error.hint().is_some_and(|hint| hint.contains("image")), "{error}");
        assert!(not_started(127, "sh", "sh: 1: nosuch: not found").is_none());
        assert!(not_started(1, "x", docker).is_none());
    }
}
