//! Commands in a context: started, watched, logged.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use envharness_sandbox::{ChildOptions, NamespaceChannel, Plan, Tree, configure};
use envharness_spec::TmpPolicy;

use super::inside::{Inside, Listener};
use super::{Context, PROCESS_OF};
use crate::environment;
use crate::error::{IoContext as _, RigError};
use crate::process::{self, Input, Output, RunLimits, Sink};

/// How a command is run.
#[derive(Default)]
pub struct ExecOptions<'a> {
    /// The directory; the caller's current one by default.
    pub cwd: Option<PathBuf>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
    /// What it reads.
    pub input: Input<'a>,
    /// The longest run; before the spec's.
    pub timeout: Option<Duration>,
    /// The longest silence; before the spec's.
    pub no_output: Option<Duration>,
}

/// A process that the caller drives; its standard streams are piped.
pub struct Running {
    streams: Option<Streams>,
    end: End,
}

/// The callers' ends of a process's input, output and errors.
pub type Streams = (OwnedFd, OwnedFd, OwnedFd);

/// Who knows how it ends.
pub(super) enum End {
    Child(Child, Tree),
    Inside(Inside),
}

impl Running {
    pub(super) fn new(streams: Option<Streams>, end: End) -> Self {
        Self { streams, end }
    }

    /// Input, output and errors; given once.
    pub fn take_streams(&mut self) -> Option<Streams> {
        self.streams.take()
    }

    /// The process id; 0 where another machine's kernel has it.
    pub fn id(&self) -> u32 {
        match &self.end {
            End::Child(child, _) => child.id(),
            End::Inside(inside) => inside.id(),
        }
    }

    /// The exit code once it has ended; 128 and the signal after a death by signal.
    ///
    /// # Errors
    /// [`RigError::Io`], [`RigError::Engine`].
    pub fn poll(&mut self) -> Result<Option<i32>, RigError> {
        match &mut self.end {
            End::Child(child, _) => {
                let place = child.id().to_string();
                let status = child.try_wait().on("wait for", Path::new(&place))?;
                Ok(status.map(process::exit_code))
            }
            End::Inside(inside) => inside.poll(),
        }
    }

    /// Ends it and all that it started; returns who could not be ended.
    pub fn kill(&mut self) -> Vec<u32> {
        match &mut self.end {
            End::Child(child, tree) => {
                let left = tree.kill();
                let _ = child.try_wait();
                left
            }
            End::Inside(inside) => {
                inside.kill();
                Vec::new()
            }
        }
    }

    /// Asks it and all that it started to end.
    pub fn terminate(&self) {
        match &self.end {
            End::Child(_, tree) => tree.terminate(),
            End::Inside(inside) => inside.terminate(),
        }
    }
}

/// Only a namespace that a run has to itself tells its processes from others.
fn channel_for(plan: Option<&Plan>) -> Result<Option<NamespaceChannel>, RigError> {
    let channel = plan.map(|_| NamespaceChannel::new()).transpose();
    channel.map_err(|source| RigError::Io { action: "make a channel to", path: "a child".into(), source })
}

