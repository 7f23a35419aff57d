//! What a context's processes see of the file system, and where its paths really lie.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use envharness_sandbox::{Plan, View, namespaces_available};
use envharness_spec::TmpPolicy;

use super::Context;
use crate::error::{IoContext as _, RigError};
use crate::uv::Uv;
use crate::writable::{self, Writable};

impl Context {
    /// Whether a directory is there for the context's processes.
    pub(super) fn sees(&self, path: &Path) -> bool {
        path.is_dir() || self.place_of(path).is_dir()
    }

    /// Whether `/tmp` is the context's own for a command in `cwd`. In the host's `/tmp` itself it cannot be: the current
    /// directory stays visible.
    pub(super) fn has_own_tmp(&self, cwd: &Path) -> bool {
        self.spec.tmp == TmpPolicy::Private && (self.container().is_some() || cwd != Path::new("/tmp") && !self.view_refused())
    }

    /// Paths of the host that stay visible, also below `/tmp`.
    pub(super) fn kept(&self, cwd: &Path) -> Vec<PathBuf> {
        let mut kept = vec![self.settings.project.clone(), self.home.root().to_owned(), self.payload.prefix.clone()];
        kept.extend([self.interpreter().prefix.clone(), self.interpreter().path.clone(), PathBuf::from("/tmp/.X11-unix")]);
        kept.extend(self.spec.base.clone());
        if self.spec.writable {
            // What its `pip` needs.
            kept.push(self.home.cache().to_owned());
            kept.extend(Uv::find(&self.settings, &self.home).ok().map(|uv| uv.program().to_owned()));
        }
        if cwd.exists() {
            kept.push(cwd.to_owned());
        }
        kept.retain(|path| path.starts_with("/tmp") && path != Path::new("/tmp"));
        kept
    }

    /// Whether an absolute path is in the context's own `/tmp`.
    pub(crate) fn is_own_tmp(&self, path: &Path) -> bool {
        let cwd = std::env::current_dir().unwrap_or_default();
        let shared = |path: &Path| match self.container() {
            Some(_) => self.is_shared(path) || self.is_mounted(path),
            None => self.kept(&cwd).iter().any(|kept| path.starts_with(kept)),
        };
        path.starts_with("/tmp") && self.has_own_tmp(&cwd) && !shared(path)
    }

    /// Where an absolute path of the context really lies on the host, if it is the context's own.
    pub(crate) fn place_of(&self, path: &Path) -> PathBuf {
        let own = |base: PathBuf, prefix: &str| path.strip_prefix(prefix).map(|rest| base.join(rest)).unwrap_or_default();
        if self.is_own_tmp(path) {
            return own(self.folder().join("tmp"), "/tmp");
        }
        if self.own_folders().iter().any(|folder| path.starts_with(folder)) {
            return own(self.folder().join("root"), "/");
        }
        path.to_owned()
    }

    /// Absolute folders that uploads made: a file each, so that two uploads at once lose none.
    pub(crate) fn own_folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder().join("root.d")).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok()).map(PathBuf::from).collect();
        folders.sort();
        folders
    }

    /// Notes an absolute folder that is the context's own.
    pub(crate) fn add_own_folder(&self, folder: &Path) -> Result<(), RigError> {
        let text = folder.display().to_string();
        let list = self.folder().join("root.d");
        fs::create_dir_all(&list).on("create", &list)?;
        let name = envharness_spec::Digest::of(&text).hex()[..16].to_owned();
        envharness_store::write_atomic(&list.join(name), text.as_bytes())?;
        Ok(())
    }

    /// Whether this machine refuses mount namespaces; asked once per process.
    pub(crate) fn view_refused(&self) -> bool {
        static REFUSED: OnceLock<bool> = OnceLock::new();
        *REFUSED.get_or_init(|| {
            let answer = namespaces_available();
            if let Err(error) = &answer {
                tracing::warn!(%error, "no mount namespaces: /tmp is the host's, and prefixes are read-only by mode alone");
            }
            answer.is_err()
        })
    }

    pub(super) fn plan(&self, cwd: &Path) -> Result<Option<Plan>, RigError> {
        if self.view_refused() {
            return Ok(None);
        }
        let tmp = self.has_own_tmp(cwd).then(|| self.folder().join("tmp"));
        if let Some(tmp) = &tmp {
            make_tmp(tmp)?;
        }
        let root = self.folder().join("root");
        let folders = self.own_folders().into_iter().map(|path| (root.join(path.strip_prefix("/").unwrap_or(&path)), path)).collect();
        let overlay = match self.writable() {
            Some(Writable::Overlay) => Some(writable::overlay(&self.payload.prefix, &self.folder(), &self.pip_script()?)?),
            _ => None,
        };
        let view = View {
            overlay,
            tmp,
            keep: self.kept(cwd),
            read_only: vec![self.home.prefixes(), self.home.guest(), self.home.bytecode()],
            folders,
            new_root: self.folder().join("newroot"),
            cwd: cwd.to_owned(),
        };
        Ok(Some(view.plan()?))
    }
}

/// `/tmp` is open to everybody and sticky, as programs that drop privileges expect.
pub(super) fn make_tmp(path: &Path) -> Result<(), RigError> {
    use std::os::unix::fs::PermissionsExt as _;
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).on("create", path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).on("open", path)
}
