//! Who one is at a registry, as docker and podman keep it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::ImageError;

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password or token.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    pub(crate) fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
    username: String,
    password: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Looks for the credentials of a registry: in `REGISTRY_AUTH_FILE`, else in docker's and podman's own files, asking the
/// helpers that they name. `None` when nobody knows any.
///
/// # Errors
/// [`ImageError::Credentials`] when a file or a helper fails.
pub fn find(registry: &str, variables: &BTreeMap<String, String>) -> Result<Option<Credentials>, ImageError> {
    for path in files(variables) {
        let refused = |reason: String| ImageError::Credentials { registry: registry.to_owned(), reason };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(refused(format!("`{}`: {error}", path.display()))),
        };
        let file: File = serde_json::from_str(&text).map_err(|error| refused(format!("`{}`: {error}", path.display())))?;
        let names = names_of(registry);
        let helper = names.iter().find_map(|name| file.cred_helpers.get(*name)).or(Some(&file.creds_store));
        if let Some(helper) = helper.filter(|helper| !helper.is_empty())
            && let Some(found) = ask(helper, names[0], variables).map_err(refused)?
        {
            return Ok(Some(found));
        }
        if let Some((_, auth)) = file.auths.iter().find(|(name, _)| names.contains(&host_of(name))) {
            match read(auth).map_err(|reason| refused(format!("`{}`: {reason}", path.display())))? {
                Some(found) => return Ok(Some(found)),
                None => continue,
            }
        }
    }
    Ok(None)
}

fn files(variables: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    if let Some(file) = variable("REGISTRY_AUTH_FILE") {
        return vec![PathBuf::from(file)];
    }
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    let docker = variable("DOCKER_CONFIG").map_or_else(|| home.join(".docker"), PathBuf::from);
    let podman = variable("XDG_RUNTIME_DIR").map(|folder| Path::new(folder).join("containers/auth.json"));
    let mut out = vec![docker.join("config.json")];
    out.extend(podman);
    out.push(home.join(".config/containers/auth.json"));
    out
}

/// docker's own registry has an older name in such files.
fn names_of(registry: &str) -> Vec<&str> {
    if registry.ends_with("docker.io") { vec!["index.docker.io", "docker.io", registry] } else { vec![registry] }
}

/// `https://host/v1/` -> `host`.
fn host_of(name: &str) -> &str {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    name.split('/').next().unwrap_or(name)
}

fn read(auth: &Auth) -> Result<Option<Credentials>, String> {
    if auth.auth.is_empty() {
        let found = Credentials { user: auth.username.clone(), password: auth.password.clone() };
        return Ok(Some(found).filter(|found| !found.user.is_empty()));
    }
    let wrong = || "an `auth` is not USER:PASSWORD in base64".to_owned();
    let text = STANDARD.decode(auth.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong)?;
    let (user, password) = text.split_once(':').ok_or_else(wrong)?;
    Ok(Some(Credentials { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() }))
}

/// Runs `docker-credential-HELPER get`.
fn ask(helper: &str, registry: &str, variables: &BTreeMap<String, String>) -> Result<Option<Credentials>, String> {
    let program = format!("docker-credential-{helper}");
    let plain = helper.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !plain {
        return Err(format!("`{helper}` is not the name of a helper"));
    }
    let mut command = Command::new(&program);
    command.arg("get").env_clear().envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(registry.as_bytes());
    }
    let done = child.wait_with_output().map_err(|error| format!("`{program}`: {error}"))?;
    let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    if !done.status.success() {
        // The one failure that means that it knows nobody.
        return if said.contains("credentials not found") { Ok(None) } else { Err(format!("`{program}` failed: {said}")) };
    }
    let answer: Answer = serde_json::from_slice(&done.stdout).map_err(|error| format!("`{program}` answered no credentials: {error}"))?;
    Ok(Some(Credentials { user: answer.username, password: answer.secret }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_host() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("auth.json");
        std::fs::write(&file, r#"{"auths": {"https://r.example.org/v1/": {"auth": "dTpwOnc="}}}"#).expect("written");
        let variables = BTreeMap::from([("REGISTRY_AUTH_FILE".to_owned(), file.display().to_string())]);
        let found = find("r.example.org", &variables).expect("read");
        assert_eq!(found, Some(Credentials { user: "u".into(), password: "p:w".into() }));
        assert_eq!(find("other.example.org", &variables).expect("read"), None);
        std::fs::write(&file, "{").expect("written");
        assert!(matches!(find("r.example.org", &variables), Err(ImageError::Credentials { .. })));
    }
}
