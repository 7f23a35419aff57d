//! The container of a context: what it sees of this machine, and its life.

use std::fs;
use std::path::{Path, PathBuf};

use envharness_engine::{Call, EngineError, Patient};
use envharness_spec::{Access, TmpPolicy};

use super::Context;
use crate::container::{ContainerPlace, Sight, Waiting, home_label};
use crate::deadline::Deadline;
use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Quiet, Reporter};

/// Variables that name files with certificates.
const CERTIFICATES: [&str; 4] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// Variables that name proxies.
const PROXIES: [&str; 8] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"];

impl Context {
    /// Where its container is; `None` for a context of this machine's own processes.
    pub(crate) fn container(&self) -> Option<&ContainerPlace> {
        self.payload.container.as_ref()
    }

    /// The engine of its container, `docker` or `podman`.
    pub fn engine(&self) -> Option<&str> {
        self.container().map(|place| place.kind.as_str())
    }

    /// What its container uses now: bytes of memory, seconds of processor time, processes.
    ///
    /// # Errors
    /// [`RigError::Engine`].
    pub fn usage(&self) -> Result<Option<(u64, f64, u64)>, RigError> {
        let Some(place) = self.container() else { return Ok(None) };
        let usage = place.engine()?.usage(&self.id, &Patient)?;
        Ok(Some((usage.memory, usage.cpu_seconds, usage.pids)))
    }

    /// Folders of the context that the container may write to. Never their parent: what lies beside them decides what is mounted
    /// the next time, and a link planted there would be followed by the engine.
    fn shared_folders(&self) -> Vec<PathBuf> {
        let mut out = vec![self.workdir(), self.folder().join("calls")];
        if self.writable().is_some() {
            out.extend([self.prefix(), self.folder().join("cache")]);
        }
        out
    }

    /// Folders of the machine that the container sees at their own paths.
    pub(super) fn visible(&self) -> Vec<PathBuf> {
        let mut out = self.shared_folders();
        out.extend(self.payload.project.clone());
        out.extend(self.own_folders());
        out
    }

    /// Every path at which the container has something of this machine.
    pub(super) fn mount_targets(&self) -> Vec<PathBuf> {
        let mut out = self.visible();
        out.extend(self.spec.container.mounts.keys().map(PathBuf::from));
        out.extend([self.guest.clone(), self.payload.prefix.clone()]);
        out.extend(crate::uv::Uv::find(&self.settings, &self.home).ok().map(|uv| uv.program().to_owned()));
        out.extend(self.payload.sources.iter().cloned());
        out.extend(self.certificates());
        out.retain(|path| !path.as_os_str().is_empty());
        out
    }

    /// Files that say whom to trust, as the caller names them.
    fn certificates(&self) -> Vec<PathBuf> {
        let named = CERTIFICATES.iter().filter_map(|name| self.settings.variable(name)).map(PathBuf::from);
        let mut out: Vec<PathBuf> = named.filter(|path| path.is_absolute() && path.exists()).collect();
        out.sort();
        out.dedup();
        out
    }

    /// How the caller reaches the network: proxies, and whom to trust.
    pub(super) fn network_variables(&self) -> Vec<(String, String)> {
        let files = self.certificates();
        let there =
            |name: &&str| !CERTIFICATES.contains(name) || self.settings.variable(name).is_some_and(|path| files.contains(&path.into()));
        let names = PROXIES.iter().chain(&CERTIFICATES).filter(|name| there(name));
        names.filter_map(|name| Some(((*name).to_owned(), self.settings.variable(name)?.to_owned()))).collect()
    }

    /// Whether a path is below a mount of the spec, which is another place on this machine.
    pub(crate) fn is_mounted(&self, path: &Path) -> bool {
        self.spec.container.mounts.keys().any(|target| path.starts_with(target))
    }

    /// Whether a path is one that the container shares with this machine.
    pub(crate) fn is_shared(&self, path: &Path) -> bool {
        !self.is_mounted(path) && self.visible().iter().any(|folder| path.starts_with(folder))
    }

