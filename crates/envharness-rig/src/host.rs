//! `backend: host`: adopts an interpreter or an environment folder as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use envharness_spec::{Backend, Lock, LockedPackage, LockedPython, LockedSource, Platform, Spec, lock::Inputs};
use envharness_store::Home;
use pep440_rs::Version;

use crate::error::RigError;
use crate::interpreter::{self, Interpreter};
use crate::settings::Settings;

/// An adopted environment.
#[derive(Debug, Clone)]
pub struct Adopted {
    /// The interpreter as given: links are kept, since a virtual environment is known by its own path.
    pub python: PathBuf,
    /// What it is.
    pub interpreter: Interpreter,
    /// Its site-packages.
    pub site_packages: PathBuf,
}

/// Finds the environment that a spec names: `python:` is a path, or a specifier for what the machine has.
///
/// # Errors
/// [`RigError::BadPython`], [`RigError::NoPython`].
pub fn find(settings: &Settings, home: &Home, spec: &Spec) -> Result<Adopted, RigError> {
    let wanted = spec.python.as_deref();
    let python = match interpreter::path_of(spec) {
        Some(path) => path,
        None => match &settings.caller_python {
            Some(caller) if wanted.is_none() => caller.clone(),
            _ => interpreter::choices(settings, home, spec)?.remove(0).interpreter.path,
        },
    };
    let interpreter = interpreter::query(home, &python)?;
    // A virtual environment is the folder above `bin`; anything else answers for itself.
    let folder = python.parent().and_then(Path::parent).filter(|dir| dir.join("pyvenv.cfg").is_file() || dir.join("conda-meta").is_dir());
    let prefix = folder.map_or_else(|| interpreter.prefix.clone(), Path::to_owned);
    let site_packages = prefix.join("lib").join(&interpreter.library).join("site-packages");
    Ok(Adopted { python, interpreter, site_packages })
}

/// Locks what is there, after checking that it has what the spec asks for.
///
/// # Errors
/// [`RigError::HostLacks`].
pub fn lock(adopted: &Adopted, spec: &Spec) -> Result<Lock, RigError> {
    let installed = installed(&adopted.site_packages);
    let mut missing = Vec::new();
    for requirement in &spec.pip {
        let Some(name) = &requirement.name else {
            missing.push(format!("`{requirement}`, which only an own environment can have"));
            continue;
        };
        let found = installed.iter().find(|(installed, _)| installed == name);
        match found {
            None => missing.push(format!("`{requirement}`")),
            Some((_, version)) => {
                let fits = Version::from_str(version).is_ok_and(|v| requirement.version_specifiers().contains(&v));
                if !fits {
                    missing.push(format!("`{requirement}` (it has {version})"));
                }
            }
        }
    }
    if !missing.is_empty() {
        return Err(RigError::HostLacks { environment: adopted.python.display().to_string(), missing });
    }
    let packages = installed.into_iter().map(|(name, version)| LockedPackage {
        name,
        version: Some(version),
        source: LockedSource::Host,
        platforms: Vec::new(),
        via: Vec::new(),
        files: Vec::new(),
    });
    Ok(Lock {
        spec: spec.digest(),
        backend: Backend::Host,
        python: LockedPython {
            version: adopted.interpreter.version.clone(),
            implementation: adopted.interpreter.implementation.clone(),
            reason: format!("adopted at {}", adopted.python.display()),
        },
        platforms: vec![Platform::current()],
        inputs: Inputs::of(spec),
        image: None,
        packages: packages.collect(),
    })
}

/// Names and versions of the installed packages, from their `dist-info` folders.
fn installed(site_packages: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(site_packages).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut out: Vec<(String, String)> = names
        .filter_map(|name| {
            let (name, version) = name.strip_suffix(".dist-info")?.rsplit_once('-')?;
            Some((name.to_ascii_lowercase().replace(['_', '.'], "-"), version.to_owned()))
        })
        .collect();
    out.sort();
    out.dedup();
    out
}
