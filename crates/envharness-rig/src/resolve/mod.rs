//! From a spec to a lock.

mod annotate;
mod explain;
mod pylock;
mod traps;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use envharness_spec::{Backend, Isolation, Lock, LockedPackage, LockedPython, LockedSource, Platform, Spec, SpecError, lock::Inputs};
use envharness_store::Home;

use crate::deadline::Deadline;
use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Reporter};
use crate::interpreter::{self, Choice};
use crate::settings::Settings;
use crate::source_tree;
use crate::uv::{Ran, Uv, tail};
pub use annotate::Annotation;
pub(crate) use pylock::addresses;
pub use pylock::export_pylock;

/// What a resolution may change of an earlier lock.
#[derive(Debug, Clone, Default)]
pub struct Upgrade {
    /// Every package.
    pub all: bool,
    /// These packages.
    pub packages: Vec<String>,
}

/// What a resolution works with.
pub struct Resolver<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The store.
    pub home: &'a Home,
    /// Receives events.
    pub reporter: &'a dyn Reporter,
    /// The end of the create.
    pub deadline: Deadline,
}

/// A failed resolution with another Python is worth a try only so often.
const MOST_PYTHONS: usize = 8;

impl Resolver<'_> {
    /// Resolves a spec for the platforms; versions of an earlier lock are kept where they still fit.
    ///
    /// # Errors
    /// [`RigError::Unsolvable`] explains; [`RigError::NotAvailable`] for containers.
    pub fn resolve(&self, spec: &Spec, platforms: &[Platform], old: Option<&Lock>, upgrade: &Upgrade) -> Result<Lock, RigError> {
        refuse_unavailable(spec)?;
        let started = std::time::Instant::now();
        self.reporter.event(&Event::Resolving { name: spec.name.clone() });
        if spec.is_container() {
            return self.resolve_container(spec, platforms, old, upgrade);
        }
        if spec.chosen_backend() == Backend::Conda {
            return self.resolve_conda(spec, platforms, old, upgrade, &crate::conda::reason(spec));
        }
        // A Python that only a channel has: once chosen, the lock keeps the backend.
        let channels_help = spec.backend == Backend::Auto && !spec.channels.is_empty();
        if channels_help && old.is_some_and(|old| old.backend == Backend::Conda) {
            return self.resolve_conda(spec, platforms, old, upgrade, "the lock was made with it");
        }
        let choices = match self.choices(spec, old, channels_help) {
            Err(RigError::NoPython { wanted, .. }) if channels_help => {
                let why = format!("no Python of this machine fits `{wanted}`, and the spec has channels");
                return self.resolve_conda(spec, platforms, old, upgrade, &why);
            }
            other => other?,
        };
        if spec.backend == Backend::Auto {
            let reason = "the spec asks for neither conda packages nor an image".to_owned();
            self.reporter.event(&Event::Backend { backend: Backend::Venv.to_string(), reason });
        }
        let mut first_failure = None;
        for choice in choices.into_iter().take(MOST_PYTHONS) {
            match self.resolve_with(spec, &choice, platforms, old, upgrade) {
                Ok((lock, traps)) => {
                    let Choice { interpreter, reason } = choice;
                    self.reporter.event(&Event::Python { version: interpreter.version, path: interpreter.path, reason });
                    self.reporter.event(&Event::Resolved { packages: lock.packages.len(), elapsed: started.elapsed() });
                    for (message, hint) in traps {
                        self.reporter.event(&Event::Warning { message, hint: Some(hint) });
                    }
                    return Ok(lock);
                }
                // Another Python helps only where the Python is what stands in the way.
                Err(error) if explain::blames_python(&error) => {
                    first_failure.get_or_insert(error);
                }
                Err(error) => return Err(first_failure.unwrap_or(error)),
            }
        }
        Err(first_failure.unwrap_or(RigError::NoPython { wanted: spec.python.clone().unwrap_or_default(), found: Vec::new() }))
    }

    /// A lock keeps its Python; without one the spec decides.
    fn choices(&self, spec: &Spec, old: Option<&Lock>, no_download: bool) -> Result<Vec<Choice>, RigError> {
        let kept = old.and_then(|old| {
            let interpreter = interpreter::for_lock(self.settings, self.home, spec, &old.python.version).ok()?;
            let fits = spec.python.as_deref().is_none_or(|wanted| interpreter::satisfies(&interpreter, wanted));
            fits.then(|| Choice { interpreter, reason: old.python.reason.clone() })
        });
        match interpreter::choices(self.settings, self.home, spec) {
            Ok(choices) => {
                let kept_path = kept.as_ref().map(|k| k.interpreter.path.clone());
                let others = choices.into_iter().filter(|c| Some(&c.interpreter.path) != kept_path.as_ref());
                Ok(kept.into_iter().chain(others).collect())
            }
            Err(error @ RigError::NoPython { .. }) => match kept {
                Some(kept) => Ok(vec![kept]),
                None if no_download => Err(error),
                None => self.managed_python(spec, error).map(|choice| vec![choice]),
            },
            Err(error) => Err(error),
        }
    }

    /// uv's managed builds, when no interpreter of the machine fits.
    fn managed_python(&self, spec: &Spec, error: RigError) -> Result<Choice, RigError> {
        let wanted = spec.python.clone().unwrap_or_default();
        if self.settings.text("python_downloads") == "never" || self.settings.flag("offline") || wanted.is_empty() {
            return Err(error);
        }
        let folder = self.home.root().join("pythons");
        let args: Vec<OsString> =
            ["python".into(), "install".into(), wanted.clone().into(), "--no-bin".into(), "--install-dir".into(), folder.clone().into()]
                .into();
        self.reporter.event(&Event::Downloading { what: format!("Python {wanted}") });
        let ran = Uv::find(self.settings, self.home)?.run(spec, &args, Path::new("/"), "fetching Python", self.deadline, self.reporter)?;
        if !ran.success {
            let first = ran.stderr.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            self.reporter.event(&Event::Warning { message: format!("Python {wanted} could not be fetched: {first}"), hint: None });
            return Err(error);
        }
        let choices = interpreter::choices(self.settings, self.home, spec)?;
        choices.into_iter().next().ok_or(error)
    }

    fn resolve_with(
        &self,
        spec: &Spec,
        choice: &Choice,
        platforms: &[Platform],
        old: Option<&Lock>,
        upgrade: &Upgrade,
    ) -> Result<(Lock, Vec<traps::Trap>), RigError> {
        let mut packages: Vec<LockedPackage> = Vec::new();
        let mut traps = Vec::new();
        for platform in platforms {
            let resolved = self.resolve_platform(spec, choice, platform, old, upgrade, None)?;
            if *platform == Platform::current() {
                traps = traps::find(&resolved);
            }
            merge(&mut packages, resolved.into_iter().map(|r| r.package), platform);
        }
        for package in &mut packages {
            if package.platforms.len() == platforms.len() {
                package.platforms.clear();
            }
        }
        let mut platforms = platforms.to_vec();
        platforms.sort();
        let lock = Lock {
            spec: spec.digest(),
            backend: Backend::Venv,
            python: LockedPython {
                version: choice.interpreter.version.clone(),
                implementation: choice.interpreter.implementation.clone(),
                reason: choice.reason.clone(),
            },
            platforms,
            inputs: Inputs::of(spec),
            image: None,
            packages,
        };
        // Through the text form, so that a lock just made equals the same lock read back.
        let lock = Lock::parse(&lock.to_string()).map_err(|source| RigError::LockFile { path: "<new lock>".into(), source })?;
        Ok((lock, traps))
    }

    pub(crate) fn resolve_platform(
        &self,
        spec: &Spec,
        choice: &Choice,
        platform: &Platform,
        old: Option<&Lock>,
        upgrade: &Upgrade,
        provided: Option<&Provided>,
    ) -> Result<Vec<Resolved>, RigError> {
        if spec.pip.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.home.temporary("resolve")?;
        let work = Work { spec, choice, platform, folder: folder.path(), provided };
        work.write_inputs()?;
        let annotated = folder.path().join("annotated.txt");
        if let Some(old) = old.filter(|_| !upgrade.all) {
            let pins: String = old
                .packages_for(platform)
                .filter(|package| matches!(package.source, LockedSource::Index(_)))
                .filter_map(|package| Some(format!("{}=={}\n", package.name, package.version.as_ref()?)))
                .collect();
            fs::write(&annotated, pins).on("write", &annotated)?;
        }
        let uv = Uv::find(self.settings, self.home)?;
        let mut args = work.args(&uv, "requirements.txt", &annotated);
        args.push("--emit-index-annotation".into());
        if upgrade.all {
            args.push("--upgrade".into());
        }
        for name in &upgrade.packages {
            args.extend(["--upgrade-package".into(), name.into()]);
        }
        let ran = uv.run(spec, &args, folder.path(), "resolving", self.deadline, self.reporter)?;
        if !ran.success {
            return Err(self.explain(&work, &uv, &ran)?);
        }
        let text = fs::read_to_string(&annotated).on("read", &annotated)?;
        let annotations = annotate::parse(&text, &spec.name);
        // The second pass gives files and hashes for exactly the versions of the first.
        let pins = folder.path().join("constraints.txt");
        let constraints: String =
            annotations.iter().filter_map(|(name, annotation)| Some(format!("{name}=={}\n", annotation.version.as_ref()?))).collect();
        fs::write(&pins, constraints).on("write", &pins)?;
        let output = folder.path().join("pylock.toml");
        let ran = uv.run(spec, &work.args(&uv, "pylock.toml", &output), folder.path(), "resolving", self.deadline, self.reporter)?;
        if !ran.success {
            return Err(self.explain(&work, &uv, &ran)?);
        }
        let text = fs::read_to_string(&output).on("read", &output)?;
        pylock::read(&text, &work, &annotations, self.settings)
    }

    /// Turns uv's explanation into ours, and tries which pin, let go, would resolve it.
    fn explain(&self, work: &Work<'_>, uv: &Uv<'_>, ran: &Ran) -> Result<RigError, RigError> {
        let collision = explain::parse(&ran.stderr);
        if collision.is_some() && self.settings.flag("offline") {
            let hint = Some("run once without `--offline`: what is needed may not be downloaded yet".to_owned());
            let explanation = ran.stderr.lines().map(|line| line.trim().to_owned()).collect();
            let python = work.choice.interpreter.version.clone();
            return Ok(RigError::Unsolvable { name: work.spec.name.clone(), python, explanation, hint });
        }
        let Some(collision) = collision else {
            let action = format!("resolve `{}`", work.spec.name);
            return Ok(RigError::Program { program: "uv", action, output: tail(&ran.stderr) });
        };
        let mut remedies = Vec::new();
        for requirement in explain::suspects(work.spec, &collision).into_iter().take(4) {
            let Some(name) = &requirement.name else { continue };
            let mut relaxed = work.spec.clone();
            for other in &mut relaxed.pip {
                if other.name.as_ref() == Some(name) {
                    other.specifiers.clear();
                    other.hashes.clear();
                }
            }
            let folder = self.home.temporary("relaxed")?;
            let trial = Work { spec: &relaxed, folder: folder.path(), ..*work };
            trial.write_inputs()?;
            let output = folder.path().join("annotated.txt");
            let ran =
                uv.run(&relaxed, &trial.args(uv, "requirements.txt", &output), folder.path(), "explaining", self.deadline, self.reporter)?;
            if ran.success {
                let text = fs::read_to_string(&output).on("read", &output)?;
                let found = annotate::parse(&text, &work.spec.name).get(name.as_str()).and_then(|a| a.version.clone());
                remedies.push((requirement.clone(), found));
            }
        }
        Ok(explain::error(work.spec, &work.choice.interpreter.version, &collision, &remedies))
    }
}

