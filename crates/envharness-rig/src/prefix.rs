//! From a lock to a prefix: the key, the build, the wait for another's build.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use envharness_spec::{Digest, Lock, LockedPackage, LockedSource, Platform, Spec};
use envharness_store::{Acquired, Fault, FileLock, GcOptions, GcReport, Home, PrefixMeta, PrefixUse, packages_against_record};
use serde_json::json;

use crate::container::{ImagePython, uv_platform};
use crate::deadline::Deadline;
use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Reporter};
use crate::interpreter::Interpreter;
use crate::settings::Settings;
use crate::source_tree;
use crate::uv::{Ran, Uv, tail};

/// What a builder works with.
pub struct Builder<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The store.
    pub home: &'a Home,
    /// Receives events.
    pub reporter: &'a dyn Reporter,
    /// The end of the create.
    pub deadline: Deadline,
}

/// What a prefix's Python is.
#[derive(Debug, Clone, Copy)]
pub enum Base<'a> {
    /// An interpreter of the machine, which the prefix links to.
    Machine(&'a Interpreter),
    /// A conda package in the prefix.
    Inside,
    /// An interpreter of an image; the prefix links to its path there.
    Image(&'a ImagePython),
}

/// The key of the prefix that a lock becomes with an interpreter. Name, description, variables, limits and secrets of
/// the spec do not enter it.
pub fn key(lock: &Lock, spec: &Spec, python: Base<'_>) -> String {
    let platform = Platform::current();
    let base = spec.base.clone().unwrap_or_default();
    let artifact = |package: &LockedPackage| {
        let source = match &package.source {
            LockedSource::Index(_) | LockedSource::Host => json!("index"),
            LockedSource::Conda(_) => json!("conda"),
            LockedSource::Url(url) => json!(url),
            LockedSource::Git { url, commit, subdirectory } => json!([url, commit, subdirectory]),
            LockedSource::Path { path, digest, editable } => {
                let place = editable.then(|| source_tree::absolute(path, &base).display().to_string());
                json!([place, digest.to_string()])
            }
        };
        let hashes: Vec<String> = package.files.iter().map(|file| file.sha256.hex().to_owned()).collect();
        json!([package.name, package.version, source, hashes])
    };
    let artifacts: Vec<serde_json::Value> = lock.packages_for(&platform).map(artifact).collect();
    let mut document = match python {
        Base::Machine(interpreter) => json!({
            "format": 1,
            "backend": "venv",
            "platform": interpreter.platform,
            "interpreter": [interpreter.path, interpreter.version, interpreter.soabi, interpreter.build],
            "artifacts": artifacts,
            "links": "relocatable",
        }),
        Base::Image(python) => json!({
            "format": 1,
            "backend": "container",
            "platform": python.inside.platform,
            "interpreter": [python.inside.path, python.inside.version, python.inside.soabi, python.inside.build, python.libc],
            "artifacts": artifacts,
            "links": "relocatable",
        }),
        Base::Inside => json!({
            "format": 1,
            "backend": "conda",
            "platform": platform.conda_name(),
            "artifacts": artifacts,
            "link_scripts": spec.link_scripts,
        }),
    };
    // Another crate of the build may have JSON maps keep the order of insertion.
    document.sort_all_objects();
    Digest::of(document.to_string()).hex()[..32].to_owned()
}

/// Tells that a prefix was not what it should be.
pub(crate) fn report_quarantine(key: &str, faults: &[Fault], reporter: &dyn Reporter) {
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    let message = format!("the prefix {key} was changed ({first}, {} in all); it is put aside and built anew", faults.len());
    reporter.event(&Event::Warning { message, hint: Some("`envharness store verify` checks the others".into()) });
}

impl Builder<'_> {
    /// Takes the prefix of a lock, building it where it is absent or was found broken.
    ///
    /// # Errors
    /// [`RigError`]; nothing half made is left.
    pub fn obtain(&self, lock: &Lock, spec: &Spec, python: Base<'_>) -> Result<PrefixUse, RigError> {
        let key = key(lock, spec, python);
        loop {
            match self.home.acquire_prefix(&key)? {
                Acquired::Ready(prefix) => return Ok(prefix),
                Acquired::Absent => {}
                Acquired::Quarantined(faults) => report_quarantine(&key, &faults, self.reporter),
            }
            let mut told = false;
            let guard: FileLock = self.home.build_lock(&key, true, |_| {
                if !std::mem::replace(&mut told, true) {
                    self.reporter.event(&Event::Waiting { what: "another process that builds the same environment".into() });
                }
                self.tick("waiting for another build")
            })?;
            // It may have been built while this process waited.
            if self.home.prefix(&key).is_dir() {
                continue;
            }
            let slot = self.slot()?;
            self.build(&key, lock, spec, python)?;
            drop((slot, guard));
        }
    }

    fn tick(&self, action: &str) -> Result<(), RigError> {
        if self.reporter.interrupted() {
            return Err(RigError::Interrupted);
        }
        self.deadline.check(action, String::new)
    }

    /// One of `max_parallel` places, shared by all processes of the user.
    fn slot(&self) -> Result<Option<FileLock>, RigError> {
        let Ok(most) = self.settings.text("max_parallel").parse::<f64>() else { return Ok(None) };
        let mut told = false;
        loop {
            for place in 0..(most.max(1.0) as usize) {
                if let Some(lock) = FileLock::try_acquire(&self.home.lock(&format!("slot-{place}")), true)? {
                    return Ok(Some(lock));
                }
            }
            if !std::mem::replace(&mut told, true) {
                self.reporter.event(&Event::Waiting { what: format!("one of {most} places to build (max_parallel)") });
            }
            self.tick("waiting for a place to build")?;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn build(&self, key: &str, lock: &Lock, spec: &Spec, python: Base<'_>) -> Result<(), RigError> {
        let started = Instant::now();
        let packages = lock.packages_for(&Platform::current()).count();
        self.reporter.event(&Event::Building { packages });
        let thorough = self.home.was_quarantined(key) || self.settings.flag("verify_builds");
        let slot = match python {
            Base::Machine(interpreter) => Digest::of(interpreter.path.display().to_string()).hex()[..8].to_owned(),
            Base::Inside => "conda".to_owned(),
            Base::Image(python) => Digest::of(python.host.path.display().to_string()).hex()[..8].to_owned(),
        };
        let folder = self.home.temporary_slot(&format!("build-{slot}"))?;
        let staged = folder.path().join("prefix");
        let interpreter = match python {
            Base::Machine(interpreter) => {
                self.build_venv(interpreter, lock, spec, folder.path(), thorough)?;
                interpreter.path.clone()
            }
            Base::Image(python) => {
                self.build_venv(&python.host, lock, spec, folder.path(), thorough)?;
                stand_on(&staged, &python.path().display().to_string())?;
                python.path().clone()
            }
            Base::Inside => {
                self.build_conda(&self.home.prefix(key), lock, spec, folder.path(), thorough)?;
                crate::conda::python_of(&self.home.prefix(key))
            }
        };
        let meta = PrefixMeta {
            key: key.to_owned(),
            backend: lock.backend.to_string(),
            python: lock.python.version.clone(),
            interpreter,
            lock_digest: lock.digest().to_string(),
            packages,
        };
        self.home.publish(&staged, &meta)?;
        if let Some(most) = self.settings.bytes("gc.max_size") {
            let options = GcOptions { max_size: Some(most), ..GcOptions::default() };
            let mut report = GcReport::default();
            self.home.collect_prefixes(options, &mut report)?;
            tracing::debug!(removed = report.prefixes.len(), "size cap");
        }
        self.reporter.event(&Event::Built { packages, elapsed: started.elapsed() });
        Ok(())
    }

    /// A virtual environment over an interpreter of the machine.
    pub(crate) fn build_venv(
        &self,
        interpreter: &Interpreter,
        lock: &Lock,
        spec: &Spec,
        folder: &Path,
        thorough: bool,
    ) -> Result<(), RigError> {
        let staged = folder.join("prefix");
        skeleton(&staged, interpreter)?;
        if lock.packages_for(&Platform::current()).next().is_some() {
            self.install(&staged, folder, lock, spec)?;
        }
        if thorough {
            self.check_built(&staged, folder, lock, spec, Base::Machine(interpreter))?;
        }
        finish(&staged, &interpreter.library, lock.package("pip").is_some())
    }

    /// conda packages first, then pip packages over their Python.
    pub(crate) fn build_conda(&self, target: &Path, lock: &Lock, spec: &Spec, folder: &Path, thorough: bool) -> Result<(), RigError> {
        let staged = folder.join("prefix");
        crate::conda::install(self.settings, self.home, self.reporter, self.deadline, lock, spec, &staged, target, thorough)?;
        if lock.pip_packages_for(&Platform::current()).next().is_some() {
            // uv then writes scripts that find their interpreter beside them, as in a virtual environment.
            let marker = staged.join("pyvenv.cfg");
            fs::write(&marker, "relocatable = true\n").on("write", &marker)?;
            self.install(&staged, folder, lock, spec)?;
            if thorough {
                self.check_built(&staged, folder, lock, spec, Base::Inside)?;
            }
            fs::remove_file(&marker).on("remove", &marker)?;
        }
        let has_pip = staged.join("bin/pip").exists();
        finish(&staged, &format!("python{}", lock.python.minor()), has_pip)
    }

    fn install(&self, staged: &Path, folder: &Path, lock: &Lock, spec: &Spec) -> Result<(), RigError> {
        let base = spec.base.clone().unwrap_or_default();
        let mut local = lock.clone();
        for package in &mut local.packages {
            if let LockedSource::Path { path, digest, editable } = &mut package.source {
                let absolute = source_tree::absolute(path, &base);
                if source_tree::digest(&absolute, *editable)? != *digest {
                    let message = format!("`{path}` changed since it was locked");
                    let hint = Some("run `envharness lock`".to_owned());
                    return Err(RigError::Context { id: spec.name.clone(), reason: message, hint });
                }
                *path = absolute.display().to_string();
            }
        }
        let requirements = folder.join("requirements.txt");
        fs::write(&requirements, local.to_requirements(&Platform::current())).on("write", &requirements)?;
        let uv = Uv::find(self.settings, self.home)?;
        let mut args: Vec<OsString> =
            ["pip", "install", "--no-deps", "--no-progress", "--no-python-downloads", "--break-system-packages", "--link-mode"]
                .map(OsString::from)
                .into();
        args.push(self.settings.text("link_mode").into());
        args.extend(["--python".into(), staged.join("bin/python").into_os_string(), "-r".into(), requirements.into_os_string()]);
        // Wheels for the C library that is there when they run.
        if let Some(platform) = lock.image.as_ref().and_then(|image| uv_platform(&image.libc)) {
            args.extend(["--python-platform".into(), platform.into()]);
        }
        // Every artifact is pinned by hash, so which index answers does not matter.
        args.extend(["--index-strategy", "unsafe-best-match"].map(OsString::from));
        args.extend(uv.index_args(spec));
        for package in local.packages.iter().filter(|p| matches!(p.source, LockedSource::Path { .. })) {
            // uv keeps what it built while pyproject.toml is the same; we go by the whole source.
            args.extend(["--refresh-package".into(), package.name.clone().into()]);
        }
        let ran = self.run_install(&uv, spec, &args, folder)?;
        if ran.success {
            return Ok(());
        }
        Err(RigError::Program { program: "uv", action: format!("install `{}`", spec.name), output: tail(&ran.stderr) })
    }

    /// Hashes what was installed against the wheels' own records. What differs came damaged out of the downloads: they
    /// are fetched again, once.
    fn check_built(&self, staged: &Path, folder: &Path, lock: &Lock, spec: &Spec, python: Base<'_>) -> Result<(), RigError> {
        let bad = packages_against_record(staged).on("check", staged)?;
        if bad.is_empty() {
            return Ok(());
        }
        let message = format!("downloads of {} are damaged; they are fetched again", bad.join(", "));
        self.reporter.event(&Event::Warning { message, hint: None });
        let uv = Uv::find(self.settings, self.home)?;
        let names = bad.iter().filter_map(|name| name.rsplit_once('-')).map(|(name, _)| OsString::from(name));
        let args: Vec<OsString> = ["cache".into(), "clean".into()].into_iter().chain(names).collect();
        uv.run(spec, &args, folder, "cleaning downloads", self.deadline, self.reporter)?;
        if let Base::Machine(interpreter) = python {
            let site = staged.join("lib");
            envharness_store::remove_tree(&site).on("remove", &site)?;
            envharness_store::remove_tree(&staged.join("bin")).on("remove", staged)?;
            skeleton(staged, interpreter)?;
        }
        self.install(staged, folder, lock, spec)?;
        let bad = packages_against_record(staged).on("check", staged)?;
        if bad.is_empty() {
            return Ok(());
        }
        Err(RigError::Program { program: "uv", action: format!("install {} as recorded", bad.join(", ")), output: String::new() })
    }

    /// What is downloaded already needs no question to the index, which saves half of the time.
    fn run_install(&self, uv: &Uv<'_>, spec: &Spec, args: &[OsString], folder: &Path) -> Result<Ran, RigError> {
        if !self.settings.flag("offline") {
            let offline: Vec<OsString> = args.iter().cloned().chain(["--offline".into()]).collect();
            let ran = uv.run(spec, &offline, folder, "installing", self.deadline, &Attempt(self.reporter))?;
            if ran.success {
                return Ok(ran);
            }
        }
        uv.run(spec, args, folder, "installing", self.deadline, self.reporter)
    }
}

/// Passes on interruptions and keeps the words of a first attempt to itself.
struct Attempt<'a>(&'a dyn Reporter);

impl Reporter for Attempt<'_> {
    fn event(&self, event: &Event) {
        tracing::debug!(event = event.name(), "{}", event.text());
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

/// The site-packages of a prefix.
pub fn site_packages(prefix: &Path, interpreter: &Interpreter) -> PathBuf {
    prefix.join("lib").join(&interpreter.library).join("site-packages")
}

/// A virtual environment (PEP 405) without anything in it. `relocatable` makes uv write scripts that find their
/// interpreter beside them, so that the prefix can be published by a rename.
fn skeleton(prefix: &Path, interpreter: &Interpreter) -> Result<(), RigError> {
    let bin = prefix.join("bin");
    let site = site_packages(prefix, interpreter);
    for folder in [&bin, &site] {
        fs::create_dir_all(folder).on("create", folder)?;
    }
    let home = interpreter.path.parent().unwrap_or(Path::new("/"));
    let config = format!(
        "home = {}\nimplementation = {}\nversion_info = {}\ninclude-system-site-packages = false\nrelocatable = true\n",
        home.display(),
        if interpreter.implementation == "cpython" { "CPython" } else { "PyPy" },
        interpreter.version
    );
    let config_path = prefix.join("pyvenv.cfg");
    fs::write(&config_path, config).on("write", &config_path)?;
    link(&interpreter.path, &bin.join("python"))?;
    link(Path::new("python"), &bin.join("python3"))?;
    link(Path::new("python"), &bin.join(format!("python{}", interpreter.minor())))
}

pub(crate) fn link(target: &Path, path: &Path) -> Result<(), RigError> {
    symlink(target, path).on("link", path)
}

const PIP: &str = "#!/bin/sh
echo \"pip: this environment is shared and read-only.\" >&2
echo \"hint: add the package to the spec and create again, or set 'writable: true' in the spec\" >&2
exit 1
";
const ACTIVATE: &str = "# For a POSIX shell: . bin/activate, and later `deactivate`.
deactivate () {
    PATH=\"$_ENVHARNESS_OLD_PATH\"; export PATH
    unset VARIABLE PYTHONDONTWRITEBYTECODE _ENVHARNESS_OLD_PATH
    unset -f deactivate
}
VARIABLE=\"PREFIX\"; export VARIABLE
_ENVHARNESS_OLD_PATH=\"$PATH\"
PATH=\"$VARIABLE/bin:$PATH\"; export PATH
PYTHONDONTWRITEBYTECODE=1; export PYTHONDONTWRITEBYTECODE
";
/// Appends the guest last, for processes of a context only.
const GUEST_PTH: &str = "import os, sys; p = os.environ.get('ENVHARNESS_GUEST'); p and p not in sys.path and sys.path.append(p)\n";

/// What uv and conda do not write: the `pip` that explains, `activate`, and the guest's place on the path. `library` is the
/// folder of the standard library, `python3.11`.
fn finish(prefix: &Path, library: &str, has_pip: bool) -> Result<(), RigError> {
    let bin = prefix.join("bin");
    fs::create_dir_all(&bin).on("create", &bin)?;
    if !has_pip {
        for name in ["pip", "pip3"] {
            let path = bin.join(name);
            replace(&path, PIP)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).on("mark executable", &path)?;
        }
    }
    let variable = if prefix.join("conda-meta").is_dir() { "CONDA_PREFIX" } else { "VIRTUAL_ENV" };
    let place = "$(cd -- \"$(dirname -- \"${BASH_SOURCE:-$0}\")/..\" && pwd)";
    replace(&bin.join("activate"), &ACTIVATE.replace("PREFIX", place).replace("VARIABLE", variable))?;
    let site = prefix.join("lib").join(library).join("site-packages");
    fs::create_dir_all(&site).on("create", &site)?;
    replace(&site.join("_envharness_guest.pth"), GUEST_PTH)?;
    for leftover in [".lock", "CACHEDIR.TAG", ".gitignore"] {
        let _ = fs::remove_file(prefix.join(leftover));
    }
    Ok(())
}

/// Makes a virtual environment that was made over this machine's Python stand on the image's.
pub(crate) fn stand_on(prefix: &Path, python: &str) -> Result<(), RigError> {
    let own = prefix.join("bin/python");
    fs::remove_file(&own).on("replace", &own)?;
    link(Path::new(python), &own)?;
    let config = prefix.join("pyvenv.cfg");
    let text = fs::read_to_string(&config).on("read", &config)?;
    let home = Path::new(python).parent().unwrap_or(Path::new("/")).display().to_string();
    let lines = text.lines().map(|line| if line.starts_with("home = ") { format!("home = {home}\n") } else { format!("{line}\n") });
    replace(&config, &lines.collect::<String>())
}

/// Writes a file anew: one of a conda package is a link into the cache and must not be written to.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), RigError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).on("replace", path),
        _ => {}
    }
    fs::write(path, text).on("write", path)
}
