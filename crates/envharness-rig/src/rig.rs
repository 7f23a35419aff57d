//! The door: settings, store, and the way from a spec to a context.

use std::path::PathBuf;
use std::time::Duration;

use envharness_spec::{Backend, Compile, Gpu, Lock, Spec};
use envharness_store::{Acquired, Home, Lease, NewContext, Origin, PrefixUse, State};

use crate::bytecode::{self, Urgency};
use crate::conda::{self, Activation};
use crate::container::{self, ContainerPlace};
use crate::context::{Context, ExitPolicy, Payload};
use crate::deadline::Deadline;
use crate::environment::gpus_present;
use crate::error::RigError;
use crate::event::{Event, Reporter};
use crate::host;
use crate::interpreter::{self, Interpreter};
use crate::lockfile::{self, LockRequest};
use crate::prefix::{Base, Builder, key, report_quarantine, site_packages};
use crate::resolve::{Resolver, addresses, export_pylock, refuse_unavailable};
use crate::settings::Settings;
use crate::{collect, guest};

/// The settings and the store of one user.
#[derive(Debug, Clone)]
pub struct Rig {
    /// The settings.
    pub settings: Settings,
    /// The store.
    pub home: Home,
}

/// How a context is to be made.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// Whose it will be.
    pub origin: Origin,
    /// Whether an idle one may be taken.
    pub find_idle: bool,
    /// Whether one that is taken is emptied first.
    pub fresh: bool,
    /// What may happen to the lock.
    pub lock: LockRequest,
    /// The longest time; before the spec's and the settings'.
    pub timeout: Option<Duration>,
}

impl Default for CreateRequest {
    fn default() -> Self {
        Self { origin: Origin::Create, find_idle: false, fresh: true, lock: LockRequest::default(), timeout: None }
    }
}

/// A prefix that is there.
#[derive(Debug)]
pub struct Synced {
    /// Its key; empty for an adopted environment.
    pub key: String,
    /// Its folder.
    pub path: PathBuf,
    /// The interpreter to start.
    pub python: PathBuf,
    /// The lock it was made from.
    pub lock: Lock,
    pub(crate) interpreter: Interpreter,
    pub(crate) site_packages: PathBuf,
    pub(crate) activation: Activation,
    /// The container's part.
    pub(crate) container: Option<ContainerPlace>,
    /// The interpreter of a container's image.
    pub(crate) inside: Option<Interpreter>,
    pub(crate) hold: Option<PrefixUse>,
}

impl Rig {
    /// Opens the store that the settings name.
    ///
    /// # Errors
    /// [`RigError::Store`].
    pub fn new(settings: Settings) -> Result<Self, RigError> {
        let home = settings.open_home()?;
        Ok(Self { settings, home })
    }

    /// The folder of the code that runs inside, written if it is not there.
    ///
    /// # Errors
    /// [`RigError::Io`].
    pub fn guest(&self) -> Result<PathBuf, RigError> {
        guest::ensure(&self.home)
    }

    /// The longest time a create of this spec may take.
    pub(crate) fn deadline(&self, spec: &Spec, timeout: Option<Duration>) -> Deadline {
        Deadline::new(timeout.or(spec.resources.timeouts.create).or_else(|| self.settings.duration("timeouts.create")))
    }

    fn resolver<'a>(&'a self, deadline: Deadline, reporter: &'a dyn Reporter) -> Resolver<'a> {
        Resolver { settings: &self.settings, home: &self.home, reporter, deadline }
    }

    /// The spec's backend, the settings' where the spec leaves it open.
    fn with_backend(&self, spec: &Spec) -> Spec {
        let mut spec = spec.clone();
        let open = spec.backend == Backend::Auto && spec.conda.is_empty() && spec.image.is_none();
        if let Some(backend) = Backend::parse(self.settings.text("backend")).filter(|_| open) {
            spec.backend = backend;
        }
        spec
    }

