//! A context: a leased place made from a prefix, and the processes that run in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use envharness_sandbox::{ChildOptions, Enforcer, Limit, Limits, Namespace, Plan, Tree, View, configure, namespaces_available};
use envharness_spec::{Lock, Spec, TmpPolicy};
use envharness_store::{ContextRow, FileLock, Home, Lease, Origin, PrefixUse, State, remove_tree};
use serde::{Deserialize, Serialize};

use crate::environment::{self, Place};
use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Reporter};
use crate::interpreter::Interpreter;
use crate::process::{self, Input, Output, RunLimits, Sink};
use crate::rig::Rig;
use crate::settings::Settings;
use crate::uv::Uv;
use crate::writable::{self, Writable};

/// What becomes of a context when its holder leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitPolicy {
    /// Free for the next `get_context` of the same spec and lock.
    Release,
    /// Stays, and belongs to its maker.
    Keep,
    /// Stays without a process; never reused.
    Suspend,
    /// Goes.
    Destroy,
}

impl ExitPolicy {
    /// Reads `release`, `keep`, `suspend` or `destroy`.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "release" => Self::Release,
            "keep" => Self::Keep,
            "suspend" => Self::Suspend,
            "destroy" => Self::Destroy,
            _ => return None,
        })
    }
}

/// What a row keeps of a context, so that any process can work with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Payload {
    spec: serde_json::Value,
    base: Option<PathBuf>,
    pub prefix: PathBuf,
    pub python: PathBuf,
    pub site_packages: PathBuf,
    pub interpreter: Interpreter,
}

