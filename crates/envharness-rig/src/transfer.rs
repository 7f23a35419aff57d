//! Files in and out. No path is followed through a symlink that the context's code may have made.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::container::{download_inside, host_of, upload_inside};
use crate::context::Context;
use crate::error::RigError;

/// What a transfer moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Receives the bytes moved so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

struct Target {
    /// The context's folder, or for a download a folder of the host.
    base: PathBuf,
    /// Below it; no component is followed through a link.
    relative: PathBuf,
}

fn failed(direction: &'static str, path: &Path, reason: impl Into<String>) -> RigError {
    RigError::Transfer { direction, path: path.display().to_string(), reason: reason.into(), hint: None }
}

fn failed_io(direction: &'static str, path: &Path, error: &io::Error) -> RigError {
    let hint = match error.raw_os_error() {
        Some(28) => Some("the disk is full".to_owned()),
        Some(40) => Some("a symlink stands on the way; nothing is followed out of a context".to_owned()),
        _ if error.kind() == io::ErrorKind::NotFound => Some("check the path; relative ones begin at the context's workdir".to_owned()),
        _ => None,
    };
    RigError::Transfer { direction, path: path.display().to_string(), reason: error.to_string(), hint }
}

impl Context {
    /// Copies a file or a tree into the context. Relative targets begin at the workdir; absolute ones become folders
    /// of the context, seen by its processes at that path.
    ///
    /// # Errors
    /// [`RigError::Transfer`]; a file that was there is then as it was.
    pub fn upload(&self, source: &Path, target: &Path, progress: Progress<'_>) -> Result<Transferred, RigError> {
        let metadata = fs::metadata(source).map_err(|error| failed_io("upload", source, &error))?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(failed("upload", source, "it is neither a file nor a folder"));
        }
        if let Some(container) = self.container().filter(|_| self.spec().writable) {
            let target = named(target, source);
            if target.is_absolute() && !self.has_place(&target) {
                inside("upload", &target)?;
                return upload_inside(&container.engine()?, self.id(), source, &target, progress);
            }
        }
        let place = self.target("upload", target, source)?;
        let base = open_base("upload", &place.base)?;
        let mut moved = Transferred::default();
        if metadata.is_dir() {
            upload_tree(source, &base, &place.relative, &mut moved, progress)?;
        } else {
            upload_file(source, &base, &place.relative, &mut moved, progress)?;
        }
        Ok(moved)
    }

    /// Copies a file or a tree out of the context.
    ///
    /// # Errors
    /// [`RigError::Transfer`]; a file that was there is then as it was.
    pub fn download(&self, source: &Path, target: &Path, progress: Progress<'_>) -> Result<Transferred, RigError> {
        if let Some(container) = self.container()
            && source.is_absolute()
            && !self.has_place(source)
            && !self.is_shared(source)
        {
            inside("download", source)?;
            let name = source.file_name().filter(|_| target.is_dir() && !target.as_os_str().is_empty());
            let target = name.map_or(target.to_owned(), |name| target.join(name));
            return download_inside(&container.engine()?, self.id(), source, &target, progress);
        }
        let place = self.source(source)?;
        let base = open_base("download", &place.base)?;
        let target = if target.is_dir() && !target.as_os_str().is_empty() {
            place.relative.file_name().map_or(target.to_owned(), |name| target.join(name))
        } else {
            target.to_owned()
        };
        let mut moved = Transferred::default();
        download_any(&base, &place.relative, source, &target, &mut moved, progress)?;
        Ok(moved)
    }

    /// Whether an absolute path is one of the context's own folders.
    fn has_place(&self, path: &Path) -> bool {
        path.starts_with(self.workdir()) || self.is_own_tmp(path) || self.own_folders().iter().any(|folder| path.starts_with(folder))
    }

    /// The deepest folder of a path that is there already, and whether the path itself is: on the host, or in the image.
    fn covered(&self, target: &Path) -> Result<(PathBuf, bool), RigError> {
        let Some(container) = self.container() else { return Ok((host_part(target), target.exists())) };
        let folder = host_of(&container.engine()?, self.id(), target)?;
        Ok((folder, false))
    }

    /// Where an upload goes; makes the context's own folder for an absolute path.
    fn target(&self, direction: &'static str, target: &Path, source: &Path) -> Result<Target, RigError> {
        let target = named(target, source);
        let own =
            |folder: &str, rest: &Path| Ok(Target { base: self.folder(), relative: Path::new(folder).join(inside(direction, rest)?) });
        if !target.is_absolute() {
            return own("work", &target);
        }
        if let Ok(rest) = target.strip_prefix(self.workdir()) {
            return own("work", rest);
        }
        let refused = |reason: String| RigError::Transfer {
            direction,
            path: target.display().to_string(),
            reason,
            hint: Some("use a relative path: it begins at the context's workdir".into()),
        };
        inside(direction, &target)?;
        if self.container().is_none() && self.view_refused() {
            return Err(refused("this machine refuses mount namespaces, and so folders of a context's own".into()));
        }
        if self.is_own_tmp(&target) {
            return own("tmp", target.strip_prefix("/tmp").unwrap_or(&target));
        }
        let of_kernel = ["/proc", "/sys", "/dev"].iter().any(|folder| target.starts_with(folder));
        let shared = self.container().is_some() && (self.is_shared(&target) || self.is_mounted(&target) || of_kernel);
        let owned = self.own_folders();
        if shared {
            return Err(refused("it is a folder of this machine that the container shares".into()));
        }
        if !owned.iter().any(|folder| target.starts_with(folder)) {
            let (host, exists) = self.covered(&target)?;
            let parent = target.parent().unwrap_or(Path::new("/"));
            if parent == host || exists {
                let whose = if self.container().is_some() { "image" } else { "host" };
                return Err(refused(format!(
                    "the {whose} has the folder `{}`, and nothing of the {whose} is covered or written",
                    host.display()
                )));
            }
            // Behind a link the folder would have to be made on the host.
            if self.container().is_none() && host.canonicalize().is_ok_and(|real| real != host) {
                return Err(refused(format!("`{}` is a symlink of the host", host.display())));
            }
            // The first folder that the host does not have becomes the context's.
            let first = parent.strip_prefix(&host).ok().and_then(|rest| rest.components().next());
            let folder = first.map_or(parent.to_owned(), |first| host.join(first));
            let base = self.folder().join("root").join(folder.strip_prefix("/").unwrap_or(&folder));
            fs::create_dir_all(&base).map_err(|error| failed_io(direction, &base, &error))?;
            self.add_own_folder(&folder)?;
        }
        own("root", target.strip_prefix("/").unwrap_or(&target))
    }

    /// Where a download comes from: the context's own folders only.
    fn source(&self, source: &Path) -> Result<Target, RigError> {
        let direction = "download";
        let own =
            |folder: &str, rest: &Path| Ok(Target { base: self.folder(), relative: Path::new(folder).join(inside(direction, rest)?) });
        if !source.is_absolute() {
            return own("work", source);
        }
        if let Ok(rest) = source.strip_prefix(self.workdir()) {
            return own("work", rest);
        }
        if self.is_own_tmp(source) {
            return own("tmp", source.strip_prefix("/tmp").unwrap_or(source));
        }
        if self.own_folders().iter().any(|folder| source.starts_with(folder)) {
            return own("root", source.strip_prefix("/").unwrap_or(source));
        }
        // A path backend shares the rest of the file system with its caller.
        let base = source.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Target { base, relative: source.file_name().map(PathBuf::from).unwrap_or_default() })
    }
}

