//! The file system as the processes of a context see it.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::plan::{Call, Plan, PlanError, c_path};

/// What differs from the host's file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// A folder that stands at `/tmp`; `None` leaves the host's.
    pub tmp: Option<PathBuf>,
    /// Paths below the host's `/tmp` that stay where they are.
    pub keep: Vec<PathBuf>,
    /// Folders that cannot be written to, not even by root.
    pub read_only: Vec<PathBuf>,
    /// A folder whose changes go elsewhere.
    pub overlay: Option<Overlay>,
    /// Folders of the context that are seen at an absolute path of their own: (folder, path).
    pub folders: Vec<(PathBuf, PathBuf)>,
    /// An empty folder on which a new root is put together when `folders` has any.
    pub new_root: PathBuf,
    /// The directory to start in.
    pub cwd: PathBuf,
}

/// A folder that processes may change, while what lies below stays as it is (overlayfs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The folder.
    pub lower: PathBuf,
    /// Where changes are kept.
    pub upper: PathBuf,
    /// Scratch space of the kernel, on the same file system as `upper`.
    pub work: PathBuf,
}

/// A view that cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A path holds a NUL byte.
    #[error(transparent)]
    Path(#[from] PlanError),
    /// A mount point cannot be made.
    #[error("failed to make the mount point `{}`", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

const TMP: &str = "/tmp";

impl View {
    /// Lists the calls that make the view, and makes the mount points inside the context's own folders.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn plan(&self) -> Result<Plan, ViewError> {
        let mut plan = Plan::default();
        enter_namespace(&mut plan)?;
        for folder in &self.read_only {
            plan.bind(folder, folder)?;
            plan.mount(None, folder, libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | mount_flags(folder))?;
        }
        if let Some(overlay) = &self.overlay {
            let mut options = Vec::new();
            for (key, path) in [("lowerdir", &overlay.lower), ("upperdir", &overlay.upper), ("workdir", &overlay.work)] {
                let text = path.display().to_string().replace('\\', "\\\\").replace(':', "\\:").replace(',', "\\,");
                options.push(format!("{key}={text}"));
            }
            plan.calls.push(Call::Mount {
                source: Some(CString::from(c"overlay")),
                target: c_path(&overlay.lower)?,
                kind: Some(CString::from(c"overlay")),
                flags: 0,
                data: Some(c_path(Path::new(&options.join(",")))?),
            });
        }
        if let Some(tmp) = &self.tmp {
            self.plan_tmp(tmp, &mut plan)?;
        }
        if !self.folders.is_empty() {
            self.plan_root(&mut plan)?;
        }
        plan.calls.push(Call::Chdir(c_path(&self.cwd)?));
        Ok(plan)
    }

    fn plan_tmp(&self, tmp: &Path, plan: &mut Plan) -> Result<(), ViewError> {
        let mut keep: Vec<&PathBuf> = self.keep.iter().filter(|path| path.starts_with(TMP) && *path != Path::new(TMP)).collect();
        keep.sort();
        keep.dedup();
        let mut kept: Vec<&Path> = Vec::new();
        for path in keep {
            // Below one that is kept already, or gone.
            if kept.iter().any(|parent| path.starts_with(parent)) || !path.exists() {
                continue;
            }
            let relative = path.strip_prefix(TMP).unwrap_or(path);
            let point = tmp.join(relative);
            make_point(&point, path.is_dir())?;
            plan.bind(path, &point)?;
            kept.push(path);
        }
        plan.bind(tmp, Path::new(TMP))?;
        Ok(())
    }

    /// A new root: everything of the old one bound where it is, and the context's folders beside it. The host's own
    /// folders are never written to.
    fn plan_root(&self, plan: &mut Plan) -> Result<(), ViewError> {
        fs::create_dir_all(&self.new_root).map_err(|source| ViewError::MountPoint { path: self.new_root.clone(), source })?;
        let root = &self.new_root;
        plan.calls.push(Call::Mount {
            source: Some(CString::from(c"envharness")),
            target: c_path(root)?,
            kind: Some(CString::from(c"tmpfs")),
            flags: 0,
            data: Some(CString::from(c"mode=0755,size=1m")),
        });
        let targets: Vec<Vec<String>> = self.folders.iter().map(|(_, path)| components(path)).collect();
        self.mirror(Path::new("/"), &targets, plan)?;
        for ((source, path), parts) in self.folders.iter().zip(&targets) {
            let mut point = root.clone();
            for part in parts {
                point.push(part);
                plan.calls.push(Call::Mkdir(c_path(&point)?));
            }
            plan.bind(source, &root.join(path.strip_prefix("/").unwrap_or(path)))?;
        }
        plan.calls.push(Call::EnterRoot(c_path(root)?));
        Ok(())
    }

    /// Binds each entry of a host folder; an entry on the way to a target is mirrored one level deeper instead.
    fn mirror(&self, folder: &Path, targets: &[Vec<String>], plan: &mut Plan) -> Result<(), ViewError> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let here = self.new_root.join(path.strip_prefix("/").unwrap_or(&path));
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() && targets.iter().any(|t| t.first() == Some(&name)) {
                // It came after the upload; followed, a mount point would be made on the host.
                continue;
            }
            if kind.is_symlink() {
                if let Ok(target) = fs::read_link(&path) {
                    plan.calls.push(Call::Symlink { target: c_path(&target)?, path: c_path(&here)? });
                }
            } else if kind.is_dir() {
                plan.calls.push(Call::Mkdir(c_path(&here)?));
                let deeper: Vec<Vec<String>> = targets.iter().filter(|t| t.len() > 1 && t[0] == name).map(|t| t[1..].to_vec()).collect();
                if deeper.is_empty() {
                    plan.bind(&path, &here)?;
                } else {
                    self.mirror(&path, &deeper, plan)?;
                }
            } else {
                plan.calls.push(Call::Touch(c_path(&here)?));
                plan.bind(&path, &here)?;
            }
        }
        Ok(())
    }
}