impl Payload {
    pub(crate) fn of(spec: &Spec, prefix: &Path, python: &Path, site_packages: &Path, interpreter: &Interpreter) -> Self {
        Self {
            spec: spec.canonical(),
            base: spec.base.clone(),
            prefix: prefix.to_owned(),
            python: python.to_owned(),
            site_packages: site_packages.to_owned(),
            interpreter: interpreter.clone(),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, RigError> {
        serde_json::from_str(text).map_err(|error| RigError::Context {
            id: String::new(),
            reason: format!("has a row that cannot be read: {error}"),
            hint: Some("remove it with `envharness rm`".into()),
        })
    }

    pub(crate) fn spec(&self) -> Result<Spec, RigError> {
        let mut spec = Spec::from_mapping(&self.spec.to_string(), &envharness_spec::NoFiles)?;
        spec.base.clone_from(&self.base);
        Ok(spec)
    }
}

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

/// A process that the caller drives.
pub struct Running {
    /// The process; its standard streams are piped.
    pub child: Child,
    /// Its whole tree.
    pub tree: Tree,
}

/// A context, held by this process or only worked with.
#[derive(Debug)]
pub struct Context {
    id: String,
    spec: Spec,
    settings: Settings,
    home: Home,
    payload: Payload,
    lock: Option<Lock>,
    origin: Origin,
    guest: PathBuf,
    held: Mutex<Held>,
    reused: bool,
    pid: u32,
}

/// What keeps the context and its prefix while this value lives.
#[derive(Debug, Default)]
struct Held {
    lease: Option<Lease>,
    attached: Option<FileLock>,
    prefix: Option<PrefixUse>,
    /// Mount namespaces of runs that left processes behind.
    namespaces: Vec<Namespace>,
}

impl Context {
    #[expect(clippy::too_many_arguments, reason = "every part comes from another step of the create")]
    pub(crate) fn new(
        rig: &Rig,
        lease: Lease,
        origin: Origin,
        payload: Payload,
        spec: &Spec,
        hold: Option<PrefixUse>,
        guest: PathBuf,
        reused: bool,
    ) -> Self {
        Self {
            id: lease.id.clone(),
            spec: spec.clone(),
            settings: rig.settings.clone(),
            home: rig.home.clone(),
            payload,
            lock: None,
            origin,
            guest,
            held: Mutex::new(Held { lease: Some(lease), prefix: hold, ..Held::default() }),
            reused,
            pid: std::process::id(),
        }
    }

    pub(crate) fn attached(
        rig: &Rig,
        row: ContextRow,
        payload: Payload,
        spec: &Spec,
        hold: Option<PrefixUse>,
        guest: PathBuf,
    ) -> Result<Self, RigError> {
        let attached = rig.home.attach_lock(&row.id)?;
        let context = Self {
            id: row.id,
            spec: spec.clone(),
            settings: rig.settings.clone(),
            home: rig.home.clone(),
            payload,
            lock: None,
            origin: row.origin,
            guest,
            held: Mutex::new(Held { attached: Some(attached), prefix: hold, ..Held::default() }),
            reused: true,
            pid: std::process::id(),
        };
        context.touch()?;
        Ok(context)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> Option<Duration> {
        self.spec.resources.timeouts.idle.or_else(|| self.settings.duration("timeouts.idle"))
    }

    /// Starts the idle time of a context that this process does not hold anew.
    fn touch(&self) -> Result<(), RigError> {
        if self.held().attached.is_some() {
            self.home.touch_context(&self.id, self.idle())?;
        }
        Ok(())
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The spec it was made for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Notes the lock it was made from.
    #[must_use]
    pub(crate) fn with_lock(mut self, lock: Lock) -> Self {
        self.lock = Some(lock);
        self
    }

    /// The lock it was made from; `None` for one that was attached to.
    pub fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// Whether an idle one was taken.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// How the context may change its environment, where it may.
    fn writable(&self) -> Option<Writable> {
        self.spec.writable.then(|| Writable::choose(self.view_refused()))
    }

    /// The environment's folder: the shared prefix, or a writable context's own copy.
    pub fn prefix(&self) -> PathBuf {
        if self.writable() == Some(Writable::Copy) { self.folder().join("env") } else { self.payload.prefix.clone() }
    }

    /// The interpreter to start.
    pub fn python(&self) -> PathBuf {
        if self.writable() == Some(Writable::Copy) { self.prefix().join("bin/python") } else { self.payload.python.clone() }
    }

    /// Makes what a writable context needs before it can run anything; does nothing for others.
    ///
    /// # Errors
    /// [`RigError::Io`].
    pub fn prepare(&self, reporter: &dyn Reporter) -> Result<(), RigError> {
        if self.writable() == Some(Writable::Copy) {
            writable::copy(&self.payload.prefix, &self.folder(), &self.pip_script()?, reporter)?;
        }
        Ok(())
    }

    fn pip_script(&self) -> Result<String, RigError> {
        Ok(Uv::find(&self.settings, &self.home)?.pip_script())
    }

    /// What the interpreter is.
    pub fn interpreter(&self) -> &Interpreter {
        &self.payload.interpreter
    }

    /// The prefix's site-packages.
    pub fn site_packages(&self) -> PathBuf {
        let relative = self.payload.site_packages.strip_prefix(&self.payload.prefix);
        relative.map_or_else(|_| self.payload.site_packages.clone(), |relative| self.prefix().join(relative))
    }

    /// The guest's folder.
    pub fn guest(&self) -> &Path {
        &self.guest
    }

    /// The context's own folder for work.
    pub fn workdir(&self) -> PathBuf {
        self.folder().join("work")
    }

    /// The folder of everything that is the context's.
    pub(crate) fn folder(&self) -> PathBuf {
        self.home.context(&self.id)
    }

    /// Where its log lies.
    pub fn log_path(&self) -> PathBuf {
        self.home.log(&self.id)
    }

    /// The limits and who enforces each.
    pub fn limits(&self) -> Vec<Limit> {
        self.process_limits().enforced()
    }

    fn process_limits(&self) -> Limits {
        let resources = &self.spec.resources;
        Limits { memory: resources.memory, file_size: resources.disk, pids: resources.pids, cpus: resources.cpus }
    }

    pub(crate) fn warn_of_limits(&self, reporter: &dyn Reporter) {
        let open: Vec<&str> = self.limits().iter().filter(|l| l.enforcer == Enforcer::Nothing).map(|l| l.name).collect();
        if !open.is_empty() {
            let message = format!("nothing enforces the limits {} here", open.join(", "));
            reporter.event(&Event::Warning { message, hint: Some("`envharness inspect` shows each limit".into()) });
        }
    }

    /// The variables of its processes, secrets apart.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let python = self.python();
        let workdir = self.workdir();
        environment::of_process(
            &self.settings,
            &self.spec,
            &Place {
                id: &self.id,
                prefix: &self.prefix(),
                bin: python.parent().unwrap_or(Path::new("/")),
                workdir: &workdir,
                guest: &self.guest,
                home: self.home.root(),
                own_tmp: self.spec.tmp == TmpPolicy::Private && !self.view_refused(),
                is_conda: self.prefix().join("conda-meta").is_dir(),
            },
        )
    }

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
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let mut command = self.command(argv, options, &secrets, &marker)?;
        let plan = self.plan(&self.cwd(options))?;
        let viewed = plan.is_some();
        configure(
            &mut command,
            &ChildOptions {
                plan,
                // At a terminal the shell's job control and Ctrl-C must reach the command.
                new_session: !matches!(options.input, Input::Terminal | Input::Inherited),
                die_with_parent: true,
                limits: self.process_limits(),
                ..ChildOptions::default()
            },
        );
        let timeouts = &self.spec.resources.timeouts;
        let limits = RunLimits {
            timeout: options.timeout.or(timeouts.run),
            no_output: if terminal { None } else { options.no_output.or(timeouts.no_output) },
        };
        let result = process::run(&mut command, &marker, viewed, options.input, limits, sink, interrupted, &mut |tree| self.remember(tree));
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
        let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
        let mut command = self.command(argv, options, &secrets, &marker)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let plan = self.plan(&self.cwd(options))?;
        let viewed = plan.is_some();
        configure(&mut command, &ChildOptions { plan, new_session: true, limits: self.process_limits(), ..ChildOptions::default() });
        let child =
            command.spawn().map_err(|source| self.explain_start(RigError::Start { program: argv[0].clone(), source, hint: None }, argv))?;
        let namespace = if viewed { Namespace::of(child.id()) } else { None };
        let tree = Tree { marker, namespace };
        self.remember(&tree);
        Ok(Running { child, tree })
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

    /// Whether a directory is there for the context's processes.
    fn sees(&self, path: &Path) -> bool {
        path.is_dir() || self.place_of(path).is_dir()
    }

    /// Whether `/tmp` is the context's own for a command in `cwd`. In the host's `/tmp` itself it cannot be: the current
    /// directory stays visible.
    fn has_own_tmp(&self, cwd: &Path) -> bool {
        self.spec.tmp == TmpPolicy::Private && cwd != Path::new("/tmp") && !self.view_refused()
    }

    /// Paths of the host that stay visible, also below `/tmp`.
    fn kept(&self, cwd: &Path) -> Vec<PathBuf> {
        let mut kept = vec![self.settings.project.clone(), self.home.root().to_owned(), self.payload.prefix.clone()];
        kept.extend([self.interpreter().prefix.clone(), self.interpreter().path.clone(), PathBuf::from("/tmp/.X11-unix")]);
        kept.extend(self.spec.base.clone());
        if self.spec.writable {
            // What its `pip` needs.
            kept.push(self.home.cache().to_owned());
            kept.extend(Uv::find(&self.settings, &self.home).ok().map(|uv| uv.program().to_owned()));
        }
        if cwd.exists() {
            kept.push(cwd.to_owned());
        }
        kept.retain(|path| path.starts_with("/tmp") && path != Path::new("/tmp"));
        kept
    }

    /// Whether an absolute path is in the context's own `/tmp`.
    pub(crate) fn is_own_tmp(&self, path: &Path) -> bool {
        let cwd = std::env::current_dir().unwrap_or_default();
        path.starts_with("/tmp") && self.has_own_tmp(&cwd) && !self.kept(&cwd).iter().any(|kept| path.starts_with(kept))
    }

    /// Where an absolute path of the context really lies on the host, if it is the context's own.
    pub(crate) fn place_of(&self, path: &Path) -> PathBuf {
        let own = |base: PathBuf, prefix: &str| path.strip_prefix(prefix).map(|rest| base.join(rest)).unwrap_or_default();
        if self.is_own_tmp(path) {
            return own(self.folder().join("tmp"), "/tmp");
        }
        if self.own_folders().iter().any(|folder| path.starts_with(folder)) {
            return own(self.folder().join("root"), "/");
        }
        path.to_owned()
    }

    /// Absolute folders that uploads made: a file each, so that two uploads at once lose none.
    pub(crate) fn own_folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder().join("root.d")).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok()).map(PathBuf::from).collect();
        folders.sort();
        folders
    }

