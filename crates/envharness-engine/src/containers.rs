//! Containers: made once, hardened, found again by what they carry.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, Mount as EngineMount, MountType, PortBinding};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, StatsOptionsBuilder,
    StopContainerOptionsBuilder,
};
use futures_util::StreamExt as _;

use crate::engine::{Call, Engine, Patient};
use crate::error::EngineError;
use crate::label;

/// How long a create that was let go of may take to be seen.
const UNHEARD: Duration = Duration::from_secs(2);
/// The most processes of a container whose spec says nothing.
const PIDS: i64 = 4096;

/// Something of this machine that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mount {
    /// The folder or file of this machine.
    pub source: String,
    /// Its path inside.
    pub target: String,
    /// Whether it cannot be written to.
    pub read_only: bool,
}

/// GPUs that a container sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gpus {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// So many.
    Count(u32),
}

/// What a container is made of. What is not said is shut: no capability, no new privileges, no port off loopback.
#[derive(Debug, Clone, Default)]
pub struct ContainerSpec {
    /// Its name, which makes it one however often it is made.
    pub name: String,
    /// The image's id or name.
    pub image: String,
    /// The program in the place of the image's own; empty for the image's.
    pub command: Vec<String>,
    /// Variables beside the image's.
    pub env: Vec<String>,
    /// What it carries.
    pub labels: BTreeMap<String, String>,
    /// What it sees of this machine.
    pub mounts: Vec<Mount>,
    /// Folders in memory.
    pub tmpfs: Vec<String>,
    /// `uid:gid`; empty for the image's user.
    pub user: String,
    /// The folder it starts in; empty for the image's.
    pub workdir: String,
    /// Bytes of memory, swap included.
    pub memory: Option<u64>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Processes.
    pub pids: Option<u64>,
    /// GPUs.
    pub gpus: Gpus,
    /// `none`, `host`, `bridge` or a network's name; empty for the engine's own choice.
    pub network: String,
    /// `runc`, `crun`, `runsc`, `kata`...; empty for the engine's own choice.
    pub runtime: String,
    /// Whether its root cannot be written to.
    pub read_only: bool,
    /// Ports that are published on loopback, on a free port each.
    pub ports: Vec<u16>,
    /// Whether the engine's mapping of users is left, so that files of this machine keep their owners.
    pub host_users: bool,
    /// Whether SELinux would keep it from its mounts.
    pub unlabelled: bool,
}

/// A container that is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// The engine's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `created`, `running`, `paused`, `exited`, `dead`...
    pub state: String,
    /// What it carries.
    pub labels: BTreeMap<String, String>,
    /// Ports inside with those of loopback.
    pub ports: BTreeMap<u16, u16>,
    /// The exit code of one that ended.
    pub exit_code: i64,
    /// Whether memory was out.
    pub out_of_memory: bool,
}

/// What a container uses.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Bytes of memory.
    pub memory: u64,
    /// Seconds of processor time.
    pub cpu_seconds: f64,
    /// Processes.
    pub pids: u64,
}

