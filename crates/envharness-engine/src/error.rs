//! What can go wrong with an engine, and what a person does about it.

use std::path::PathBuf;
use std::time::Duration;

use crate::address::Kind;

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No socket of the engine is on this machine.
    #[error("no {kind} was found; looked at {}", tried.join(", "))]
    Absent {
        /// Which engine.
        kind: Kind,
        /// The places that were looked at.
        tried: Vec<String>,
    },
    /// The socket is there, and nobody answers.
    #[error("{kind} does not answer at {address}: {reason}")]
    Down {
        /// Which engine.
        kind: Kind,
        /// Where.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// This user may not use the engine.
    #[error("this user may not use {kind} at {address}")]
    Forbidden {
        /// Which engine.
        kind: Kind,
        /// Where.
        address: String,
        /// The group that owns the socket, when it has one with a name.
        group: Option<String>,
    },
    /// An address that cannot be used.
    #[error("the address `{address}` of {kind} cannot be used: {reason}")]
    Address {
        /// Which engine.
        kind: Kind,
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
    /// An image is not there.
    #[error("{kind} has no image `{name}`{}", pull.as_ref().map(|reason| format!(", and it cannot be pulled: {reason}")).unwrap_or_default())]
    NoImage {
        /// Which engine.
        kind: Kind,
        /// The image.
        name: String,
        /// Why it could not be pulled, when that was tried.
        pull: Option<String>,
    },
    /// A container is not there.
    #[error("the container `{name}` is gone")]
    NoContainer {
        /// Its name.
        name: String,
    },
    /// A runtime, a driver or the like that the engine does not have.
    #[error("{kind} cannot {action}: {reason}")]
    Lacks {
        /// Which engine.
        kind: Kind,
        /// What was asked of it.
        action: String,
        /// What it says.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// The engine refused.
    #[error("{kind} failed to {action}: {reason}")]
    Refused {
        /// Which engine.
        kind: Kind,
        /// What was asked of it.
        action: String,
        /// Its status code.
        status: u16,
        /// Its words.
        reason: String,
    },
    /// The connection ended before the answer was there.
    #[error("the connection to {kind} was lost while it was to {action}: {reason}")]
    Cut {
        /// Which engine.
        kind: Kind,
        /// What was asked of it.
        action: String,
        /// What the system says.
        reason: String,
    },
    /// The answer took too long.
    #[error("{kind} took longer than {} s to {action}", limit.as_secs_f64())]
    Timeout {
        /// Which engine.
        kind: Kind,
        /// What was asked of it.
        action: String,
        /// The limit.
        limit: Duration,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A file of this machine.
    #[error("failed to {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl EngineError {
    /// What may help.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Absent { kind: Kind::Docker, .. } => {
                "install Docker (Debian: `apt-get install docker.io`) and start it, or name its socket in DOCKER_HOST".into()
            }
            Self::Absent { kind: Kind::Podman, .. } => {
                "install podman and start `systemctl --user start podman.socket`, or `podman system service --time 0`; \
                 CONTAINER_HOST names another socket"
                    .into()
            }
            Self::Down { kind: Kind::Docker, .. } => "start it: `systemctl start docker`, or `dockerd` as root".into(),
            Self::Down { kind: Kind::Podman, .. } => {
                "start its service: `systemctl --user start podman.socket`, or `podman system service --time 0`".into()
            }
            Self::Forbidden { kind: Kind::Docker, group, .. } => {
                let group = group.as_deref().unwrap_or("docker");
                format!(
                    "join the group of the socket: `sudo usermod -aG {group} $USER`, then log in again; or use rootless Docker or Podman"
                )
            }
            Self::Forbidden { kind: Kind::Podman, .. } => "use the socket of this user: `systemctl --user start podman.socket`".into(),
            Self::Address { .. } => "unix:///PATH, tcp://HOST:PORT and http://HOST:PORT are understood".into(),
            Self::NoImage { name, pull: Some(_), .. } => {
                format!("check the name and `docker login`; an image of this machine comes in by `docker load` or `docker tag ... {name}`")
            }
            Self::NoImage { .. } => "build it, load it, or pull it".into(),
            Self::NoContainer { .. } => "remove the context with `envharness rm`, and create it anew".into(),
            Self::Lacks { hint, .. } => hint.clone(),
            Self::Cut { .. } => "look at the engine's log; nothing of it was kept, and it may be tried again".into(),
            Self::Timeout { .. } => "look at the engine's log; `timeouts.engine` and `timeouts.pull` of the settings set the limits".into(),
            Self::Refused { .. } | Self::Interrupted | Self::Io { .. } => return None,
        })
    }

    /// Whether the same may be asked again with hope: the engine did not refuse, it was not heard.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Cut { .. } => true,
            Self::Refused { status, .. } => *status >= 500,
            _ => false,
        }
    }

    /// Whether the thing that was asked about is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NoContainer { .. } | Self::NoImage { .. } | Self::Refused { status: 404, .. })
    }
}

