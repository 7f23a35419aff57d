//! What a container sees of the machine, and how it runs.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

/// The key of the project's folder among the mounts.
pub(crate) const PROJECT: &str = "project";

/// What a spec says of its container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerOptions {
    /// `none`, `host`, `bridge` or the name of a network of the engine.
    pub network: Option<String>,
    /// `runc`, `crun`, `runsc`, `kata`...: one that the engine knows.
    pub runtime: Option<String>,
    /// How the project's folder is seen, at its own path.
    pub project: Access,
    /// Other folders and files of the machine by their path inside.
    pub mounts: BTreeMap<String, SpecMount>,
}

/// How something of the machine is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// It may be written to.
    #[default]
    Write,
    /// It may be read.
    Read,
    /// It is not there.
    None,
}

/// Something of the machine that a container sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecMount {
    /// The path on the machine; a relative one begins at the spec's folder.
    pub source: String,
    /// Whether it may be written to.
    pub write: bool,
}

impl Access {
    /// Every word.
    pub const WORDS: &'static [&'static str] = &["rw", "ro", "none"];

    /// Reads a word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Write, Self::Read, Self::None].into_iter().find(|access| access.as_str() == word)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "rw",
            Self::Read => "ro",
            Self::None => "none",
        }
    }
}

impl ContainerOptions {
    /// The keys of a spec that only a container can answer and that are set.
    pub fn asked(&self) -> Vec<&'static str> {
        let set = [
            ("network", self.network.is_some()),
            ("runtime", self.runtime.is_some()),
            ("mounts", !self.mounts.is_empty() || self.project != Access::Write),
        ];
        set.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
    }

    pub(crate) fn put(&self, put: &mut impl FnMut(&str, Json)) {
        for (key, value) in [("network", &self.network), ("runtime", &self.runtime)] {
            if let Some(value) = value {
                put(key, json!(value));
            }
        }
        let mode = |write| if write { "rw" } else { "ro" };
        let mut mounts: BTreeMap<String, String> =
            self.mounts.iter().map(|(target, mount)| (target.clone(), format!("{}:{}", mount.source, mode(mount.write)))).collect();
        if self.project != Access::Write {
            mounts.insert(PROJECT.into(), self.project.as_str().into());
        }
        if !mounts.is_empty() {
            put("mounts", json!(mounts));
        }
    }
}
