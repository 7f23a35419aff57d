//! Where an engine listens.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::error::EngineError;

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Docker.
    Docker,
    /// Podman, by its Docker-compatible API.
    Podman,
}

impl Kind {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Docker, Self::Podman].into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An engine's address and why it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Which engine.
    pub kind: Kind,
    /// `unix:///run/docker.sock` or `tcp://host:2375`.
    pub url: String,
    /// Where the address comes from, for a person.
    pub reason: String,
}

impl Address {
    /// The socket of this machine; `None` for an address over the network.
    pub fn socket(&self) -> Option<PathBuf> {
        self.url.strip_prefix("unix://").map(PathBuf::from)
    }
}

/// Finds an engine by what its own client looks at: `DOCKER_HOST`, the chosen context, and the usual sockets; for podman
/// `CONTAINER_HOST` and its sockets. `setting` is the address of the settings and comes first.
///
/// # Errors
/// [`EngineError::Absent`] lists every place; [`EngineError::Address`] for an address of another kind.
pub fn find(kind: Kind, setting: &str, variables: &BTreeMap<String, String>, user: u32) -> Result<Address, EngineError> {
    let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
    let named = |url: String, reason: String| checked(Address { kind, url, reason });
    if !setting.is_empty() {
        return named(setting.to_owned(), format!("the setting `{kind}_host`"));
    }
    let host = if kind == Kind::Docker { "DOCKER_HOST" } else { "CONTAINER_HOST" };
    if let Some(url) = variable(host) {
        return named(url, host.to_owned());
    }
    if let Some(url) = docker_context(variables).filter(|_| kind == Kind::Docker) {
        return named(url, "the chosen docker context".into());
    }
    let runtime = variable("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{user}"));
    let home = variable("HOME").unwrap_or_default();
    let places: Vec<PathBuf> = match kind {
        Kind::Docker => vec![
            "/var/run/docker.sock".into(),
            "/run/docker.sock".into(),
            Path::new(&runtime).join("docker.sock"),
            Path::new(&home).join(".docker/run/docker.sock"),
        ],
        Kind::Podman => vec![Path::new(&runtime).join("podman/podman.sock"), "/run/podman/podman.sock".into()],
    };
    let there = places.iter().find(|path| path.exists());
    let tried = || [host.to_owned()].into_iter().chain(places.iter().map(|path| path.display().to_string())).collect();
    let path = there.ok_or_else(|| EngineError::Absent { kind, tried: tried() })?;
    Ok(Address { kind, url: format!("unix://{}", path.display()), reason: "a usual socket".into() })
}

fn checked(address: Address) -> Result<Address, EngineError> {
    let fail = |reason: &str| {
        let (kind, address) = (address.kind, address.url.clone());
        Err(EngineError::Address { kind, address, reason: reason.into() })
    };
    match address.url.split_once("://") {
        Some(("unix", path)) if path.starts_with('/') => Ok(address),
        Some(("unix", _)) => fail("the path of a socket is absolute"),
        Some(("tcp" | "http", host)) if !host.is_empty() => Ok(address),
        Some(("ssh", _)) => fail("ssh is not spoken here; forward its socket with `ssh -L`"),
        Some(("https", _)) => fail("TLS is not spoken here; forward its socket with `ssh -L`"),
        _ => fail("it is no address of an engine"),
    }
}

/// The address of the context that `docker context use` or `DOCKER_CONTEXT` chose: its file lies below the hash of its name.
fn docker_context(variables: &BTreeMap<String, String>) -> Option<String> {
    let folder = variables.get("DOCKER_CONFIG").map(PathBuf::from).or_else(|| Some(Path::new(variables.get("HOME")?).join(".docker")))?;
    let json = |path: &Path| serde_json::from_slice::<serde_json::Value>(&std::fs::read(path).ok()?).ok();
    let chosen = variables.get("DOCKER_CONTEXT").filter(|name| !name.is_empty()).cloned();
    let name = chosen.or_else(|| Some(json(&folder.join("config.json"))?["currentContext"].as_str()?.to_owned()))?;
    let hash: String = Sha256::digest(&name).iter().map(|byte| format!("{byte:02x}")).collect();
    let meta = json(&folder.join("contexts/meta").join(hash).join("meta.json"))?;
    meta["Endpoints"]["docker"]["Host"].as_str().map(str::to_owned)
}

/// The group that owns a socket, by name.
pub(crate) fn group_of(url: &str) -> Option<String> {
    let gid = std::fs::metadata(url.strip_prefix("unix://")?).ok()?.gid();
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let line = groups.lines().find(|line| line.split(':').nth(2) == Some(&gid.to_string()))?;
    line.split(':').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_setting_comes_before_the_variable_and_the_variable_before_the_context() {
        let home = tempfile::tempdir().expect("a folder");
        let text = home.path().display().to_string();
        let meta = home.path().join(".docker/contexts/meta/b8ae47f46d4d0bd9fa1d8b63c5b5a5a3");
        std::fs::create_dir_all(meta).expect("folders");
        let name: String = Sha256::digest("far").iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = home.path().join(".docker/contexts/meta").join(name);
        std::fs::create_dir_all(&folder).expect("folders");
        std::fs::write(folder.join("meta.json"), r#"{"Endpoints": {"docker": {"Host": "tcp://far:2375"}}}"#).expect("a file");
        std::fs::write(home.path().join(".docker/config.json"), r#"{"currentContext": "far"}"#).expect("a file");
        let find = |setting: &str, more: &[(&str, &str)]| {
            let pairs: Vec<(&str, &str)> = [("HOME", text.as_str())].into_iter().chain(more.iter().copied()).collect();
            find(Kind::Docker, setting, &of(&pairs), 1000).expect("an address").url
        };
        assert_eq!(find("unix:///set", &[("DOCKER_HOST", "unix:///variable")]), "unix:///set");
        assert_eq!(find("", &[("DOCKER_HOST", "unix:///variable")]), "unix:///variable");
        assert_eq!(find("", &[]), "tcp://far:2375");
    }

    #[test]
    fn rootless_sockets_are_found_and_absence_lists_what_was_tried() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = folder.path().display().to_string();
        let variables = of(&[("XDG_RUNTIME_DIR", &runtime), ("HOME", "/nowhere")]);
        std::fs::create_dir(folder.path().join("podman")).expect("a folder");
        let socket = folder.path().join("podman/podman.sock");
        std::fs::write(&socket, "").expect("a file");
        assert_eq!(find(Kind::Podman, "", &variables, 7).expect("an address").socket(), Some(socket.clone()));
        std::fs::remove_file(&socket).expect("removed");
        if let Err(error) = find(Kind::Podman, "", &variables, 7) {
            assert!(error.to_string().contains("podman/podman.sock") && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn addresses_that_nobody_speaks_are_refused() {
        for bad in ["ssh://host", "unix://relative", "nothing", "tcp://", "https://host"] {
            let error = find(Kind::Docker, bad, &BTreeMap::new(), 0).expect_err(bad);
            assert!(matches!(error, EngineError::Address { .. }), "{error}");
        }
    }
}
