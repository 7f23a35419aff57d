//! A target made ready: its environment rigged, a launcher for its workers, what they load.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use envharness_native::Descriptor;
use envharness_rig::{CreateRequest, LockRequest, Reporter, Rig, discover};
use envharness_server::{Origin, Served};
use envharness_spec::{Contract, Digest, Spec};
use envharness_store::Origin as ContextOrigin;
use envharness_worker::{Launcher, Limits, Memory, NativeHost, Pool, PoolConfig, PoolError, Stats, Target};

use crate::error::ServeError;
use crate::launchers::{ContextLauncher, InterpreterLauncher};
use crate::memory::{ModeFile, digest_of_sources};
use crate::options::ServeOptions;
use crate::package::{EnvPackage, spec_of};
use crate::target::TargetName;

/// A target that only waits for a runtime.
pub struct Prepared {
    /// What is to be served.
    pub(crate) what: What,
    /// Where it came from.
    pub(crate) origin: Origin,
    /// The folder whose changes are looked for.
    pub(crate) watched: Option<PathBuf>,
    /// The port that the package asks for.
    pub(crate) port: Option<u16>,
    /// Lines for a person: what was decided, and why.
    pub notes: Vec<String>,
}

/// The kinds of targets.
pub(crate) enum What {
    /// Hosted by workers.
    Hosted {
        /// Starts them.
        launcher: Arc<dyn Launcher>,
        /// What they load.
        target: Target,
        /// What was learnt.
        memory: Arc<dyn Memory>,
    },
    /// Run as it is.
    Application {
        /// Starts it.
        launcher: Arc<dyn Launcher>,
        /// `module:name`.
        app: String,
        /// The folder to import from.
        folder: PathBuf,
    },
    /// Compiled in.
    Native(&'static Descriptor),
}

/// Makes a target ready. This rigs, so it may take as long as a first install.
///
/// # Errors
/// Any [`ServeError`].
pub fn prepare(options: &ServeOptions, rig: &Rig, reporter: &dyn Reporter) -> Result<Prepared, ServeError> {
    let current = || std::env::current_dir().unwrap_or_else(|_| rig.settings.project.clone());
    let here = options.base.clone().unwrap_or_else(current);
    let name = if options.target.is_empty() { "." } else { &options.target };
    match TargetName::parse(name, &here)? {
        TargetName::Native(name) => native(&name),
        TargetName::Folder(folder) => package(options, rig, reporter, &folder),
        TargetName::Gym(target) => module(options, rig, reporter, "gym", target, &here),
        TargetName::Module(target) => module(options, rig, reporter, "module", target, &here),
    }
}

fn native(name: &str) -> Result<Prepared, ServeError> {
    let Some(descriptor) = envharness_native::find(name) else {
        let known: Vec<&str> = envharness_native::all().iter().map(|d| d.name).collect();
        return Err(ServeError::Target {
            reason: format!("there is no native environment `{name}`"),
            hint: Some(format!("there are {}", known.join(", "))),
        });
    };
    Ok(Prepared { what: What::Native(descriptor), origin: Origin::default(), watched: None, port: None, notes: Vec::new() })
}

fn package(options: &ServeOptions, rig: &Rig, reporter: &dyn Reporter, folder: &Path) -> Result<Prepared, ServeError> {
    let package = EnvPackage::read(rig, folder, options.reference)?;
    let mut notes = Vec::new();
    match (&package.own_routes, package.replacements.is_empty()) {
        (Some(reason), _) => notes.push(format!("{} is run as it is, with the real openenv: {reason}", package.app)),
        (None, _) => {
            let list = package.replacements.iter().map(|r| format!("{} ({})", r.requirement, r.reason)).collect::<Vec<_>>().join(", ");
            notes.push(format!("the light openenv answers for {}; added {list}", package.openenv.as_deref().unwrap_or("openenv")));
        }
    }
    let spec = match &options.spec {
        Some(path) => with_packages(envharness_rig::load_spec(path, &rig.settings)?, &options.with)?,
        None => package.spec(&options.with)?,
    };
    let (launcher, lock) = context(rig, reporter, &spec, folder)?;
    let origin = Origin { version: package.version.clone(), package: Some(package.name.clone()), lock };
    let what = if package.own_routes.is_some() {
        What::Application { launcher, app: package.app.clone(), folder: folder.to_owned() }
    } else {
        let target = Target {
            kind: "folder".to_owned(),
            target: package.app.clone(),
            paths: vec![folder.display().to_string()],
            packages: package.packages.clone(),
            cwd: Some(folder.display().to_string()),
            light: true,
            ..Target::default()
        };
        What::Hosted { launcher, target, memory: Arc::new(ModeFile::of(&rig.home, &package.app, &package.sources)) }
    };
    Ok(Prepared { what, origin, watched: Some(folder.to_owned()), port: package.port, notes })
}

fn module(
    options: &ServeOptions,
    rig: &Rig,
    reporter: &dyn Reporter,
    kind: &str,
    target: String,
    here: &Path,
) -> Result<Prepared, ServeError> {
    let mut notes = Vec::new();
    let (launcher, lock): (Arc<dyn Launcher>, _) = if options.spec.is_some() || !options.with.is_empty() {
        let mut with = options.with.clone();
        if kind == "module" {
            with.push("pydantic>=2".to_owned());
        }
        if options.reference {
            with.extend(["openenv==0.10.0".to_owned(), "uvicorn".to_owned()]);
        }
        let spec = match &options.spec {
            Some(path) => with_packages(envharness_rig::load_spec(path, &rig.settings)?, &options.with)?,
            None => spec_of(target.split(':').next_back().unwrap_or("environment"), None, &with)?,
        };
        context(rig, reporter, &spec, here)?
    } else {
        let (python, why) = interpreter(rig)?;
        notes.push(format!("workers run in {} ({why})", python.display()));
        let env = rig.settings.variables().clone();
        (Arc::new(InterpreterLauncher { python, env, guest: rig.guest()?, cwd: here.to_owned() }), None)
    };
    let sources = if kind == "gym" { Digest::of("") } else { digest_of_sources(here, false) };
    let memory = Arc::new(ModeFile::of(&rig.home, &format!("{}\0{target}", here.display()), &sources));
    let loaded = Target {
        kind: kind.to_owned(),
        target,
        paths: vec![here.display().to_string()],
        cwd: Some(here.display().to_string()),
        light: !options.reference && kind == "module",
        ..Target::default()
    };
    let watched = (kind == "module").then(|| here.to_owned());
    let what = What::Hosted { launcher, target: loaded, memory };
    Ok(Prepared { what, origin: Origin { lock, ..Origin::default() }, watched, port: None, notes })
}

/// A spec with further packages.
fn with_packages(mut spec: Spec, with: &[String]) -> Result<Spec, ServeError> {
    spec.pip.extend(spec_of("with", None, with)?.pip);
    Ok(spec)
}

type Launched = (Arc<dyn Launcher>, Option<String>);

/// A context for the workers, and the digest of its lock.
fn context(rig: &Rig, reporter: &dyn Reporter, spec: &Spec, cwd: &Path) -> Result<Launched, ServeError> {
    let request = CreateRequest { origin: ContextOrigin::Create, lock: LockRequest::default(), ..CreateRequest::default() };
    let context = rig.create(spec, &request, reporter)?;
    let lock = context.lock().map(|lock| lock.digest().to_string());
    Ok((Arc::new(ContextLauncher { context, guest: rig.guest()?, cwd: cwd.to_owned() }), lock))
}

/// The Python that called, else that of an active virtual environment, else of the one that holds this program, else any.
fn interpreter(rig: &Rig) -> Result<(PathBuf, &'static str), ServeError> {
    let settings = &rig.settings;
    if let Some(caller) = settings.caller_python.clone().filter(|python| python.is_file()) {
        return Ok((caller, "the Python that runs envharness"));
    }
    let active =
        settings.variable("VIRTUAL_ENV").or_else(|| settings.variable("CONDA_PREFIX")).map(|dir| Path::new(dir).join("bin/python"));
    if let Some(python) = active.filter(|python| python.is_file()) {
        return Ok((python, "the active environment"));
    }
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(|dir| dir.join("python")));
    if let Some(python) = beside.filter(|python| python.is_file()) {
        return Ok((python, "the environment that holds envharness"));
    }
    let found = discover(settings, &rig.home)?.into_iter().next();
    found.map(|(interpreter, _)| (interpreter.path, "the first that was found")).ok_or_else(|| ServeError::Target {
        reason: "no Python was found to run the target in".to_owned(),
        hint: Some("rig one by `--with PACKAGE` or `--spec FILE`".to_owned()),
    })
}

