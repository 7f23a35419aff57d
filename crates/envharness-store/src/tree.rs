//! Whole trees: sealing, measuring, removing.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Instant;

/// Takes every write bit from a tree's files and folders; symlinks are left alone.
///
/// # Errors
/// The first that happens.
pub fn seal(root: &Path) -> io::Result<()> {
    for entry in walkdir::WalkDir::new(root).contents_first(true) {
        let entry = entry.map_err(io::Error::from)?;
        if entry.file_type().is_symlink() {
            continue;
        }
        let metadata = entry.metadata().map_err(io::Error::from)?;
        let mode = metadata.mode();
        if mode & 0o222 != 0 {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode & 0o7555))?;
        }
    }
    Ok(())
}

/// Removes a tree, also where folders are read-only. Absence is success. Symlinks are removed, never followed.
///
/// # Errors
/// The first that happens.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_tree_until(path, None).map(drop)
}

/// As [`remove_tree`], but stops at `deadline`; returns whether all is gone.
pub(crate) fn remove_tree_until(path: &Path, deadline: Option<Instant>) -> io::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        other => other?,
    };
    if !metadata.is_dir() {
        return gone(fs::remove_file(path)).map(|()| true);
    }
    if metadata.mode() & 0o700 != 0o700 {
        fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() | 0o700))?;
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Ok(false);
        }
        if entry.file_type()?.is_dir() {
            if !remove_tree_until(&entry.path(), deadline)? {
                return Ok(false);
            }
        } else {
            gone(fs::remove_file(entry.path()))?;
        }
    }
    gone(fs::remove_dir(path)).map(|()| true)
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Bytes and files of a tree; what vanishes meanwhile is not counted.
pub fn tree_size(root: &Path) -> (u64, u64) {
    let files = walkdir::WalkDir::new(root).into_iter().flatten().filter(|entry| !entry.file_type().is_dir());
    files.fold((0, 0), |(bytes, count), entry| (bytes + entry.metadata().map_or(0, |m| m.len()), count + 1))
}