/// Turns what the client says into what a person understands.
pub(crate) fn of_client(kind: Kind, address: &str, action: &str, error: bollard::errors::Error) -> EngineError {
    use bollard::errors::Error;
    let action = action.to_owned();
    match error {
        Error::DockerResponseServerError { status_code, message } => refused(kind, action, status_code, &message),
        Error::DockerStreamError { error } => refused(kind, action, 500, &error),
        Error::RequestTimeoutError => EngineError::Timeout { kind, action, limit: crate::engine::ANSWER },
        Error::IOError { err } if err.kind() == std::io::ErrorKind::PermissionDenied => forbidden(kind, address),
        Error::IOError { err } if is_nobody(err.kind()) => EngineError::Down { kind, address: address.into(), reason: err.to_string() },
        Error::SocketNotFoundError(_) => EngineError::Down { kind, address: address.into(), reason: "there is no such socket".into() },
        error => {
            let reason = chain(&error);
            match io_kind(&error) {
                Some(std::io::ErrorKind::PermissionDenied) => forbidden(kind, address),
                Some(io) if is_nobody(io) => EngineError::Down { kind, address: address.into(), reason },
                _ => EngineError::Cut { kind, action, reason },
            }
        }
    }
}

fn forbidden(kind: Kind, address: &str) -> EngineError {
    EngineError::Forbidden { kind, address: address.into(), group: crate::address::group_of(address) }
}

fn is_nobody(io: std::io::ErrorKind) -> bool {
    matches!(io, std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound)
}

fn refused(kind: Kind, action: String, status: u16, message: &str) -> EngineError {
    let reason = message.trim().trim_end_matches('.').to_owned();
    let lower = reason.to_lowercase();
    let lacks = |hint: &str| EngineError::Lacks { kind, action: action.clone(), reason: reason.clone(), hint: hint.to_owned() };
    if lower.contains("could not select device driver") || lower.contains("nvidia-container") || lower.contains("unresolvable cdi") {
        return lacks("install `nvidia-container-toolkit`, run `nvidia-ctk runtime configure`, and restart the engine");
    }
    if lower.contains("unknown or invalid runtime") || lower.contains("unknown runtime") || lower.contains("invalid runtime name") {
        return lacks("add the runtime to the engine's settings (`/etc/docker/daemon.json`, `containers.conf`), or leave `runtime` away");
    }
    if lower.contains("no space left on device") {
        return lacks("make room: `docker system df` shows what takes it, `envharness gc` removes what is unused");
    }
    EngineError::Refused { kind, action, status, reason }
}

/// The whole chain of causes: the outermost one says only "client error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut parts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        source = cause.source();
    }
    parts.join(": ")
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut current = Some(error);
    while let Some(cause) = current {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        current = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_lacks_is_told_with_its_remedy() {
        let told = refused(Kind::Docker, "start it".into(), 500, "could not select device driver \"\" with capabilities: [[gpu]]");
        assert!(told.hint().is_some_and(|hint| hint.contains("nvidia-container-toolkit")), "{told}");
        let told = refused(Kind::Docker, "make it".into(), 400, "Unknown or invalid runtime name: runsc.");
        assert!(told.hint().is_some_and(|hint| hint.contains("daemon.json")), "{told}");
        let told = refused(Kind::Podman, "make it".into(), 409, "something else.");
        assert_eq!((told.to_string().as_str(), told.hint()), ("podman failed to make it: something else", None));
    }

    #[test]
    fn a_refusal_by_the_system_is_the_user_s_right() {
        let io = |kind| bollard::errors::Error::from(std::io::Error::from(kind));
        let told = of_client(Kind::Docker, "unix:///nowhere", "ask", io(std::io::ErrorKind::PermissionDenied));
        assert!(matches!(&told, EngineError::Forbidden { .. }) && told.hint().is_some_and(|hint| hint.contains("usermod")));
        let told = of_client(Kind::Podman, "unix:///nowhere", "ask", io(std::io::ErrorKind::ConnectionRefused));
        assert!(matches!(&told, EngineError::Down { .. }) && told.hint().is_some_and(|hint| hint.contains("podman.socket")));
        assert!(of_client(Kind::Docker, "unix:///x", "ask", io(std::io::ErrorKind::UnexpectedEof)).is_passing());
    }
}