/// One package with what traps need to know of it.
pub(crate) struct Resolved {
    pub package: LockedPackage,
    /// The newest upload of its files, RFC 3339; comparable as text.
    uploaded: Option<String>,
}

/// One call of `uv pip compile`.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    spec: &'a Spec,
    choice: &'a Choice,
    platform: &'a Platform,
    folder: &'a Path,
    provided: Option<&'a Provided>,
}

/// What conda packages already provide below the pip packages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provided {
    /// The Python version.
    pub python: String,
    /// uv's word for the platform, where it is not this machine's.
    pub platform: Option<String>,
    /// Names on PyPI with their versions and the conda packages' names.
    pub packages: Vec<(String, String, String)>,
}

impl Provided {
    /// What a solution provides.
    pub(crate) fn of(packages: &[envharness_conda::Package], python: &str) -> Self {
        let each = |package: &envharness_conda::Package| {
            let (version, name) = (package.version.clone(), package.name.clone());
            package.pypi.clone().into_iter().map(move |pypi| (pypi, version.clone(), name.clone())).collect::<Vec<_>>()
        };
        let packages = packages.iter().flat_map(each).filter(|(_, version, _)| version.parse::<pep440_rs::Version>().is_ok());
        Self { python: python.to_owned(), platform: None, packages: packages.collect() }
    }
}