/// A target whose end says that it is a folder, with the source's name.
fn named(target: &Path, source: &Path) -> PathBuf {
    let directory = target.as_os_str().to_string_lossy().ends_with('/');
    if directory { target.join(source.file_name().unwrap_or_default()) } else { target.to_owned() }
}

/// The deepest folder of a path that the host has.
fn host_part(path: &Path) -> PathBuf {
    let parent = path.parent().unwrap_or(Path::new("/"));
    parent.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// A relative path without `..`.
fn inside(direction: &'static str, path: &Path) -> Result<PathBuf, RigError> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => out.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(failed(direction, path, "`..` leads out of the context")),
        }
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(failed(direction, path, "the path holds a NUL byte"));
    }
    Ok(out)
}

fn open_base(direction: &'static str, base: &Path) -> Result<OwnedFd, RigError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(base, flags, Mode::empty()).map_err(|errno| failed_io(direction, base, &errno.into()))
}

/// Opens the folder of a path below a descriptor, component by component, following no link; makes what is missing
/// when `make` is set. Returns the folder and the last name.
fn walk(base: &OwnedFd, relative: &Path, make: bool) -> io::Result<(OwnedFd, PathBuf)> {
    let mut folder = base.try_clone()?;
    let name = relative.file_name().map(PathBuf::from).ok_or(io::ErrorKind::IsADirectory)?;
    for part in relative.parent().unwrap_or(Path::new("")).components() {
        folder = open_folder(&folder, Path::new(part.as_os_str()), make)?;
    }
    Ok((folder, name))
}