impl Context {
    /// Runs a command and waits for its end. A failing exit code is a result, not an error.
    ///
    /// # Errors
    /// [`RigError::Start`], [`RigError::Timeout`], [`RigError::Interrupted`], [`RigError::Secret`].
    pub fn execute(
        &self,
        argv: &[String],
        options: &ExecOptions<'_>,
        sink: Sink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Output, RigError> {
        let secrets = environment::secrets(&self.settings, &self.spec, interrupted)?;
        let terminal = matches!(options.input, Input::Terminal);
        let timeouts = &self.spec.resources.timeouts;
        let limits = RunLimits {
            timeout: options.timeout.or(timeouts.run),
            no_output: if terminal { None } else { options.no_output.or(timeouts.no_output) },
        };
        if let Some(place) = self.container() {
            let result = self.execute_inside(place, argv, options, &mut Listener { limits, sink, interrupted }, &secrets);
            self.write_log(argv, &result, &secrets);
            self.touch()?;
            return result;
        }
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let mut command = self.command(argv, options, &secrets, &marker)?;
        let plan = self.plan(&self.cwd(options))?;
        let channel = channel_for(plan.as_ref())?;
        configure(
            &mut command,
            &ChildOptions {
                plan,
                // At a terminal the shell's job control and Ctrl-C must reach the command.
                new_session: !matches!(options.input, Input::Terminal | Input::Inherited),
                die_with_parent: true,
                namespace_to: channel.as_ref().map(NamespaceChannel::child_end),
                limits: self.process_limits(),
                ..ChildOptions::default()
            },
        );
        let result = process::run(&mut command, &marker, channel.as_ref(), options.input, limits, sink, interrupted, &mut |tree| {
            self.remember(tree)
        });
        let result = result.map(|output| self.with_hint(output, argv)).map_err(|error| self.explain_start(error, argv));
        self.write_log(argv, &result, &secrets);
        self.touch()?;
        result
    }

    /// Pins the namespace of a run that goes on, for the end of the context.
    fn remember(&self, tree: &Tree) {
        if let Some(namespace) = tree.namespace.clone().filter(|_| !tree.members().is_empty()) {
            self.held().namespaces.push(namespace);
        }
    }

    /// Starts a command with piped streams and returns at once.
    ///
    /// # Errors
    /// [`RigError::Start`], [`RigError::Secret`].
    pub fn spawn(&self, argv: &[String], options: &ExecOptions<'_>) -> Result<Running, RigError> {
        let secrets = environment::secrets(&self.settings, &self.spec, &|| false)?;
        if let Some(place) = self.container() {
            return self.spawn_inside(place, argv, options, &secrets);
        }
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let mut command = self.command(argv, options, &secrets, &marker)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let plan = self.plan(&self.cwd(options))?;
        let channel = channel_for(plan.as_ref())?;
        configure(&mut command, &ChildOptions { plan, new_session: true, limits: self.process_limits(), ..ChildOptions::default() });
        let mut child =
            command.spawn().map_err(|source| self.explain_start(RigError::Start { program: argv[0].clone(), source, hint: None }, argv))?;
        let namespace = channel.as_ref().and_then(NamespaceChannel::receive);
        let tree = Tree { marker, namespace };
        self.remember(&tree);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let streams = match pipes {
            (Some(stdin), Some(stdout), Some(stderr)) => Some((stdin.into(), stdout.into(), stderr.into())),
            _ => None,
        };
        Ok(Running::new(streams, End::Child(child, tree)))
    }

    /// Starts a command that is spoken to over its standard input, with one pipe for all its output. It ends when the calling
    /// thread does.
    ///
    /// # Errors
    /// [`RigError::Start`], [`RigError::Secret`].
    pub fn launch(&self, argv: &[String], options: &ExecOptions<'_>, stdin: OwnedFd, output: OwnedFd) -> Result<Child, RigError> {
        if self.container().is_some() {
            return Err(RigError::NotAvailable("a worker over a socket in a container".into()));
        }
        let start = |source| RigError::Start { program: argv.first().cloned().unwrap_or_default(), source, hint: None };
        let secrets = environment::secrets(&self.settings, &self.spec, &|| false)?;
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let mut command = self.command(argv, options, &secrets, &marker)?;
        command.stdin(stdin).stdout(output.try_clone().map_err(start)?).stderr(output);
        let plan = self.plan(&self.cwd(options))?;
        let limits = self.process_limits();
        configure(&mut command, &ChildOptions { plan, new_session: true, die_with_parent: true, limits, ..ChildOptions::default() });
        command.spawn().map_err(|source| self.explain_start(start(source), argv))
    }

    fn cwd(&self, options: &ExecOptions<'_>) -> PathBuf {
        let current = std::env::current_dir().unwrap_or_else(|_| self.workdir());
        options.cwd.as_ref().map_or(current.clone(), |cwd| current.join(cwd))
    }

    fn command(
        &self,
        argv: &[String],
        options: &ExecOptions<'_>,
        secrets: &BTreeMap<String, String>,
        marker: &str,
    ) -> Result<Command, RigError> {
        let Some((program, args)) = argv.split_first() else {
            return Err(RigError::Context { id: self.id.clone(), reason: "was given an empty command".into(), hint: None });
        };
        if let Some(bad) = argv.iter().find(|arg| arg.contains('\0')) {
            return Err(RigError::Context {
                id: self.id.clone(),
                reason: format!("was given an argument with a NUL byte: {bad:?}"),
                hint: None,
            });
        }
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(self.variables()).envs(secrets).envs(&options.env);
        if let Some((name, value)) = marker.split_once('=') {
            command.env(name, value);
        }
        command.env(PROCESS_OF, &self.id);
        let cwd = self.cwd(options);
        if !self.sees(&cwd) {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(RigError::Io { action: "enter the directory", path: cwd, source });
        }
        if self.view_refused() {
            command.current_dir(cwd);
        }
        Ok(command)
    }

    fn with_hint(&self, mut output: Output, argv: &[String]) -> Output {
        if output.exit_code == 0 || self.spec.tmp == TmpPolicy::Shared || self.view_refused() {
            return output;
        }
        let hidden = argv.iter().find(|arg| arg.starts_with("/tmp/") && Path::new(arg).exists() && !self.place_of(Path::new(arg)).exists());
        output.hint =
            hidden.map(|path| format!("`{path}` is in the host's /tmp, which the context does not see; set `tmp: shared`, or upload it"));
        output
    }

    fn explain_start(&self, error: RigError, argv: &[String]) -> RigError {
        let RigError::Start { program, source, .. } = error else { return error };
        let hint = match source.kind() {
            std::io::ErrorKind::NotFound if argv[0].contains(' ') => {
                Some("a command is a list of words; a shell line goes to `ctx.run`, or to `sh -c`".to_owned())
            }
            std::io::ErrorKind::NotFound => Some("it is neither in the environment nor on PATH".to_owned()),
            std::io::ErrorKind::PermissionDenied => Some("it is not executable".to_owned()),
            _ => None,
        };
        RigError::Start { program, source, hint }
    }

    /// Appends to the log; a failure to do so never breaks a run.
    fn write_log(&self, argv: &[String], result: &Result<Output, RigError>, secrets: &BTreeMap<String, String>) {
        const MOST_LOG: u64 = 16 * 1024 * 1024;
        let path = self.log_path();
        if fs::metadata(&path).is_ok_and(|m| m.len() > MOST_LOG) {
            let _ = fs::rename(&path, path.with_extension("log.1"));
        }
        let (text, end) = match result {
            Ok(output) => (
                String::from_utf8_lossy(&output.logs).into_owned(),
                format!("exit {} after {:.3} s", output.exit_code, output.elapsed.as_secs_f64()),
            ),
            Err(error) => (error.details().join("\n"), error.to_string()),
        };
        let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let entry = environment::mask(&format!("$ {}\n{text}{newline}# {end}\n", argv.join(" ")), secrets);
        if let Ok(mut file) = fs::File::options().create(true).append(true).open(&path) {
            let _ = file.write_all(entry.as_bytes());
        }
    }
}