    /// The lock of a spec, made or read.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn lock(&self, spec: &Spec, request: &LockRequest, reporter: &dyn Reporter) -> Result<Lock, RigError> {
        let spec = self.with_backend(spec);
        lockfile::obtain(&self.resolver(self.deadline(&spec, None), reporter), &spec, request)
    }

    /// Where the lock of a spec lies.
    pub fn lock_path(&self, spec: &Spec) -> PathBuf {
        lockfile::path_of(&self.resolver(Deadline::new(None), &crate::Quiet), &self.with_backend(spec))
    }

    /// A lock as PEP 751 `pylock.toml`.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn export_pylock(&self, spec: &Spec, lock: &Lock, reporter: &dyn Reporter) -> Result<String, RigError> {
        let platform = envharness_spec::Platform::current();
        export_pylock(&self.resolver(self.deadline(spec, None), reporter), spec, lock, &platform)
    }

    /// SHA-256 (hex) and address of every file of a lock's index packages.
    pub(crate) fn pip_addresses(
        &self,
        spec: &Spec,
        lock: &Lock,
        platform: &envharness_spec::Platform,
        reporter: &dyn Reporter,
    ) -> Result<Vec<(String, String)>, RigError> {
        Ok(addresses(&export_pylock(&self.resolver(self.deadline(spec, None), reporter), spec, lock, platform)?))
    }

    /// Makes the prefix of a spec without a context.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn sync(&self, spec: &Spec, request: &LockRequest, reporter: &dyn Reporter) -> Result<Synced, RigError> {
        let spec = self.with_backend(spec);
        let deadline = self.deadline(&spec, None);
        let synced = self.sync_by(&spec, request, deadline, reporter)?;
        self.compile_as_asked(&spec, &synced, reporter)?;
        Ok(synced)
    }

    fn sync_by(&self, spec: &Spec, request: &LockRequest, deadline: Deadline, reporter: &dyn Reporter) -> Result<Synced, RigError> {
        let lock = lockfile::obtain(&self.resolver(deadline, reporter), spec, request)?;
        self.sync_lock(spec, lock, deadline, reporter)
    }

    fn sync_lock(&self, spec: &Spec, lock: Lock, deadline: Deadline, reporter: &dyn Reporter) -> Result<Synced, RigError> {
        if spec.chosen_backend() == Backend::Host {
            let adopted = host::find(&self.settings, &self.home, spec)?;
            let path = adopted.python.parent().and_then(std::path::Path::parent).unwrap_or(std::path::Path::new("/")).to_owned();
            let host::Adopted { python, interpreter, site_packages } = adopted;
            let activation = Activation::default();
            return Ok(Synced {
                key: String::new(),
                path,
                python,
                lock,
                interpreter,
                site_packages,
                activation,
                container: None,
                inside: None,
                hold: None,
            });
        }
        if spec.is_container() {
            return self.sync_container(spec, lock, deadline, reporter);
        }
        let builder = Builder { settings: &self.settings, home: &self.home, reporter, deadline };
        if lock.backend == Backend::Conda {
            let hold = builder.obtain(&lock, spec, Base::Inside)?;
            return self.synced(lock, None, hold);
        }
        let interpreter = interpreter::for_lock(&self.settings, &self.home, spec, &lock.python.version)?;
        let hold = builder.obtain(&lock, spec, Base::Machine(&interpreter))?;
        self.synced(lock, Some(interpreter), hold)
    }

    /// What is known of a prefix in hand; a conda prefix's interpreter is its own.
    pub(crate) fn synced(&self, lock: Lock, interpreter: Option<Interpreter>, hold: PrefixUse) -> Result<Synced, RigError> {
        let python = conda::python_of(&hold.path);
        let (interpreter, activation) = match interpreter {
            Some(interpreter) => (interpreter, Activation::default()),
            None => {
                let activation = conda::activation_of(&self.home, &self.settings, &hold.key, &hold.path)?;
                (interpreter::query(&self.home, &python)?, activation)
            }
        };
        Ok(Synced {
            key: hold.key.clone(),
            site_packages: site_packages(&hold.path, &interpreter),
            path: hold.path.clone(),
            python,
            lock,
            interpreter,
            activation,
            container: None,
            inside: None,
            hold: Some(hold),
        })
    }

    fn compile_as_asked(&self, spec: &Spec, synced: &Synced, reporter: &dyn Reporter) -> Result<(), RigError> {
        if synced.hold.is_none() {
            return Ok(());
        }
        let setting = Compile::parse(self.settings.text("compile")).unwrap_or_default();
        match if spec.compile == Compile::Lazy { setting } else { spec.compile } {
            Compile::Never => {}
            Compile::Eager => {
                reporter.event(&Event::Compiling { packages: synced.lock.packages.len() });
                bytecode::compile(&self.home, &synced.key, &synced.interpreter, Urgency::Now)?;
            }
            Compile::Lazy => bytecode::spawn(&self.home, &synced.key, &synced.interpreter),
        }
        Ok(())
    }

    /// Compiles the byte-code of a spec's prefix and waits for it; returns how many files were added.
    ///
    /// # Errors
    /// [`RigError`].
    pub fn compile(&self, spec: &Spec, request: &LockRequest, reporter: &dyn Reporter) -> Result<usize, RigError> {
        let spec = self.with_backend(spec);
        let synced = self.sync_by(&spec, request, self.deadline(&spec, None), reporter)?;
        if synced.hold.is_none() {
            return Ok(0);
        }
        reporter.event(&Event::Compiling { packages: synced.lock.packages.len() });
        bytecode::compile(&self.home, &synced.key, &synced.interpreter, Urgency::Now)
    }

    /// Makes a context, or takes an idle one.
    ///
    /// # Errors
    /// [`RigError`]; nothing half made is left.
    pub fn create(&self, spec: &Spec, request: &CreateRequest, reporter: &dyn Reporter) -> Result<Context, RigError> {
        let spec = self.with_backend(spec);
        let deadline = self.deadline(&spec, request.timeout);
        refuse_unavailable(&spec)?;
        check_gpus(&spec)?;
        collect::sweep(&self.home);
        if spec.is_container() {
            // Only where the create works anyway: another engine may be slow, or gone.
            let engine = container::connect(&self.settings, &self.home, container::kind_of(&spec))?;
            collect::sweep_containers(&self.home, &engine.address().url);
        }
        let guest = guest::ensure(&self.home)?;
        let lock = lockfile::obtain(&self.resolver(deadline, reporter), &spec, &request.lock)?;
        let (spec_digest, lock_digest) = (spec.digest().to_string(), lock.digest().to_string());
        if request.find_idle
            && let Some((lease, row)) = self.home.take_idle(&spec_digest, &lock_digest)?
            && let Some(lease) = self.usable(lease, &row, &spec)?
            && let Some(context) = self.reuse(lease, &row, request.fresh, deadline, reporter)?
        {
            return Ok(context.with_lock(lock));
        }
        let idle = spec.resources.timeouts.idle.or_else(|| self.settings.duration("timeouts.idle"));
        let mut new = NewContext {
            name: spec.name.clone(),
            backend: lock.backend.to_string(),
            origin: request.origin,
            state: State::Creating,
            spec_digest,
            lock_digest,
            prefix: String::new(),
            idle,
            payload: "{}".into(),
        };
        // The usual case first: the prefix is there, and one row makes the context.
        let ready = self.ready_prefix(&spec, &lock, reporter)?;
        let (lease, synced) = match ready {
            Some((interpreter, hold)) => {
                let synced = self.synced(lock, interpreter, hold)?;
                new.prefix.clone_from(&synced.key);
                new.state = State::Running;
                new.payload = Payload::of(&self.settings, &spec, &synced).to_text();
                (self.home.create_context(&new)?, synced)
            }
            None => {
                let lease = self.home.create_context(&new)?;
                match self.sync_lock(&spec, lock, deadline, reporter) {
                    Ok(synced) => {
                        let payload = Payload::of(&self.settings, &spec, &synced);
                        let lock_digest = synced.lock.digest().to_string();
                        if let Err(error) = self.home.finish_context(&lease.id, &lock_digest, &synced.key, &payload.to_text()) {
                            self.home.remove_context(lease)?;
                            return Err(error.into());
                        }
                        (lease, synced)
                    }
                    Err(error) => {
                        self.home.remove_context(lease)?;
                        return Err(error);
                    }
                }
            }
        };
        if let Err(error) = self.compile_as_asked(&spec, &synced, reporter) {
            reporter.event(&Event::Warning { message: format!("byte-code was not compiled: {error}"), hint: None });
        }
        let payload = Payload::of(&self.settings, &spec, &synced);
        let context = Context::new(self, lease, request.origin, payload, &spec, synced.hold, guest, false).with_lock(synced.lock);
        if let Err(error) = context.prepare(deadline, reporter) {
            context.release(ExitPolicy::Destroy)?;
            return Err(error);
        }
        context.warn_of_limits(reporter);
        reporter.event(&Event::Created { id: context.id().to_owned(), reused: false, elapsed: deadline.elapsed() });
        Ok(context)
    }

    /// Makes idle contexts until `count` of them wait for the next callers of `get_context`; returns how many were made.
    ///
    /// # Errors
    /// As [`Rig::create`]; what was made by then stays.
    pub fn warm(&self, spec: &Spec, count: usize, request: &LockRequest, reporter: &dyn Reporter) -> Result<usize, RigError> {
        let spec = self.with_backend(spec);
        let lock = lockfile::obtain(&self.resolver(self.deadline(&spec, None), reporter), &spec, request)?;
        let (spec_digest, lock_digest) = (spec.digest().to_string(), lock.digest().to_string());
        let waits = |row: &envharness_store::ContextRow| {
            row.state == State::Idle && row.origin == Origin::Get && row.spec_digest == spec_digest && row.lock_digest == lock_digest
        };
        let there = self.home.contexts()?.iter().filter(|row| waits(row)).count();
        let missing = count.saturating_sub(there);
        for _ in 0..missing {
            let create = CreateRequest { origin: Origin::Get, lock: request.clone(), ..CreateRequest::default() };
            self.create(&spec, &create, reporter)?.release(ExitPolicy::Release)?;
        }
        Ok(missing)
    }

    fn ready_prefix(
        &self,
        spec: &Spec,
        lock: &Lock,
        reporter: &dyn Reporter,
    ) -> Result<Option<(Option<Interpreter>, PrefixUse)>, RigError> {
        // A container's place is the engine's to tell.
        if spec.chosen_backend() == Backend::Host || spec.is_container() {
            return Ok(None);
        }
        let interpreter = match lock.backend {
            Backend::Conda => None,
            _ => Some(interpreter::for_lock(&self.settings, &self.home, spec, &lock.python.version)?),
        };
        let key = key(lock, spec, interpreter.as_ref().map_or(Base::Inside, Base::Machine));
        tracing::debug!(key, python = ?interpreter.as_ref().map(|found| &found.path), "prefix");
        if !self.home.prefix(&key).is_dir() {
            return Ok(None);
        }
        match self.home.acquire_prefix(&key)? {
            Acquired::Ready(hold) => Ok(Some((interpreter, hold))),
            Acquired::Absent => Ok(None),
            Acquired::Quarantined(faults) => {
                report_quarantine(&key, &faults, reporter);
                Ok(None)
            }
        }
    }

    /// Lets an idle context go that is the same by its digests and not by its place: paths of the spec began at another folder,
    /// or its engine is not the one that is chosen now.
    fn usable(&self, lease: Lease, row: &envharness_store::ContextRow, spec: &Spec) -> Result<Option<Lease>, RigError> {
        let payload = Payload::parse(&row.payload)?;
        let relative = spec.pip.iter().any(|one| one.local_path().is_some())
            || spec.container.mounts.values().any(|mount| !mount.source.starts_with('/'));
        let elsewhere = match &payload.container {
            Some(place) => container::connect(&self.settings, &self.home, container::kind_of(spec))?.address().url != place.address,
            None => false,
        };
        if !elsewhere && (!relative || payload.base == spec.base) {
            return Ok(Some(lease));
        }
        let idle = spec.resources.timeouts.idle.or_else(|| self.settings.duration("timeouts.idle"));
        self.home.set_context(&row.id, State::Idle, Origin::Get, idle, None)?;
        Ok(None)
    }

    fn reuse(
        &self,
        lease: Lease,
        row: &envharness_store::ContextRow,
        fresh: bool,
        deadline: Deadline,
        reporter: &dyn Reporter,
    ) -> Result<Option<Context>, RigError> {
        let mut payload = Payload::parse(&row.payload)?;
        let hold = if row.prefix.is_empty() {
            None
        } else {
            match self.home.acquire_prefix(&row.prefix)? {
                Acquired::Ready(hold) => Some(hold),
                Acquired::Absent | Acquired::Quarantined(_) => {
                    self.home.remove_context(lease)?;
                    return Ok(None);
                }
            }
        };
        let spec = payload.spec()?;
        // Its last caller's project is not this one's.
        let project = payload.container.as_ref().and_then(|_| Context::project_of(&self.settings, &spec));
        let moved = payload.project != project;
        if moved {
            payload.project = project;
            self.home.finish_context(&row.id, &row.lock_digest, &row.prefix, &payload.to_text())?;
        }
        let place = payload.container.clone();
        let context = Context::new(self, lease, Origin::Get, payload, &spec, hold, guest::ensure(&self.home)?, true);
        let renewed = place.filter(|_| moved || fresh && context.is_used());
        if let Some(place) = &renewed {
            // First of all: what still runs there could change what is emptied.
            place.engine()?.remove(context.id(), &envharness_engine::Patient)?;
        }
        let context = context.renewed(renewed.is_some());
        // Whatever its last user left running is not the next one's.
        context.kill_processes();
        if fresh {
            context.empty()?;
        }
        context.prepare(deadline, reporter)?;
        reporter.event(&Event::Created { id: context.id().to_owned(), reused: true, elapsed: deadline.elapsed() });
        Ok(Some(context))
    }

    /// Works with a context that is there, without holding it.
    ///
    /// # Errors
    /// [`RigError::Store`] when there is none, or more than one begins so.
    pub fn attach(&self, id: &str) -> Result<Context, RigError> {
        let row = self.home.find_context(id)?;
        if row.state == State::Creating {
            let hint = Some("wait for its maker, or remove it with `envharness rm`".to_owned());
            return Err(RigError::Context { id: row.id, reason: "is still being created".into(), hint });
        }
        let payload = Payload::parse(&row.payload)?;
        let hold = match row.prefix.as_str() {
            "" => None,
            prefix => match self.home.acquire_prefix(prefix)? {
                Acquired::Ready(hold) => Some(hold),
                Acquired::Absent | Acquired::Quarantined(_) => {
                    let hint = Some("remove it and create it anew".to_owned());
                    return Err(RigError::Context { id: row.id, reason: "has lost its prefix".into(), hint });
                }
            },
        };
        let spec = payload.spec()?;
        Context::attached(self, row, payload, &spec, hold, guest::ensure(&self.home)?)
    }

    /// Ends a context: its processes, its folder, its row.
    ///
    /// # Errors
    /// [`envharness_store::StoreError::InUse`] while a live process holds it, unless `force`.
    pub fn destroy(&self, id: &str, force: bool) -> Result<String, RigError> {
        let row = self.home.find_context(id)?;
        collect::destroy(&self.home, &row.id, force)?;
        Ok(row.id)
    }
}

fn check_gpus(spec: &Spec) -> Result<(), RigError> {
    let wanted = match spec.resources.gpu {
        Some(Gpu::Any) => 1,
        Some(Gpu::Count(count)) => count,
        Some(Gpu::None) | None => 0,
    };
    let present = if wanted > 0 { gpus_present() } else { 0 };
    if wanted > present { Err(RigError::Gpus { wanted, present }) } else { Ok(()) }
}