impl Work<'_> {
    /// Writes what conda provides as sources of which uv reads nothing but name and version: a constraint on an index's
    /// package would want that very version there, and a build of conda's need not be on any index.
    fn write_provided(&self, provided: &Provided) -> Result<(), RigError> {
        let mut lines = String::new();
        for (name, version, _) in &provided.packages {
            let folder = self.folder.join("conda").join(name);
            fs::create_dir_all(&folder).on("create", &folder)?;
            let path = folder.join("pyproject.toml");
            fs::write(&path, format!("[project]\nname = \"{name}\"\nversion = \"{version}\"\n")).on("write", &path)?;
            let _ = writeln!(lines, "{name} @ file://{}", folder.display());
        }
        let path = self.folder.join("conda-constraints.txt");
        fs::write(&path, lines).on("write", &path)
    }

    /// Whether a package comes from conda.
    pub(crate) fn is_provided(&self, name: &str) -> bool {
        self.provided.is_some_and(|provided| provided.packages.iter().any(|(provided, ..)| provided == name))
    }

    fn write_inputs(&self) -> Result<(), RigError> {
        let base = self.spec.base.clone().unwrap_or_default();
        for requirement in &self.spec.pip {
            let Some((path, _)) = requirement.local_path() else { continue };
            let absolute = source_tree::absolute(path, &base);
            if !absolute.exists() {
                let file = self.spec.place_of(requirement).unwrap_or(&self.spec.name);
                let error = SpecError::new(file, format!("`{requirement}`: there is no `{}`", absolute.display()));
                return Err(error.hint("a relative path begins at the spec's folder").into());
            }
        }
        let lines = |list: &[envharness_spec::Requirement]| -> String {
            list.iter().map(|requirement| format!("{}\n", source_tree::absolute_requirement(requirement, &base))).collect()
        };
        for (name, text) in [("requirements.in", lines(&self.spec.pip)), ("spec-constraints.txt", lines(&self.spec.constraints))] {
            let path = self.folder.join(name);
            fs::write(&path, text).on("write", &path)?;
        }
        if let Some(provided) = self.provided {
            self.write_provided(provided)?;
        }
        let pins = self.folder.join("constraints.txt");
        fs::write(&pins, "").on("write", &pins)
    }

    fn args(&self, uv: &Uv<'_>, format: &str, output: &Path) -> Vec<OsString> {
        let mut args: Vec<OsString> = ["pip", "compile", "requirements.in", "--format", format, "--output-file"].map(OsString::from).into();
        args.push(output.into());
        for name in ["spec-constraints.txt", "constraints.txt", "conda-constraints.txt"] {
            // uv warns of an empty file.
            if fs::metadata(self.folder.join(name)).is_ok_and(|m| m.len() > 0) {
                args.extend(["-c".into(), name.into()]);
            }
        }
        args.push("--no-header".into());
        args.extend(["--python".into(), self.choice.interpreter.path.clone().into_os_string(), "--no-python-downloads".into()]);
        if let Some(provided) = self.provided {
            args.extend(["--python-version".into(), provided.python.clone().into()]);
        }
        args.extend(uv.index_args(self.spec));
        let own = self.provided.and_then(|provided| provided.platform.as_deref());
        let name = if *self.platform == Platform::current() { own } else { self.platform.uv_name() };
        if let Some(name) = name {
            args.extend(["--python-platform".into(), name.into()]);
        }
        if let Some(date) = &self.spec.exclude_newer {
            args.extend(["--exclude-newer".into(), date.into()]);
        }
        if self.spec.prerelease {
            args.extend(["--prerelease".into(), "allow".into()]);
        }
        args
    }

    /// The folder that relative paths of the spec start from.
    pub(crate) fn base(&self) -> PathBuf {
        self.spec.base.clone().unwrap_or_default()
    }
}