    /// Notes an absolute folder that is the context's own.
    pub(crate) fn add_own_folder(&self, folder: &Path) -> Result<(), RigError> {
        let text = folder.display().to_string();
        let list = self.folder().join("root.d");
        fs::create_dir_all(&list).on("create", &list)?;
        let name = envharness_spec::Digest::of(&text).hex()[..16].to_owned();
        envharness_store::write_atomic(&list.join(name), text.as_bytes())?;
        Ok(())
    }

    /// Whether this machine refuses mount namespaces; asked once per process.
    pub(crate) fn view_refused(&self) -> bool {
        static REFUSED: OnceLock<bool> = OnceLock::new();
        *REFUSED.get_or_init(|| {
            let answer = namespaces_available();
            if let Err(error) = &answer {
                tracing::warn!(%error, "no mount namespaces: /tmp is the host's, and prefixes are read-only by mode alone");
            }
            answer.is_err()
        })
    }

    fn plan(&self, cwd: &Path) -> Result<Option<Plan>, RigError> {
        if self.view_refused() {
            return Ok(None);
        }
        let tmp = self.has_own_tmp(cwd).then(|| self.folder().join("tmp"));
        if let Some(tmp) = &tmp {
            make_tmp(tmp)?;
        }
        let root = self.folder().join("root");
        let folders = self.own_folders().into_iter().map(|path| (root.join(path.strip_prefix("/").unwrap_or(&path)), path)).collect();
        let overlay = match self.writable() {
            Some(Writable::Overlay) => Some(writable::overlay(&self.payload.prefix, &self.folder(), &self.pip_script()?)?),
            _ => None,
        };
        let view = View {
            overlay,
            tmp,
            keep: self.kept(cwd),
            read_only: vec![self.home.prefixes(), self.home.guest(), self.home.bytecode()],
            folders,
            new_root: self.folder().join("newroot"),
            cwd: cwd.to_owned(),
        };
        Ok(Some(view.plan()?))
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

    /// Ends every process of the context; returns who could not be ended.
    pub fn kill_processes(&self) -> Vec<u32> {
        let pinned = std::mem::take(&mut self.held().namespaces);
        let mut left = context_tree(&self.id).kill();
        for namespace in pinned {
            // Also who changed its environment: the namespace tells.
            left.extend(Tree { marker: format!("{PROCESS_OF}={}", self.id), namespace: Some(namespace) }.kill());
        }
        left
    }

    /// Removes everything in it and leaves it as new. Whatever a process put in the place of a folder is removed, not
    /// followed.
    ///
    /// # Errors
    /// [`RigError::Io`].
    pub fn empty(&self) -> Result<(), RigError> {
        let folder = self.folder();
        for entry in fs::read_dir(&folder).on("list", &folder)?.flatten() {
            remove_tree(&entry.path()).on("remove", &entry.path())?;
        }
        fs::create_dir(self.workdir()).on("create", &self.workdir())
    }

    /// Lets go of the context. Does nothing in a forked child, and nothing the second time.
    ///
    /// # Errors
    /// [`RigError::Store`].
    pub fn release(&self, policy: ExitPolicy) -> Result<(), RigError> {
        let (lease, prefix) = {
            let mut held = self.held();
            held.attached = None;
            (held.lease.take(), held.prefix.take())
        };
        let Some(lease) = lease.filter(|_| self.pid == std::process::id()) else { return Ok(()) };
        if policy != ExitPolicy::Keep {
            self.kill_processes();
        }
        let idle = self.idle();
        match policy {
            ExitPolicy::Destroy => self.home.remove_context(lease)?,
            ExitPolicy::Keep => self.home.set_context(&self.id, State::Idle, Origin::Kept, idle, None)?,
            ExitPolicy::Suspend => self.home.set_context(&self.id, State::Suspended, Origin::Kept, idle, None)?,
            ExitPolicy::Release => {
                let origin = if self.origin == Origin::Kept { Origin::Kept } else { Origin::Get };
                self.home.set_context(&self.id, State::Idle, origin, idle, None)?;
            }
        }
        drop(prefix);
        Ok(())
    }
}

/// The variable that marks the processes of a context. Activation does not set it: the caller's own children are not
/// the context's.
pub(crate) const PROCESS_OF: &str = "ENVHARNESS_PROCESS_OF";

/// The processes of a context, as far as their environment tells.
pub(crate) fn context_tree(id: &str) -> Tree {
    Tree { marker: format!("{PROCESS_OF}={id}"), namespace: None }
}

/// `/tmp` is open to everybody and sticky, as programs that drop privileges expect.
fn make_tmp(path: &Path) -> Result<(), RigError> {
    use std::os::unix::fs::PermissionsExt as _;
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).on("create", path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).on("open", path)
}