impl ContainerSpec {
    fn body(&self) -> ContainerCreateBody {
        let bind = |mount: &Mount| EngineMount {
            typ: Some(MountType::BIND),
            source: Some(mount.source.clone()),
            target: Some(mount.target.clone()),
            read_only: Some(mount.read_only),
            ..EngineMount::default()
        };
        let mut security = vec!["no-new-privileges".to_owned()];
        if self.unlabelled {
            security.push("label=disable".into());
        }
        let loopback = || Some(vec![PortBinding { host_ip: Some("127.0.0.1".into()), host_port: Some(String::new()) }]);
        let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let host = HostConfig {
            mounts: Some(self.mounts.iter().map(bind).collect()),
            tmpfs: Some(self.tmpfs.iter().map(|folder| (folder.clone(), "mode=1777".to_owned())).collect()),
            memory: self.memory.and_then(|bytes| i64::try_from(bytes).ok()),
            memory_swap: self.memory.and_then(|bytes| i64::try_from(bytes).ok()),
            nano_cpus: self.cpus.map(|cpus| (cpus * 1e9) as i64),
            pids_limit: Some(self.pids.and_then(|pids| i64::try_from(pids).ok()).unwrap_or(PIDS)),
            device_requests: self.device_request().map(|request| vec![request]),
            cap_drop: Some(vec!["ALL".into()]),
            security_opt: Some(security),
            readonly_rootfs: Some(self.read_only),
            network_mode: text(&self.network),
            runtime: text(&self.runtime),
            port_bindings: Some(self.ports.iter().map(|port| (format!("{port}/tcp"), loopback())).collect()),
            userns_mode: self.host_users.then(|| "host".to_owned()),
            ..HostConfig::default()
        };
        ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: (!self.command.is_empty()).then(|| self.command[..1].to_vec()),
            cmd: (!self.command.is_empty()).then(|| self.command[1..].to_vec()),
            env: Some(self.env.clone()),
            labels: Some(self.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            user: text(&self.user),
            working_dir: text(&self.workdir),
            exposed_ports: Some(self.ports.iter().map(|port| format!("{port}/tcp")).collect()),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }

    fn device_request(&self) -> Option<DeviceRequest> {
        let count = match self.gpus {
            Gpus::None => return None,
            Gpus::All => -1,
            Gpus::Count(count) => i64::from(count),
        };
        Some(DeviceRequest { count: Some(count), capabilities: Some(vec![vec!["gpu".into()]]), ..DeviceRequest::default() })
    }
}

impl Engine {
    /// Makes a container and starts it; one of that name that is there already is started.
    ///
    /// # Errors
    /// [`EngineError`]; what was made by then is removed, also when the engine's answer was lost.
    pub fn start(&self, spec: &ContainerSpec, call: &dyn Call) -> Result<Container, EngineError> {
        let mut made = false;
        self.start_once(spec, call, &mut made).inspect_err(|error| {
            // A create whose answer nobody waited for may be done all the same.
            let unheard = matches!(error, EngineError::Interrupted | EngineError::Timeout { .. });
            // Not the caller's time and wish: nothing of it may stay. What was there before is somebody's.
            if made || unheard && self.comes_up(spec) {
                let _ = self.remove(&spec.name, &Patient);
            }
        })
    }

    fn start_once(&self, spec: &ContainerSpec, call: &dyn Call, made_here: &mut bool) -> Result<Container, EngineError> {
        self.check_network(spec, call)?;
        let options = CreateContainerOptionsBuilder::default().name(&spec.name).build();
        let action = format!("make the container `{}`", spec.name);
        let made = self.wait(&action, call, self.client().create_container(Some(options), spec.body()));
        match made {
            Ok(_) => *made_here = true,
            // There already: made by a request whose answer was lost, or by a caller before this one.
            Err(EngineError::Refused { status: 409, .. }) if self.is_ours(spec, call)? => {}
            Err(error) if error.is_passing() && self.is_ours(spec, call)? => *made_here = true,
            Err(error) if error.is_missing() => {
                return Err(EngineError::NoImage { kind: self.kind(), name: spec.image.clone(), pull: None });
            }
            Err(error) => return Err(error),
        }
        self.check_runtime(spec, call)?;
        let action = format!("start the container `{}`", spec.name);
        let started = self.wait(&action, call, self.client().start_container(&spec.name, None));
        match started {
            Err(EngineError::Refused { reason, .. })
                if is_no_shell(&reason) && spec.command.first().is_some_and(|word| word == "/bin/sh") =>
            {
                let hint = "take an image with a system in it; a base without a shell cannot hold a context".to_owned();
                let (kind, reason) = (self.kind(), "the image has no `/bin/sh`".to_owned());
                return Err(EngineError::Lacks { kind, action, reason, hint });
            }
            Err(error) if !error.is_passing() => return Err(error),
            // Lost or not, the container's own state is what counts.
            _ => {}
        }
        if spec.ports.is_empty() && started.is_ok() {
            return Ok(Container { name: spec.name.clone(), state: "running".into(), ..Container::default() });
        }
        let there = self.container(&spec.name, call)?;
        match (there, started) {
            (Some(container), _) if container.state == "running" => Ok(container),
            (_, Err(error)) => Err(error),
            (Some(container), Ok(())) => Ok(container),
            (None, Ok(())) => Err(EngineError::NoContainer { name: spec.name.clone() }),
        }
    }

    /// Whether a network that a spec names is there: podman takes any name, and gives the container another.
    fn check_network(&self, spec: &ContainerSpec, call: &dyn Call) -> Result<(), EngineError> {
        if ["", "none", "host", "bridge", "default"].contains(&spec.network.as_str()) {
            return Ok(());
        }
        let action = format!("connect `{}` to a network", spec.name);
        match self.wait(&action, call, self.client().inspect_network(&spec.network, None)) {
            Err(error) if error.is_missing() => {
                let (kind, reason) = (self.kind(), format!("there is no network `{}`", spec.network));
                let hint = format!("make it with `{kind} network create {}`, or use none, host or bridge", spec.network);
                Err(EngineError::Lacks { kind, action, reason, hint })
            }
            other => other.map(drop),
        }
    }