fn open_folder(parent: &OwnedFd, name: &Path, make: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) if make => {
            match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
        }
        Err(rustix::io::Errno::NOTDIR)
            if rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| s.st_mode & 0o170_000 == 0o120_000) =>
        {
            Err(io::Error::from_raw_os_error(40))
        }
        other => Ok(other?),
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write, moved: &mut Transferred, progress: Progress<'_>) -> io::Result<()> {
    let mut buffer = vec![0_u8; 1 << 18];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..read])?;
        moved.bytes += read as u64;
        progress(moved.bytes);
    }
}

fn upload_file(source: &Path, base: &OwnedFd, relative: &Path, moved: &mut Transferred, progress: Progress<'_>) -> Result<(), RigError> {
    let result = (|| {
        let mut from = File::open(source)?;
        let metadata = from.metadata()?;
        let (folder, name) = walk(base, relative, true)?;
        if rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| s.st_mode & 0o170_000 == 0o040_000) {
            return Err(io::Error::other("a folder of that name is there; end the path with `/` to put the file into it"));
        }
        let temporary = PathBuf::from(format!(".envharness-{}", envharness_store::random_suffix(10)));
        use std::os::unix::fs::PermissionsExt as _;
        let mode = Mode::from_raw_mode(metadata.permissions().mode() & 0o777);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let to = rustix::fs::openat(&folder, &temporary, flags, Mode::from_raw_mode(0o600))?;
        let mut to = File::from(to);
        let done = copy(&mut from, &mut to, moved, progress)
            .and_then(|()| Ok(rustix::fs::fchmod(&to, mode)?))
            .and_then(|()| Ok(rustix::fs::renameat(&folder, &temporary, &folder, &name)?));
        if done.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        }
        done
    })();
    moved.files += 1;
    result.map_err(|error| failed_io("upload", source, &error))
}