fn components(path: &Path) -> Vec<String> {
    let normal = |c| if let Component::Normal(part) = c { Some(part.to_string_lossy().into_owned()) } else { None };
    path.components().filter_map(normal).collect()
}

/// A mount namespace of one's own; without the privilege for it, in a user namespace that maps only the caller.
fn enter_namespace(plan: &mut Plan) -> Result<(), PlanError> {
    if privileged() {
        plan.calls.push(Call::Unshare(libc::CLONE_NEWNS));
    } else {
        // SAFETY: both calls only read the caller's ids.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        plan.calls.push(Call::Unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS));
        let write = |path: &str, text: String, must| {
            Ok::<_, PlanError>(Call::Write { path: c_path(Path::new(path))?, text: c_path(Path::new(&text))?, must })
        };
        plan.calls.push(write("/proc/self/setgroups", "deny".into(), false)?);
        plan.calls.push(write("/proc/self/uid_map", format!("{uid} {uid} 1"), true)?);
        plan.calls.push(write("/proc/self/gid_map", format!("{gid} {gid} 1"), true)?);
    }
    plan.mount(None, Path::new("/"), libc::MS_REC | libc::MS_PRIVATE)
}

/// Whether this process may mount without a user namespace: CAP_SYS_ADMIN (bit 21) in the effective set.
pub fn privileged() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|caps| caps & (1 << 21) != 0)
}

/// Flags of the mount below a path: a user namespace may add restrictions to them and must not drop any.
fn mount_flags(path: &Path) -> u64 {
    // Access-time flags are left as they are when none is given (mount(2), "MS_REMOUNT").
    const PAIRS: [(u64, u64); 3] =
        [(libc::ST_NOSUID, libc::MS_NOSUID), (libc::ST_NODEV, libc::MS_NODEV), (libc::ST_NOEXEC, libc::MS_NOEXEC)];
    let flags = rustix::fs::statvfs(path).map_or(0, |stat| stat.f_flag.bits());
    PAIRS.iter().filter(|(st, _)| flags & st != 0).fold(0, |all, (_, ms)| all | ms)
}

fn make_point(point: &Path, folder: bool) -> Result<(), ViewError> {
    let made = if folder {
        fs::create_dir_all(point)
    } else {
        point.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::File::options().create(true).append(true).open(point).map(drop))
    };
    made.map_err(|source| ViewError::MountPoint { path: point.to_owned(), source })
}

/// Whether a process of this user may have a mount namespace; the error says what refused.
///
/// # Errors
/// The system's answer.
pub fn namespaces_available() -> io::Result<()> {
    let mut plan = Plan::default();
    enter_namespace(&mut plan).map_err(io::Error::other)?;
    let mut command = std::process::Command::new("/bin/true");
    crate::child::configure(&mut command, &crate::ChildOptions { plan: Some(plan), ..crate::ChildOptions::default() });
    command.status().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_comes_before_tmp_so_that_the_recursive_bind_carries_it() {
        let scratch = std::env::temp_dir().join(format!("view-{}", std::process::id()));
        fs::create_dir_all(scratch.join("prefixes")).unwrap();
        fs::create_dir_all(scratch.join("tmp")).unwrap();
        let view = View {
            tmp: Some(scratch.join("tmp")),
            keep: vec![scratch.clone(), scratch.join("prefixes")],
            read_only: vec![scratch.join("prefixes")],
            cwd: "/".into(),
            ..View::default()
        };
        let calls = view.plan().unwrap().describe();
        let read_only = calls.iter().position(|c| c.contains("prefixes")).unwrap();
        let tmp = calls.iter().rposition(|c| c.contains("target: \"/tmp\"")).unwrap();
        assert!(read_only < tmp, "{calls:#?}");
        // The folder below a kept one is not bound a second time.
        assert_eq!(calls.iter().filter(|c| c.contains("source: Some") && c.contains("prefixes")).count(), 1);
        fs::remove_dir_all(scratch).unwrap();
    }
}