    /// Whether the container got the runtime that its spec names: podman's API takes any name and keeps its own.
    fn check_runtime(&self, spec: &ContainerSpec, call: &dyn Call) -> Result<(), EngineError> {
        if spec.runtime.is_empty() {
            return Ok(());
        }
        let action = format!("run `{}` with {}", spec.name, spec.runtime);
        let found = self.wait(&action, call, self.client().inspect_container(&spec.name, None))?;
        let got = found.host_config.and_then(|host| host.runtime).unwrap_or_default();
        if got == spec.runtime {
            return Ok(());
        }
        let (kind, reason) = (self.kind(), format!("it took {} instead", if got.is_empty() { "its own" } else { &got }));
        let hint = "podman's runtime is set in `containers.conf`; leave `runtime` away, or use `backend: docker`".to_owned();
        Err(EngineError::Lacks { kind, action, reason, hint })
    }

    /// Whether a container that nobody waited for is there, now or shortly.
    fn comes_up(&self, spec: &ContainerSpec) -> bool {
        let since = Instant::now();
        loop {
            match self.is_ours(spec, &Patient) {
                Ok(true) => return true,
                Ok(false) if since.elapsed() < UNHEARD => std::thread::sleep(UNHEARD / 20),
                _ => return false,
            }
        }
    }

    /// Whether a container of that name is there and carries the same labels.
    fn is_ours(&self, spec: &ContainerSpec, call: &dyn Call) -> Result<bool, EngineError> {
        let there = self.container(&spec.name, call)?;
        let same = |there: &Container, name: &str| spec.labels.contains_key(name) && there.labels.get(name) == spec.labels.get(name);
        Ok(there.is_some_and(|there| same(&there, label::OWNER) && same(&there, label::HOME)))
    }

    /// A container by its name; `None` when it is not there.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn container(&self, name: &str, call: &dyn Call) -> Result<Option<Container>, EngineError> {
        let found = match self.wait(&format!("look for `{name}`"), call, self.client().inspect_container(name, None)) {
            Err(error) if error.is_missing() => return Ok(None),
            other => other?,
        };
        let state = found.state.unwrap_or_default();
        let published = found.network_settings.and_then(|settings| settings.ports).unwrap_or_default();
        let ports = published.into_iter().filter_map(|(inside, bindings)| {
            let inside = inside.split('/').next()?.parse().ok()?;
            Some((inside, bindings?.first()?.host_port.as_ref()?.parse().ok()?))
        });
        Ok(Some(Container {
            id: found.id.unwrap_or_default(),
            name: found.name.unwrap_or_default().trim_start_matches('/').to_owned(),
            state: state.status.map(|status| status.to_string()).unwrap_or_default(),
            labels: found.config.and_then(|config| config.labels).unwrap_or_default().into_iter().collect(),
            ports: ports.collect(),
            exit_code: state.exit_code.unwrap_or(0),
            out_of_memory: state.oom_killed.unwrap_or(false),
        }))
    }