    /// The store and the downloads where the project has them in it, with the empty folders that cover them.
    fn hidden(&self) -> Vec<(PathBuf, PathBuf)> {
        let Some(project) = &self.payload.project else { return Vec::new() };
        let (home, cache) = (self.home.root(), self.home.cache());
        let below = [("hidden-home", home), ("hidden-cache", cache)].into_iter().filter(|(_, path)| path.starts_with(project));
        let below = below.filter(|(name, path)| *name == "hidden-home" || !path.starts_with(home));
        below.map(|(name, path)| (path.to_owned(), self.folder().join(name))).collect()
    }

    fn sight<'a>(&'a self, label: &'a str, project: &'a Path) -> Result<Sight<'a>, RigError> {
        let root = self.folder().join("root");
        let own = self.own_folders().into_iter().map(|path| (path.clone(), root.join(path.strip_prefix("/").unwrap_or(&path))));
        let mut readable = vec![self.guest.clone()];
        let writable = self.shared_folders();
        if self.payload.prefix.starts_with(self.home.prefixes()) {
            readable.push(self.payload.prefix.clone());
        }
        if self.spec.writable {
            let uv = crate::uv::Uv::find(&self.settings, &self.home)?;
            readable.push(uv.program().to_owned());
        }
        readable.extend(self.certificates());
        // Sources that the environment uses where they lie.
        readable.extend(self.payload.sources.iter().cloned());
        Ok(Sight {
            id: &self.id,
            home_label: label,
            folder: self.folder(),
            own: own.collect(),
            hidden: self.hidden(),
            readable,
            writable,
            project,
            own_tmp: self.spec.tmp == TmpPolicy::Private,
        })
    }

    /// Makes and starts the container; one that is there is started.
    pub(crate) fn start_container(&self, place: &ContainerPlace, call: &dyn Call) -> Result<(), RigError> {
        let tmp = self.folder().join("tmp");
        super::place::make_tmp(&tmp)?;
        for folder in self.shared_folders().into_iter().chain(self.hidden().into_iter().map(|(_, place)| place)) {
            fs::create_dir_all(&folder).on("create", &folder)?;
        }
        let label = home_label(&self.home)?;
        let none = PathBuf::new();
        let project = self.payload.project.as_ref().unwrap_or(&none);
        let mut spec = place.container(&self.spec, &self.sight(&label, project)?)?;
        spec.mounts.retain(|mount| !mount.target.is_empty());
        if self.spec.tmp == TmpPolicy::Private {
            mount_points(&tmp, spec.mounts.iter().map(|mount| (Path::new(&mount.source), Path::new(&mount.target))))?;
        }
        let own = self.own_folders();
        place.engine()?.start(&spec, call)?;
        let seen: Vec<String> = own.iter().map(|path| path.display().to_string()).collect();
        envharness_store::write_atomic(&self.seen_path(), seen.join("\n").as_bytes())?;
        Ok(())
    }

    fn seen_path(&self) -> PathBuf {
        self.folder().join("container")
    }

    /// One process and thread at a time decides what becomes of the container.
    fn container_lock(&self) -> Result<envharness_store::FileLock, RigError> {
        let path = self.folder().join("container.lock");
        Ok(envharness_store::FileLock::acquire(&path, true, |_| Ok::<(), envharness_store::StoreError>(()))?)
    }

    /// Notes that something ran in the container: what that left is not the next caller's.
    pub(super) fn mark_used(&self) -> Result<(), RigError> {
        let path = self.folder().join("used");
        if path.exists() {
            return Ok(());
        }
        fs::write(&path, "").on("write", &path)
    }

    /// Whether the container must be made anew before another caller has it.
    pub(crate) fn is_used(&self) -> bool {
        self.folder().join("used").exists()
    }

    /// Makes the container anew when an upload gave the context a folder that it does not have yet.
    pub(super) fn refresh(&self, place: &ContainerPlace) -> Result<(), RigError> {
        let _lock = self.container_lock()?;
        let seen = fs::read_to_string(self.seen_path()).unwrap_or_default();
        let own: Vec<String> = self.own_folders().iter().map(|path| path.display().to_string()).collect();
        if seen == own.join("\n") {
            return Ok(());
        }
        if !super::context_tree(&self.id).members().is_empty() {
            let reason = format!("has commands that run, and cannot be given {} before they end", own.join(", "));
            let hint = Some("upload before they start, or to a relative path".to_owned());
            return Err(RigError::Context { id: self.id.clone(), reason, hint });
        }
        place.engine()?.remove(&self.id, &Patient)?;
        self.start_container(place, &Patient)
    }

    /// Lets a paused container go on, and starts one that an engine's restart ended.
    pub(crate) fn revive(&self, place: &ContainerPlace) -> Result<(), RigError> {
        let _lock = self.container_lock()?;
        let engine = place.engine()?;
        match engine.container(&self.id, &Patient)? {
            Some(_) => Ok(engine.resume(&self.id, &Patient)?),
            None if self.home.find_context(&self.id).is_err() => Err(EngineError::NoContainer { name: self.id.clone() }.into()),
            None if self.spec.writable => Err(EngineError::NoContainer { name: self.id.clone() }.into()),
            // Its root holds nothing of its own.
            None => self.start_container(place, &Patient),
        }
    }

    /// Makes the container of a context that was just made.
    pub(crate) fn prepare_container(&self, deadline: Deadline, reporter: &dyn Reporter) -> Result<(), RigError> {
        let Some(place) = self.container() else { return Ok(()) };
        if self.spec.container.project != Access::None && self.payload.project.is_none() && !self.reused {
            let message = format!("`{}` is too much to mount, and the container does not see it", self.settings.project.display());
            let hint = Some("work in a folder of its own, name what is needed under `mounts`, or set `mounts: {project: none}`".to_owned());
            reporter.event(&Event::Warning { message, hint });
        }
        reporter.event(&Event::Imaging { what: format!("Starting {}", self.id) });
        self.start_container(place, &Waiting::short(&self.settings, deadline, reporter))
    }

    /// Makes sure that the container of a context that was taken again runs.
    pub(crate) fn wake(&self) -> Result<(), RigError> {
        let Some(place) = self.container() else { return Ok(()) };
        if self.renewed {
            // It was removed before its folders were emptied.
            return self.start_container(place, &Patient);
        }
        self.refresh(place)?;
        self.revive(place)
    }

    /// Stops the container's processes as they are.
    pub(super) fn pause(&self, place: &ContainerPlace) -> Result<(), RigError> {
        Ok(place.engine()?.pause(&self.id, &Waiting::short(&self.settings, Deadline::new(None), &Quiet))?)
    }

    /// The project's folder as the container will see it.
    pub(crate) fn project_of(settings: &crate::settings::Settings, spec: &envharness_spec::Spec) -> Option<PathBuf> {
        let project = settings.project.canonicalize().unwrap_or_else(|_| settings.project.clone());
        let home = PathBuf::from(settings.variable("HOME").unwrap_or("/"));
        // Folders of a whole machine, which would also cover those of the image.
        let whole =
            project.components().count() <= 2 || home.starts_with(&project) || project.starts_with("/run") || project.starts_with("/proc");
        (spec.container.project != Access::None && !whole).then_some(project)
    }
}

/// Makes what is mounted below `/tmp` a place there: an engine would make it as root, and its caller could not remove it.
fn mount_points<'a>(tmp: &Path, mounts: impl Iterator<Item = (&'a Path, &'a Path)>) -> Result<(), RigError> {
    for (source, target) in mounts {
        let Ok(below) = target.strip_prefix("/tmp") else { continue };
        let place = tmp.join(below);
        // What a process inside left as a link leads elsewhere.
        let linked = place.ancestors().take_while(|part| *part != tmp).any(Path::is_symlink);
        if below.as_os_str().is_empty() || linked || place.exists() {
            continue;
        }
        if source.is_dir() {
            fs::create_dir_all(&place).on("create", &place)?;
        } else if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).on("create", parent)?;
            fs::write(&place, "").on("create", &place)?;
        }
    }
    Ok(())
}
