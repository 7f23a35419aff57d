//! What a context's container is made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use envharness_engine::{ContainerSpec, Engine, Facts, Gpus, Mount, label};
use envharness_spec::{Access, Gpu, Spec};
use serde::{Deserialize, Serialize};

use super::reconnect;
use crate::error::RigError;

/// What holds a container while nothing runs in it: any shell, which also waits for whom others left behind.
const KEEP: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";
/// Folders that programs want to write to beside `/tmp`.
const TMPFS: [&str; 2] = ["/run", "/var/tmp"];

/// Where a context's container is and what it was made for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ContainerPlace {
    /// `docker` or `podman`.
    pub kind: String,
    /// The engine's address.
    pub address: String,
    /// The image's id.
    pub image: String,
    /// The image's variables.
    pub env: Vec<String>,
    /// Who the processes are.
    pub user: String,
    /// What enforces limits.
    pub cgroup: String,
    pub host_users: bool,
    pub unlabelled: bool,
}

/// What of this machine a context's container sees.
pub(crate) struct Sight<'a> {
    pub id: &'a str,
    pub home_label: &'a str,
    /// The context's own folder.
    pub folder: PathBuf,
    /// Absolute folders of the context with where they lie.
    pub own: Vec<(PathBuf, PathBuf)>,
    /// What lies in the project and is not the container's to see.
    pub hidden: Vec<(PathBuf, PathBuf)>,
    /// What may be read at its own path.
    pub readable: Vec<PathBuf>,
    /// What may be written to at its own path.
    pub writable: Vec<PathBuf>,
    pub project: &'a Path,
    pub own_tmp: bool,
}

impl ContainerPlace {
    pub(crate) fn of(engine: &Engine, facts: &Facts, image: &envharness_engine::ImageFacts) -> Self {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self {
            kind: engine.kind().to_string(),
            address: engine.address().url.clone(),
            image: image.id.clone(),
            env: image.env.clone(),
            // An engine without root has this user as its root.
            user: if facts.rootless { "0:0".into() } else { format!("{user}:{group}") },
            cgroup: facts.cgroup.clone(),
            host_users: facts.userns && !facts.rootless,
            unlabelled: facts.selinux,
        }
    }

    pub(crate) fn engine(&self) -> Result<Engine, RigError> {
        reconnect(&self.kind, &self.address)
    }

    /// The image's variables by name.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        self.env.iter().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The container of a context. Nothing of the machine is in it but what the context stands on, the project's folder
    /// and what the spec mounts.
    pub(crate) fn container(&self, spec: &Spec, sight: &Sight<'_>) -> Result<ContainerSpec, RigError> {
        let mut mounts: BTreeMap<String, (String, bool)> = BTreeMap::new();
        let mut add = |source: &Path, target: &Path, read_only: bool| {
            mounts.insert(target.display().to_string(), (source.display().to_string(), read_only));
        };
        if spec.container.project != Access::None {
            add(sight.project, sight.project, spec.container.project == Access::Read);
        }
        // A store below the project would be the container's to read and to change.
        for (path, place) in &sight.hidden {
            add(place, path, false);
        }
        for path in &sight.readable {
            add(path, path, true);
        }
        for path in &sight.writable {
            add(path, path, false);
        }
        let tmp = if sight.own_tmp { sight.folder.join("tmp") } else { "/tmp".into() };
        add(&tmp, Path::new("/tmp"), false);
        for (path, place) in &sight.own {
            add(place, path, false);
        }
        let base = spec.base.clone().unwrap_or_default();
        for (target, mount) in &spec.container.mounts {
            add(&crate::source_tree::absolute(&mount.source, &base), Path::new(target), !mount.write);
        }
        for (source, _) in mounts.values() {
            self.refuse_socket(Path::new(source), sight.id)?;
        }
        let resources = &spec.resources;
        let labels = [(label::HOME, sight.home_label), (label::OWNER, sight.id), (label::ROLE, "context")];
        Ok(ContainerSpec {
            name: sight.id.to_owned(),
            image: self.image.clone(),
            command: ["/bin/sh", "-c", KEEP].map(str::to_owned).into(),
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            mounts: mounts.into_iter().map(|(target, (source, read_only))| Mount { source, target, read_only }).collect(),
            tmpfs: TMPFS.map(str::to_owned).into(),
            user: self.user.clone(),
            workdir: "/".into(),
            memory: resources.memory,
            cpus: resources.cpus,
            pids: resources.pids,
            gpus: match resources.gpu {
                Some(Gpu::Any) => Gpus::All,
                Some(Gpu::Count(count)) => Gpus::Count(count),
                Some(Gpu::None) | None => Gpus::None,
            },
            network: spec.container.network.clone().unwrap_or_default(),
            runtime: spec.container.runtime.clone().unwrap_or_default(),
            read_only: !spec.writable,
            host_users: self.host_users,
            unlabelled: self.unlabelled,
            ..ContainerSpec::default()
        })
    }

    /// An engine's socket inside would be the whole machine, by whatever name or link it comes.
    fn refuse_socket(&self, source: &Path, id: &str) -> Result<(), RigError> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let own = self.address.strip_prefix("unix://").map(PathBuf::from);
        let usual =
            ["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"].map(PathBuf::from);
        let source = real(source);
        let found = own.into_iter().chain(usual).find(|socket| socket.exists() && real(socket).starts_with(&source));
        let Some(socket) = found else { return Ok(()) };
        let reason = format!("would have the engine's socket {} by `{}`", socket.display(), source.display());
        let hint = Some("mount a smaller folder; what needs an engine runs outside".to_owned());
        Err(RigError::Context { id: id.to_owned(), reason, hint })
    }
}
