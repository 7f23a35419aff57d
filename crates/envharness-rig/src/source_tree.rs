//! Local sources: their paths, and a digest of what is in them.

use std::fs;
use std::path::{Path, PathBuf};

use envharness_spec::{Digest, Requirement};

use crate::error::{IoContext as _, RigError};

/// Folders that hold nothing of the source itself.
const IGNORED: [&str; 9] = [".git", ".hg", "__pycache__", ".venv", "build", "dist", ".tox", ".mypy_cache", ".pytest_cache"];
/// What an editable source's metadata depends on; its code may change under a running environment.
const METADATA: [&str; 4] = ["pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in"];

/// Whether a requirement is editable.
pub(crate) fn is_editable(requirement: &Requirement) -> bool {
    requirement.local_path().is_some_and(|(_, editable)| editable)
}

/// A requirement's line with its path made absolute.
pub(crate) fn absolute_requirement(requirement: &Requirement, base: &Path) -> String {
    let text = requirement.to_string();
    let text = text.split(" --hash=").next().unwrap_or_default().to_owned();
    match requirement.local_path() {
        Some((path, _)) => text.replacen(path, &absolute(path, base).display().to_string(), 1),
        None => text,
    }
}

/// A path of a spec made absolute.
pub(crate) fn absolute(path: &str, base: &Path) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(rest),
        None => std::path::absolute(base.join(path)).unwrap_or_else(|_| base.join(path)),
    }
}

/// The digest of a source: names, modes that matter and contents, in order.
///
/// # Errors
/// [`RigError::Io`].
pub(crate) fn digest(path: &Path, editable: bool) -> Result<Digest, RigError> {
    if path.is_file() {
        return Ok(Digest::of(fs::read(path).on("read", path)?));
    }
    let mut lines = String::from(if editable { "editable\n" } else { "source\n" });
    let walk = walkdir::WalkDir::new(path).sort_by_file_name().into_iter().filter_entry(|entry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(IGNORED.contains(&name.as_ref()) || name.ends_with(".egg-info"))
    });
    for entry in walk {
        let entry = entry.map_err(|error| RigError::Io { action: "read", path: path.to_owned(), source: error.into() })?;
        if !entry.file_type().is_file() || entry.path().extension().is_some_and(|e| e == "pyc") {
            continue;
        }
        let name = entry.path().strip_prefix(path).unwrap_or(entry.path()).to_string_lossy().into_owned();
        if editable && !METADATA.contains(&name.as_str()) {
            continue;
        }
        let content = Digest::of(fs::read(entry.path()).on("read", entry.path())?);
        lines.push_str(&format!("{name}\0{content}\n"));
    }
    Ok(Digest::of(lines))
}
