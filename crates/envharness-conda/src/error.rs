//! What can go wrong between a match spec and a prefix.

use std::error::Error;

/// An error of conda's part. Addresses in it hold no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CondaError {
    /// No runtime could be made.
    #[error("failed to start the threads that fetch packages")]
    Runtime(#[source] std::io::Error),
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// A text is no match spec.
    #[error("`{spec}` is not a conda package: {reason}")]
    MatchSpec {
        /// The text.
        spec: String,
        /// Why not.
        reason: String,
    },
    /// A text names no channel.
    #[error("`{channel}` is not a conda channel: {reason}")]
    Channel {
        /// The text.
        channel: String,
        /// Why not.
        reason: String,
    },
    /// A virtual package cannot be what was asked.
    #[error("the virtual package `{name}`: {reason}")]
    VirtualPackage {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A platform has no conda name.
    #[error("conda has no platform `{0}`")]
    Platform(String),
    /// A channel does not answer, or not as a channel does.
    #[error("failed to read the channel `{channel}` for {platform}: {reason}")]
    Unreachable {
        /// Its name or address.
        channel: String,
        /// The platform.
        platform: String,
        /// The chain of causes.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// No channel has a package of that name.
    #[error("no package `{name}` in {} for {platform}", channels.join(", "))]
    NoPackage {
        /// The name.
        name: String,
        /// The channels that were asked.
        channels: Vec<String>,
        /// The platform.
        platform: String,
        /// Names that are near.
        near: Vec<String>,
        /// Other platforms that have it.
        elsewhere: Vec<String>,
    },
    /// No set of packages satisfies all.
    #[error("no set of conda packages satisfies the spec on {platform}")]
    Unsolvable {
        /// The platform.
        platform: String,
        /// Who wants what.
        explanation: Vec<String>,
        /// Virtual packages that stand in the way, `__cuda >=12`.
        missing_virtual: Vec<String>,
    },
    /// A package could not be fetched, or is not what its channel says.
    #[error("failed to fetch `{package}`: {reason}")]
    Fetch {
        /// Its file name.
        package: String,
        /// The chain of causes.
        reason: String,
    },
    /// A package could not be put into the prefix.
    #[error("failed to install `{package}`: {reason}")]
    Install {
        /// Its file name, or the prefix.
        package: String,
        /// The chain of causes.
        reason: String,
        /// The system's error number, where the system refused.
        code: Option<i32>,
    },
    /// Another tool's file cannot be read or written.
    #[error("{place}: {reason}")]
    Exchange {
        /// Where.
        place: String,
        /// Why not.
        reason: String,
    },
    /// A lock lacks what an installation needs.
    #[error("the lock's package `{package}` {reason}")]
    Record {
        /// Which.
        package: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl CondaError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoPackage { elsewhere, .. } if !elsewhere.is_empty() => {
                Some(format!("it is there for {}: leave it away, or run on one of them", elsewhere.join(", ")))
            }
            Self::NoPackage { near, .. } if !near.is_empty() => Some(format!("did you mean {}?", near.join(", "))),
            Self::NoPackage { .. } => Some("check the name and `channels`; a package of PyPI goes under `dependencies.pip`".into()),
            Self::Unsolvable { missing_virtual, .. } if !missing_virtual.is_empty() => {
                let wanted = &missing_virtual[0];
                let (name, version) = wanted.split_once(' ').unwrap_or((wanted, ""));
                let version = version.trim_matches(|c: char| !c.is_ascii_digit() && c != '.').split(',').next().unwrap_or_default();
                let version = if version.is_empty() { "1" } else { version };
                Some(format!(
                    "this machine has no fitting `{name}`; to resolve for one that has, set `virtual_packages: {{{name}: \"{version}\"}}` in the spec"
                ))
            }
            Self::Unsolvable { .. } => Some("loosen one of the versions named".into()),
            Self::Unreachable { hint, .. } => hint.clone(),
            Self::Fetch { reason, .. } if is_mismatch(reason) => {
                Some("the channel serves another file than it lists: run `envharness lock --upgrade`, or tell its owner".into())
            }
            Self::Fetch { reason, .. } | Self::Install { reason, .. } if reason.contains("No space left") => {
                Some("the disk is full: `envharness gc --max-size 0` removes what nobody uses".into())
            }
            Self::Fetch { reason, .. } if reason.contains("offline") => {
                Some("run once without `--offline`: it is not downloaded yet".into())
            }
            Self::Fetch { .. } => {
                Some("check the network, the proxy and the channel; `mirrors` in the settings names another address".into())
            }
            Self::Exchange { place, .. } if place == "conda-lock.yml" => {
                Some("`--format pixi.lock` and `--format explicit` hold packages of a disk too".into())
            }
            Self::VirtualPackage { .. } => Some("write `virtual_packages: {__cuda: \"12.4\"}`; an empty version hides one".into()),
            Self::MatchSpec { .. } => Some("write `numpy`, `numpy 1.26.*`, `numpy >=1.22,<2` or `conda-forge::numpy=1.26=py311*`".into()),
            Self::Record { .. } => Some("run `envharness lock`".into()),
            _ => None,
        }
    }

    /// Longer text below the message.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Unsolvable { explanation, .. } => explanation.clone(),
            _ => Vec::new(),
        }
    }
}

fn is_mismatch(reason: &str) -> bool {
    ["hash mismatch", "HashMismatch", "does not match", "expected sha256"].iter().any(|sign| reason.contains(sign))
}

/// An error with all its causes on one line, without repetitions.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut out = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !out.contains(&text) {
            out.push_str(": ");
            out.push_str(&text);
        }
        next = cause.source();
    }
    without_credentials(&out)
}

/// The system's error number of the first cause that has one.
pub(crate) fn os_code(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(code) = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            return Some(code);
        }
        next = cause.source();
    }
    None
}

/// Addresses without the user and password, and without conda's `/t/TOKEN/`.
pub(crate) fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/'\"`)>".contains(c)).unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(sign) => &after[sign + 1..],
            None => after,
        };
    }
    out.push_str(rest);
    match out.find("/t/") {
        Some(at) => {
            let end = out[at + 3..].find('/').map_or(out.len(), |n| at + 3 + n);
            format!("{}/t/****{}", &out[..at], &out[end..])
        }
        None => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_never_show() {
        let text = "error for http://me:secret@host:80/c/linux-64/x and https://h/t/tk-123/c";
        assert_eq!(without_credentials(text), "error for http://host:80/c/linux-64/x and https://h/t/****/c");
    }

    #[test]
    fn a_missing_virtual_package_comes_with_the_override_to_set() {
        let error =
            CondaError::Unsolvable { platform: "linux-64".into(), explanation: Vec::new(), missing_virtual: vec!["__cuda >=12".into()] };
        assert!(error.hint().is_some_and(|hint| hint.contains("virtual_packages: {__cuda: \"12\"}")));
    }
}