fn upload_tree(source: &Path, base: &OwnedFd, relative: &Path, moved: &mut Transferred, progress: Progress<'_>) -> Result<(), RigError> {
    for entry in walkdir::WalkDir::new(source).sort_by_file_name() {
        let entry = entry.map_err(|error| failed("upload", source, error.to_string()))?;
        let target = relative.join(entry.path().strip_prefix(source).unwrap_or(entry.path()));
        if entry.file_type().is_file() {
            upload_file(entry.path(), base, &target, moved, progress)?;
        } else if entry.file_type().is_symlink() {
            let link = fs::read_link(entry.path()).map_err(|error| failed_io("upload", entry.path(), &error))?;
            let result = walk(base, &target, true).and_then(|(folder, name)| {
                let _ = rustix::fs::unlinkat(&folder, &name, AtFlags::empty());
                Ok(rustix::fs::symlinkat(&link, &folder, &name)?)
            });
            result.map_err(|error| failed_io("upload", entry.path(), &error))?;
        } else if entry.file_type().is_dir() {
            let result = walk(base, &target.join("x"), true).and_then(|(folder, _)| {
                use std::os::unix::fs::PermissionsExt as _;
                let mode = fs::metadata(entry.path())?.permissions().mode() & 0o777;
                Ok(rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode | 0o700))?)
            });
            result.map_err(|error| failed_io("upload", entry.path(), &error))?;
        }
    }
    Ok(())
}

fn download_any(
    base: &OwnedFd,
    relative: &Path,
    source: &Path,
    target: &Path,
    moved: &mut Transferred,
    progress: Progress<'_>,
) -> Result<(), RigError> {
    let fail = |error: io::Error| failed_io("download", source, &error);
    let opened = if relative.as_os_str().is_empty() {
        base.try_clone().map_err(fail)?
    } else {
        let (folder, name) = walk(base, relative, false).map_err(fail)?;
        // Not blocking, so that a FIFO in the way is an error and not a wait.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        rustix::fs::openat(&folder, &name, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?
    };
    let stat = rustix::fs::fstat(&opened).map_err(|errno| fail(errno.into()))?;
    match stat.st_mode & 0o170_000 {
        0o100_000 => save_file(opened, stat.st_mode & 0o777, source, target, moved, progress),
        0o040_000 => {
            make_folder(target, stat.st_mode & 0o777).map_err(|error| failed_io("download", target, &error))?;
            let entries = rustix::fs::Dir::read_from(opened.as_fd()).map_err(|errno| fail(errno.into()))?;
            for entry in entries {
                let entry = entry.map_err(|errno| fail(errno.into()))?;
                let name = PathBuf::from(entry.file_name().to_string_lossy().into_owned());
                if name == Path::new(".") || name == Path::new("..") {
                    continue;
                }
                if entry.file_type() == rustix::fs::FileType::Symlink {
                    // Its target means something inside only; copied as a link, never followed.
                    let link = rustix::fs::readlinkat(&opened, &name, Vec::new()).map_err(|errno| fail(errno.into()))?;
                    let path = target.join(&name);
                    let _ = fs::remove_file(&path);
                    let link = PathBuf::from(link.to_string_lossy().into_owned());
                    std::os::unix::fs::symlink(link, &path).map_err(|error| failed_io("download", &path, &error))?;
                    continue;
                }
                let path = target.join(&name);
                // What an earlier download left as a link must not lead this one elsewhere.
                if fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink()) {
                    fs::remove_file(&path).map_err(|error| failed_io("download", &path, &error))?;
                }
                download_any(&opened, &name, &source.join(&name), &path, moved, progress)?;
            }
            Ok(())
        }
        _ => Err(failed("download", source, "it is neither a file nor a folder")),
    }
}

/// Makes a folder with a mode, its owner's rights added: what follows must be written into it.
fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o700))
}

fn save_file(
    from: OwnedFd,
    mode: u32,
    source: &Path,
    target: &Path,
    moved: &mut Transferred,
    progress: Progress<'_>,
) -> Result<(), RigError> {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let result = (|| {
        fs::create_dir_all(parent)?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let temporary = parent.join(format!(".{name}.{}", envharness_store::random_suffix(8)));
        let done = File::create_new(&temporary)
            .and_then(|mut to| copy(&mut File::from(from), &mut to, moved, progress))
            .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)))
            .and_then(|()| fs::rename(&temporary, target));
        if done.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        done
    })();
    moved.files += 1;
    result.map_err(|error| failed_io("download", if parent.exists() { source } else { target }, &error))
}
