//! Files in a container that lie nowhere on this machine: those of its image, and of a root that may be written to.

use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use envharness_engine::{Endless, Engine, Patient};

use crate::error::RigError;
use crate::transfer::{Progress, Transferred};

fn failed(direction: &'static str, path: &Path, reason: impl Into<String>, hint: Option<&str>) -> RigError {
    RigError::Transfer { direction, path: path.display().to_string(), reason: reason.into(), hint: hint.map(str::to_owned) }
}

/// The deepest folder of a path that the container has.
pub(crate) fn host_of(engine: &Engine, id: &str, path: &Path) -> Result<PathBuf, RigError> {
    for folder in path.parent().unwrap_or(Path::new("/")).ancestors() {
        if engine.stat(id, &folder.display().to_string(), &Patient)?.is_some() {
            return Ok(folder.to_owned());
        }
    }
    Ok("/".into())
}

/// Copies a file or a tree to a path of a container whose root may be written to.
pub(crate) fn upload_inside(
    engine: &Engine,
    id: &str,
    source: &Path,
    target: &Path,
    progress: Progress<'_>,
) -> Result<Transferred, RigError> {
    let direction = "upload";
    let fail = |error: std::io::Error| failed(direction, source, error.to_string(), None);
    let there = host_of(engine, id, target)?;
    let relative = target.strip_prefix(&there).unwrap_or(target);
    let mut moved = Transferred::default();
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    for entry in walkdir::WalkDir::new(source).sort_by_file_name() {
        let entry = entry.map_err(|error| failed(direction, source, error.to_string(), None))?;
        let below = entry.path().strip_prefix(source).unwrap_or(Path::new(""));
        let name = if below.as_os_str().is_empty() { relative.to_owned() } else { relative.join(below) };
        // The first may be a link to what is meant.
        if entry.depth() == 0 && !entry.path().is_dir() {
            let mut file = fs::File::open(entry.path()).map_err(fail)?;
            builder.append_file(&name, &mut file).map_err(fail)?;
        } else {
            builder.append_path_with_name(entry.path(), &name).map_err(fail)?;
        }
        if entry.file_type().is_file() || entry.depth() == 0 && entry.path().is_file() {
            moved.files += 1;
            moved.bytes += fs::metadata(entry.path()).map_or(0, |metadata| metadata.len());
            progress(moved.bytes);
        }
    }
    engine.upload(id, &there.display().to_string(), builder.into_inner().map_err(fail)?, &Endless)?;
    Ok(moved)
}

/// Copies a file or a tree of a container out. No link is followed, and no name leads out of the target.
pub(crate) fn download_inside(
    engine: &Engine,
    id: &str,
    source: &Path,
    target: &Path,
    progress: Progress<'_>,
) -> Result<Transferred, RigError> {
    let direction = "download";
    let hint = "check the path; relative ones begin at the context's workdir";
    let fail = |error: std::io::Error| failed(direction, source, error.to_string(), None);
    if engine.stat(id, &source.display().to_string(), &Patient)?.is_none() {
        return Err(failed(direction, source, "it is not in the container", Some(hint)));
    }
    let mut file = tempfile::tempfile().map_err(fail)?;
    engine.download(id, &source.display().to_string(), &mut file, &Endless)?;
    file.seek(SeekFrom::Start(0)).map_err(fail)?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(fail)?;
    let folder = tempfile::Builder::new().prefix(".envharness-").tempdir_in(parent).map_err(fail)?;
    let mut archive = tar::Archive::new(file);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(false);
    // A bit that gives rights inside must not give them here.
    archive.set_mask(0o7000);
    let mut moved = Transferred::default();
    let mut first = None;
    for entry in archive.entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        let name = entry.path().map_err(fail)?.components().next().map(|part| PathBuf::from(part.as_os_str()));
        first = first.or(name);
        let kind = entry.header().entry_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link()) {
            continue;
        }
        if kind.is_file() {
            moved.files += 1;
            moved.bytes += entry.size();
            progress(moved.bytes);
        }
        // Answers false for what would lead out of the folder.
        if !entry.unpack_in(folder.path()).map_err(fail)? {
            return Err(failed(direction, source, "a name in it leads out of its folder", None));
        }
    }
    let got = first.map(|name| folder.path().join(name)).filter(|path| path.symlink_metadata().is_ok());
    let got = got.ok_or_else(|| failed(direction, source, "it is neither a file nor a folder", None))?;
    if got.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
        return Err(failed(direction, source, "it is a symlink, and none is followed", Some("name what it leads to")));
    }
    if target.is_dir() && got.is_dir() {
        merge(&got, target).map_err(fail)?;
    } else {
        fs::rename(&got, target).map_err(fail)?;
    }
    Ok(moved)
}

/// Moves a folder's entries over those of another.
fn merge(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() && target.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            merge(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), target)?;
        }
    }
    Ok(())
}
