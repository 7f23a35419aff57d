//! `writable: true`: a context whose environment it may change, without a change to the shared prefix.
//!
//! With the privilege for it, an overlay in the context's own mount namespace: nothing is copied before it is changed.
//! Without it, a copy of the prefix (a reflink where the file system has them), with its size and time told. Never hard
//! links: a write through one would change every other environment.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use envharness_sandbox::{Overlay, privileged};
use envharness_spec::format_bytes;

use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Reporter};

/// Where a writable environment lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writable {
    /// At the prefix's own path, changes in the context's folder.
    Overlay,
    /// A copy in the context's folder.
    Copy,
}

impl Writable {
    /// What this process can do.
    pub(crate) fn choose(view_refused: bool) -> Self {
        if privileged() && !view_refused { Self::Overlay } else { Self::Copy }
    }
}

/// The overlay of a context; makes its folders, with a `pip` that works.
pub(crate) fn overlay(prefix: &Path, folder: &Path, pip: &str) -> Result<Overlay, RigError> {
    let overlay = Overlay { lower: prefix.to_owned(), upper: folder.join("upper"), work: folder.join("overlay") };
    let bin = overlay.upper.join("bin");
    if !bin.is_dir() {
        for path in [&bin, &overlay.work] {
            fs::create_dir_all(path).on("create", path)?;
        }
        write_pip(&bin, pip)?;
    }
    Ok(overlay)
}

/// Copies a prefix into the context's folder, once.
pub(crate) fn copy(prefix: &Path, folder: &Path, pip: &str, reporter: &dyn Reporter) -> Result<PathBuf, RigError> {
    let target = folder.join("env");
    if target.is_dir() {
        return Ok(target);
    }
    let started = Instant::now();
    let staged = folder.join(".env");
    envharness_store::remove_tree(&staged).on("remove", &staged)?;
    let mut bytes = 0;
    for entry in walkdir::WalkDir::new(prefix) {
        let entry = entry.map_err(|error| RigError::Io { action: "read", path: prefix.to_owned(), source: error.into() })?;
        let to = staged.join(entry.path().strip_prefix(prefix).unwrap_or(entry.path()));
        if entry.file_type().is_dir() {
            fs::create_dir_all(&to).on("create", &to)?;
        } else if entry.file_type().is_symlink() {
            symlink(fs::read_link(entry.path()).on("read", entry.path())?, &to).on("link", &to)?;
        } else {
            bytes += fs::copy(entry.path(), &to).on("copy", &to)?;
            let mode = fs::metadata(&to).on("read", &to)?.permissions().mode();
            fs::set_permissions(&to, fs::Permissions::from_mode(mode | 0o200)).on("open", &to)?;
        }
    }
    for name in ["pip", "pip3"] {
        let _ = fs::remove_file(staged.join("bin").join(name));
    }
    write_pip(&staged.join("bin"), pip)?;
    fs::rename(&staged, &target).on("publish", &target)?;
    reporter.event(&Event::Copied { size: format_bytes(bytes >> 20 << 20), elapsed: started.elapsed() });
    Ok(target)
}

fn write_pip(bin: &Path, text: &str) -> Result<(), RigError> {
    for name in ["pip", "pip3"] {
        let path = bin.join(name);
        fs::write(&path, text).on("write", &path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).on("mark executable", &path)?;
    }
    Ok(())
}
