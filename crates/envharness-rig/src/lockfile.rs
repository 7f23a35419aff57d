//! Where a spec's lock lies, and when it is used, refused or made anew.

use std::path::{Path, PathBuf};

use envharness_spec::{Backend, Lock, LockedSource, Platform, Spec};
use envharness_store::{read_text, write_atomic};

use crate::error::RigError;
use crate::event::Event;
use crate::host;
use crate::resolve::{Resolver, Upgrade, refuse_unavailable};
use crate::source_tree;

/// What may happen to a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockMode {
    /// Used while it answers its spec, else made anew.
    #[default]
    Auto,
    /// Used while it answers its spec, else refused (`--locked`).
    Locked,
    /// Used without a look at the spec (`--frozen`).
    Frozen,
}

/// What a caller asks of a lock.
#[derive(Debug, Clone, Default)]
pub struct LockRequest {
    /// What may happen to it.
    pub mode: LockMode,
    /// What may change in it.
    pub upgrade: Upgrade,
    /// Further platforms; the current one is always among them.
    pub platforms: Vec<Platform>,
}

/// The path of a spec's lock: beside the spec's file, else in the store by what was asked.
pub fn path_of(resolver: &Resolver<'_>, spec: &Spec) -> PathBuf {
    let stored = || {
        // A relative path means another thing in another folder.
        let local = spec.pip.iter().any(|requirement| requirement.local_path().is_some()) || !spec.find_links.is_empty();
        let base = spec.base.as_ref().filter(|_| local).map(|base| base.display().to_string()).unwrap_or_default();
        let digest = envharness_spec::Digest::of(format!("{}\n{base}", spec.resolution_digest()));
        resolver.home.specs().join(format!("{}.lock", &digest.hex()[..32]))
    };
    let Some(file) = &spec.file else { return stored() };
    let beside = match file.file_name().and_then(|name| name.to_str()) {
        Some("envharness.yaml") => file.with_file_name("envharness.lock"),
        // `x.py` and `x.yaml` in one folder must not share a lock, and a pyproject's is the folder's.
        Some("pyproject.toml") => file.with_file_name("envharness.lock"),
        Some(name) if name.ends_with(".yaml") => file.with_extension("lock"),
        Some(name) => file.with_file_name(format!("{name}.lock")),
        None => return stored(),
    };
    if beside.exists() || is_writable(beside.parent().unwrap_or(Path::new("."))) { beside } else { stored() }
}

fn is_writable(folder: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The lock of a spec, read or made.
///
/// # Errors
/// [`RigError::StaleLock`], [`RigError::NoLock`] by the mode; else as [`Resolver::resolve`].
pub fn obtain(resolver: &Resolver<'_>, spec: &Spec, request: &LockRequest) -> Result<Lock, RigError> {
    refuse_unavailable(spec)?;
    if spec.chosen_backend() == Backend::Host {
        return host::lock(&host::find(resolver.settings, resolver.home, spec)?, spec);
    }
    let path = path_of(resolver, spec);
    let old = match read_text(&path)? {
        Some(text) => match Lock::parse(&text) {
            Ok(lock) => Some(lock),
            Err(source) => return Err(RigError::LockFile { path, source }),
        },
        None if request.mode == LockMode::Auto => None,
        None => return Err(RigError::NoLock { path }),
    };
    tracing::debug!(path = %path.display(), there = old.is_some(), mode = ?request.mode, "lock");
    let mut platforms = request.platforms.clone();
    if let Some(old) = &old {
        platforms.extend(old.platforms.iter().cloned());
    }
    platforms.push(Platform::current());
    platforms.sort();
    platforms.dedup();
    if let Some(old) = &old {
        if request.mode == LockMode::Frozen {
            return Ok(old.clone());
        }
        let mut reasons = old.stale_reasons(spec, &Platform::current());
        reasons.extend(changed_sources(old, spec));
        reasons.extend(crate::container::changed_context(old, spec)?);
        if reasons.is_empty() && request.mode == LockMode::Locked {
            return Ok(old.clone());
        }
        if request.mode == LockMode::Locked {
            return Err(RigError::StaleLock { path, reasons });
        }
        let asked = request.upgrade.all || !request.upgrade.packages.is_empty() || platforms.iter().any(|p| !old.platforms.contains(p));
        if reasons.is_empty() && !asked {
            return Ok(old.clone());
        }
        tracing::info!(?reasons, "the lock is made anew");
    }
    let lock = resolver.resolve(spec, &platforms, old.as_ref(), &request.upgrade)?;
    for name in request.upgrade.packages.iter().filter(|name| lock.package(name).is_none()) {
        let message = format!("`{name}` is not in the lock, so there was nothing to upgrade");
        resolver.reporter.event(&Event::Warning { message, hint: None });
    }
    if old.as_ref().is_none_or(|old| old.to_string() != lock.to_string()) {
        write_atomic(&path, lock.to_string().as_bytes())?;
        let changes = old.map(|old| lock.changes_from(&old)).unwrap_or_default();
        resolver.reporter.event(&Event::LockWritten { path, changes });
    }
    Ok(lock)
}

/// Local sources whose content is not what was locked.
fn changed_sources(lock: &Lock, spec: &Spec) -> Vec<String> {
    let base = spec.base.clone().unwrap_or_default();
    let mut out = Vec::new();
    for package in &lock.packages {
        if let LockedSource::Path { path, digest, editable } = &package.source {
            match source_tree::digest(&source_tree::absolute(path, &base), *editable) {
                Ok(now) if now == *digest => {}
                Ok(_) => out.push(format!("the source `{path}` changed")),
                Err(_) => out.push(format!("the source `{path}` cannot be read")),
            }
        }
    }
    out
}
