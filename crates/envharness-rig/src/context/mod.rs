//! A context: a leased place made from a prefix. `exec` runs commands in it, `place` says what they see.

mod container;
mod exec;
mod inside;
mod place;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use envharness_sandbox::{Enforcer, Limit, Limits, Namespace, Tree};
use envharness_spec::{Lock, LockedPackage, LockedSource, Spec, TmpPolicy};
use envharness_store::{ContextRow, FileLock, Home, Lease, Origin, PrefixUse, State, remove_tree};
use serde::{Deserialize, Serialize};

use crate::conda::Activation;
use crate::container::ContainerPlace;
use crate::deadline::Deadline;
use crate::environment::{self, Place};
use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Reporter};
use crate::interpreter::Interpreter;
use crate::rig::{Rig, Synced};
use crate::settings::Settings;
use crate::source_tree;
use crate::uv::Uv;
use crate::writable::{self, Writable};

pub use exec::{ExecOptions, Running};

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
    pub base: Option<PathBuf>,
    pub prefix: PathBuf,
    pub python: PathBuf,
    pub site_packages: PathBuf,
    pub interpreter: Interpreter,
    /// What the activation scripts of conda packages set.
    #[serde(default)]
    pub activation: Activation,
    /// The container that its processes run in.
    #[serde(default)]
    pub container: Option<ContainerPlace>,
    /// The project's folder, which a container sees.
    #[serde(default)]
    pub project: Option<PathBuf>,
    /// Sources that the environment uses where they lie.
    #[serde(default)]
    pub sources: Vec<PathBuf>,
}

impl Payload {
    pub(crate) fn of(settings: &Settings, spec: &Spec, synced: &Synced) -> Self {
        let container = synced.container.clone();
        let base = spec.base.clone().unwrap_or_default();
        let source = |package: &LockedPackage| match &package.source {
            LockedSource::Path { path, editable: true, .. } => Some(source_tree::absolute(path, &base)),
            _ => None,
        };
        Self {
            project: container.as_ref().and_then(|_| Context::project_of(settings, spec)),
            sources: if container.is_some() { synced.lock.packages.iter().filter_map(source).collect() } else { Vec::new() },
            container,
            spec: spec.canonical(),
            base: spec.base.clone(),
            prefix: synced.path.clone(),
            python: synced.python.clone(),
            site_packages: synced.site_packages.clone(),
            interpreter: synced.inside.clone().unwrap_or_else(|| synced.interpreter.clone()),
            activation: synced.activation.clone(),
        }
    }

    /// The limits of a spec and who enforces each.
    pub(crate) fn limits(&self, spec: &Spec) -> Vec<Limit> {
        let limits = limits_of(spec).enforced();
        let Some(place) = &self.container else { return limits };
        let enforcer = match place.cgroup.as_str() {
            "cgroup1" => Enforcer::Cgroup1,
            "cgroup2" => Enforcer::Cgroup2,
            _ => Enforcer::Nothing,
        };
        let by_engine = |limit: Limit| Limit { enforcer: if limit.name == "disk" { Enforcer::Nothing } else { enforcer }, ..limit };
        limits.into_iter().map(by_engine).collect()
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

fn limits_of(spec: &Spec) -> Limits {
    let resources = &spec.resources;
    Limits { memory: resources.memory, file_size: resources.disk, pids: resources.pids, cpus: resources.cpus }
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
    /// Whether a container that is taken again must be made anew: the last one's root or project would stay.
    renewed: bool,
    pid: u32,
}

/// What keeps the context and its prefix while this value lives.
#[derive(Debug, Default)]
pub(super) struct Held {
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
            renewed: false,
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
            renewed: false,
            pid: std::process::id(),
        };
        context.touch()?;
        Ok(context)
    }

    pub(super) fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn idle(&self) -> Option<Duration> {
        self.spec.resources.timeouts.idle.or_else(|| self.settings.duration("timeouts.idle"))
    }