/// Takes what a session printed: generation, session, stream, text.
pub(crate) type Printed = Arc<dyn Fn(u32, u32, u8, &[u8]) + Send + Sync>;

impl Prepared {
    /// Starts the workers.
    pub(crate) async fn host(
        &self,
        options: &ServeOptions,
        stats: Stats,
        generation: u32,
        printed: &Printed,
    ) -> Result<Served, ServeError> {
        let (launcher, target, memory) = match &self.what {
            What::Hosted { launcher, target, memory } => (launcher.clone(), target.clone(), memory.clone()),
            What::Native(descriptor) => {
                let most = options.max_sessions.unwrap_or(65_536);
                return Ok(Served::native(NativeHost::new(descriptor, most))?);
            }
            What::Application { app, .. } => return Err(PoolError::Application { target: app.clone() }.into()),
        };
        let printed = printed.clone();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let config = PoolConfig {
            launcher,
            target,
            mode: options.concurrency,
            limits: Limits {
                workers: options.workers.unwrap_or(cores).max(1),
                sessions: options.max_sessions.unwrap_or(0),
                step: options.step_limit(),
                start: options.start_limit(),
                close: options.step_limit().unwrap_or(std::time::Duration::from_secs(10)).min(std::time::Duration::from_secs(10)),
            },
            memory,
            output: Arc::new(move |session, stream, text: &[u8]| printed(generation, session, stream, text)),
        };
        let pool = Pool::start(config, stats).await?;
        let loaded = pool.loaded();
        tracing::info!(
            class = loaded.class,
            mode = pool.mode().name(),
            python = loaded.python,
            modules = loaded.modules,
            "loaded in {:.3} s, its own imports included",
            loaded.import_seconds
        );
        Ok(Served::pool(pool, self.origin.clone(), options.strict, generation)?)
    }
}

/// The contract of a target, without serving it.
///
/// # Errors
/// Any [`ServeError`].
pub fn contract_of(options: &ServeOptions, rig: &Rig, reporter: &dyn Reporter) -> Result<Contract, ServeError> {
    let prepared = prepare(options, rig, reporter)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Threads)?;
    runtime.block_on(async {
        let ignored: Printed = Arc::new(|_, _, _, _: &[u8]| {});
        let served = prepared.host(options, Stats::default(), 0, &ignored).await?;
        if let envharness_worker::Host::Pool(pool) = &served.host {
            pool.end().await;
        }
        Ok(served.contract)
    })
}