    /// Every container that carries a label of a value.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn containers(&self, label: &str, value: &str, call: &dyn Call) -> Result<Vec<Container>, EngineError> {
        let filters = HashMap::from([("label", vec![format!("{label}={value}")])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.wait("list its containers", call, self.client().list_containers(Some(options)))?;
        let named = |names: Option<Vec<String>>| names.unwrap_or_default().first().map(|name| name.trim_start_matches('/').to_owned());
        let each = found.into_iter().map(|container| Container {
            id: container.id.unwrap_or_default(),
            name: named(container.names).unwrap_or_default(),
            state: container.state.map(|state| state.to_string()).unwrap_or_default(),
            labels: container.labels.unwrap_or_default().into_iter().collect(),
            ..Container::default()
        });
        Ok(each.collect())
    }

    /// Stops every process of a container and keeps them as they are.
    ///
    /// # Errors
    /// [`EngineError`]; none when it is paused already.
    pub fn pause(&self, name: &str, call: &dyn Call) -> Result<(), EngineError> {
        self.in_state(name, "paused", call, self.wait(&format!("pause `{name}`"), call, self.client().pause_container(name)))
    }

    /// Lets the processes of a paused container go on; one that was stopped is started.
    ///
    /// # Errors
    /// [`EngineError`]; none when it runs already.
    pub fn resume(&self, name: &str, call: &dyn Call) -> Result<(), EngineError> {
        let state = self.container(name, call)?.ok_or_else(|| EngineError::NoContainer { name: name.to_owned() })?.state;
        let action = format!("resume `{name}`");
        match state.as_str() {
            "running" => Ok(()),
            "paused" => self.in_state(name, "running", call, self.wait(&action, call, self.client().unpause_container(name))),
            _ => self.in_state(name, "running", call, self.wait(&action, call, self.client().start_container(name, None))),
        }
    }

    fn in_state(&self, name: &str, state: &str, call: &dyn Call, done: Result<(), EngineError>) -> Result<(), EngineError> {
        match done {
            Err(error) if self.container(name, call)?.is_none_or(|container| container.state != state) => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks a container to end, and ends it after `seconds`.
    ///
    /// # Errors
    /// [`EngineError`]; none when it is gone.
    pub fn stop(&self, name: &str, seconds: u32, call: &dyn Call) -> Result<(), EngineError> {
        let options = StopContainerOptionsBuilder::default().t(i32::try_from(seconds).unwrap_or(i32::MAX)).build();
        match self.wait(&format!("stop `{name}`"), call, self.client().stop_container(name, Some(options))) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes a container with its processes and its own volumes.
    ///
    /// # Errors
    /// [`EngineError`]; none when it is gone.
    pub fn remove(&self, name: &str, call: &dyn Call) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        for attempt in 0..3 {
            match self.wait(&format!("remove `{name}`"), call, self.client().remove_container(name, Some(options.clone()))) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_missing() => return Ok(()),
                // Somebody else removes it.
                Err(EngineError::Refused { status: 409, reason, .. }) if reason.contains("in progress") => return Ok(()),
                // A lost answer, or an engine that starts anew: whether it is gone says the next question.
                Err(error) if error.is_passing() && attempt < 2 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What a container printed, the last lines.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn logs(&self, name: &str, tail: Option<usize>, call: &dyn Call) -> Result<String, EngineError> {
        let tail = tail.map_or_else(|| "all".to_owned(), |lines| lines.to_string());
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail(&tail).build();
        let bytes = self.wait(&format!("give the log of `{name}`"), call, async {
            let mut out = Vec::new();
            let mut pieces = std::pin::pin!(self.client().logs(name, Some(options)));
            while let Some(piece) = pieces.next().await {
                out.extend_from_slice(&piece?.into_bytes());
            }
            Ok(out)
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What a container uses now.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn usage(&self, name: &str, call: &dyn Call) -> Result<Usage, EngineError> {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let told = self.wait(&format!("say what `{name}` uses"), call, async {
            let mut told = std::pin::pin!(self.client().stats(name, Some(options)));
            told.next().await.transpose()
        })?;
        let told = told.unwrap_or_default();
        let nanoseconds = told.cpu_stats.and_then(|cpu| cpu.cpu_usage).and_then(|usage| usage.total_usage).unwrap_or(0);
        Ok(Usage {
            memory: told.memory_stats.and_then(|memory| memory.usage).unwrap_or(0),
            cpu_seconds: nanoseconds as f64 / 1e9,
            pids: told.pids_stats.and_then(|pids| pids.current).unwrap_or(0),
        })
    }
}

fn is_no_shell(reason: &str) -> bool {
    reason.contains("/bin/sh") && (reason.contains("no such file") || reason.contains("not found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_shut() {
        let spec = ContainerSpec { name: "a".into(), image: "b".into(), ports: vec![8000], ..ContainerSpec::default() };
        let host = spec.body().host_config.expect("a host's part");
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges".to_owned()]));
        assert_eq!((host.privileged, host.pids_limit), (None, Some(PIDS)));
        let ports = host.port_bindings.expect("ports");
        let binding = ports["8000/tcp"].as_ref().and_then(|all| all.first()).expect("a port");
        assert_eq!(binding.host_ip.as_deref(), Some("127.0.0.1"));
        assert!(host.mounts.is_some_and(|mounts| mounts.is_empty()), "nothing of the machine, nor the engine's socket");
    }

    #[test]
    fn gpus_are_asked_of_the_engine() {
        let asked = |gpus| ContainerSpec { gpus, ..ContainerSpec::default() }.body().host_config.and_then(|host| host.device_requests);
        assert_eq!(asked(Gpus::None), None);
        let counts = [(Gpus::All, -1), (Gpus::Count(2), 2)];
        for (gpus, count) in counts {
            let requests = asked(gpus).expect("a request");
            assert_eq!((requests[0].count, &requests[0].capabilities), (Some(count), &Some(vec![vec!["gpu".to_owned()]])));
        }
    }
}