    /// Starts the idle time of a context that this process does not hold anew.
    pub(super) fn touch(&self) -> Result<(), RigError> {
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

    /// Has the container made anew before the next command.
    #[must_use]
    pub(crate) fn renewed(mut self, renewed: bool) -> Self {
        self.renewed = renewed;
        self
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
    pub(super) fn writable(&self) -> Option<Writable> {
        let chosen = || if self.container().is_some() { Writable::Copy } else { Writable::choose(self.view_refused()) };
        // A container without packages of ours has its own root to write to.
        (self.spec.writable && !self.payload.prefix.as_os_str().is_empty()).then(chosen)
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
    pub(crate) fn prepare(&self, deadline: Deadline, reporter: &dyn Reporter) -> Result<(), RigError> {
        if self.writable() == Some(Writable::Copy) {
            writable::copy(&self.payload.prefix, &self.folder(), &self.pip_script()?, reporter)?;
        }
        if self.reused { self.wake() } else { self.prepare_container(deadline, reporter) }
    }

    pub(super) fn pip_script(&self) -> Result<String, RigError> {
        // A container's own: what others install from is not to be written to from inside.
        let cache = if self.container().is_some() { self.folder().join("cache") } else { self.home.cache().join("uv") };
        Ok(Uv::find(&self.settings, &self.home)?.pip_script(&cache))
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
        self.payload.limits(&self.spec)
    }

    pub(super) fn process_limits(&self) -> Limits {
        limits_of(&self.spec)
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
        let inherited = self.container().map(|place| {
            let mut variables = place.variables();
            // The image's own may belong to another user, or to a root that cannot be written to.
            variables.insert("HOME".into(), "/tmp".into());
            for (name, value) in self.network_variables() {
                variables.entry(name).or_insert(value);
            }
            variables
        });
        // What the image itself brings is found by the image's own PATH.
        let bin = if self.prefix().as_os_str().is_empty() { Path::new("") } else { python.parent().unwrap_or(Path::new("/")) };
        environment::of_process(
            &self.settings,
            &self.spec,
            &Place {
                id: &self.id,
                prefix: &self.prefix(),
                bin,
                workdir: &workdir,
                guest: &self.guest,
                home: self.home.root(),
                own_tmp: self.spec.tmp == TmpPolicy::Private && (inherited.is_some() || !self.view_refused()),
                is_conda: self.prefix().join("conda-meta").is_dir(),
                activation: &self.payload.activation,
                inherited: inherited.as_ref(),
            },
        )
    }

    /// Ends every process of the context; returns who could not be ended.
    pub fn kill_processes(&self) -> Vec<u32> {
        if let Some(place) = self.container() {
            self.end_processes_inside(place);
        }
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
        // What a container has mounted stays the same folder.
        let mounted = self
            .container()
            .map(|_| [folder.join("tmp"), self.workdir(), folder.join("calls"), folder.join("container"), folder.join("container.lock")]);
        for entry in fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let path = entry.path();
            // What covers the store has mount points alone in it.
            if mounted.is_some() && entry.file_name().to_string_lossy().starts_with("hidden-") {
                continue;
            }
            if !mounted.as_ref().is_some_and(|mounted| mounted.contains(&path)) {
                remove_tree(&path).on("remove", &path)?;
            } else if path.is_dir() && !path.is_symlink() {
                let seen_at = if path == folder.join("tmp") { Path::new("/tmp") } else { &path };
                clear(&path, seen_at, &self.mount_targets())?;
            }
        }
        if mounted.is_some() {
            return Ok(());
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
        // A paused container keeps its processes as they are.
        let paused = policy == ExitPolicy::Suspend && self.container().is_some();
        if policy != ExitPolicy::Keep && !paused {
            self.kill_processes();
        }
        let idle = self.idle();
        match (policy, self.container()) {
            (ExitPolicy::Destroy, Some(place)) => place.engine()?.remove(&self.id, &envharness_engine::Patient)?,
            (ExitPolicy::Suspend, Some(place)) => self.pause(place)?,
            _ => {}
        }
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

/// Removes what is in a folder that is seen at `at`, but not the mount points in it: a mount goes with its folder, also
/// where another namespace has it.
fn clear(folder: &Path, at: &Path, mounts: &[PathBuf]) -> Result<(), RigError> {
    for entry in fs::read_dir(folder).on("list", folder)?.flatten() {
        let (path, at) = (entry.path(), at.join(entry.file_name()));
        if mounts.contains(&at) {
            continue;
        }
        if mounts.iter().any(|mount| mount.starts_with(&at)) && !path.is_symlink() {
            clear(&path, &at, mounts)?;
        } else {
            remove_tree(&path).on("remove", &path)?;
        }
    }
    Ok(())
}

/// The variable that marks the processes of a context. Activation does not set it: the caller's own children are not
/// the context's.
pub(crate) const PROCESS_OF: &str = "ENVHARNESS_PROCESS_OF";

/// The processes of a context, as far as their environment tells.
pub(crate) fn context_tree(id: &str) -> Tree {
    Tree { marker: format!("{PROCESS_OF}={id}"), namespace: None }
}