pub(crate) fn merge(packages: &mut Vec<LockedPackage>, new: impl Iterator<Item = LockedPackage>, platform: &Platform) {
    for mut package in new {
        let same = packages.iter_mut().find(|p| p.name == package.name && p.version == package.version && p.source == package.source);
        match same {
            Some(known) => {
                known.platforms.push(platform.clone());
                known.files.append(&mut package.files);
                known.files.sort();
                known.files.dedup();
                known.via.append(&mut package.via);
                known.via.sort();
                known.via.dedup();
            }
            None => {
                package.platforms = vec![platform.clone()];
                packages.push(package);
            }
        }
    }
}

/// Refuses what the design knows and this version does not do.
///
/// # Errors
/// [`RigError::NotAvailable`].
pub fn refuse_unavailable(spec: &Spec) -> Result<(), RigError> {
    if matches!(spec.chosen_backend(), Backend::Venv | Backend::Host) && !spec.conda.is_empty() {
        let message = format!("conda packages need the backend `conda`, not `{}`", spec.chosen_backend());
        let file = spec.file.as_ref().map_or_else(|| spec.name.clone(), |file| file.display().to_string());
        return Err(SpecError::new(&file, message).hint("use `backend: conda`, or leave `backend` away").into());
    }
    let file = || spec.file.as_ref().map_or_else(|| spec.name.clone(), |file| file.display().to_string());
    if !spec.is_container() {
        let mut keys = spec.container.asked();
        keys.extend(
            [("image", spec.image.is_some()), ("dockerfile", spec.dockerfile.is_some())].iter().filter(|(_, set)| *set).map(|(key, _)| key),
        );
        if spec.isolation == Isolation::Container {
            keys.push("isolation: container");
        }
        if let Some(key) = keys.first() {
            let message = format!("`{key}` needs a container, and the backend is `{}`", spec.chosen_backend());
            return Err(SpecError::new(&file(), message).hint("use `backend: docker` or `backend: podman`").into());
        }
    }
    if spec.image.is_some() && spec.dockerfile.is_some() {
        let message = "the spec has an image and a Dockerfile".to_owned();
        return Err(SpecError::new(&file(), message).hint("keep one of `image` and `dockerfile`").into());
    }
    let confined = spec.is_container() && spec.isolation == Isolation::Container;
    let what = (spec.isolation != Isolation::None && !confined).then(|| format!("the isolation `{}`", spec.isolation));
    let adopted = spec.writable && spec.chosen_backend() == Backend::Host;
    let what = what.or_else(|| adopted.then(|| "a writable copy of an adopted environment".to_owned()));
    what.map_or(Ok(()), |what| Err(RigError::NotAvailable(what)))
}

/// Annotations by package name.
pub(crate) type Annotations = BTreeMap<String, Annotation>;
