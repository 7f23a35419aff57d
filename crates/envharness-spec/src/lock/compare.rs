//! Does a lock still answer its spec, and what changed between two locks.

use std::str::FromStr as _;

use super::{Inputs, Lock, LockedSource, Platform};
use crate::spec::Spec;

impl Lock {
    /// The reasons why this lock does not answer the spec on the platform; empty when it does.
    pub fn stale_reasons(&self, spec: &Spec, platform: &Platform) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.platforms.contains(platform) {
            let have: Vec<&str> = self.platforms.iter().map(Platform::as_str).collect();
            reasons.push(format!("it is for {} and not for {platform}", have.join(", ")));
        }
        for requirement in spec.pip.iter().filter(|r| r.location.is_none()) {
            // What a conda package provides answers by conda's version, which the digest of the inputs guards.
            let locked = requirement.name.as_deref().and_then(|name| self.package(name)).and_then(|p| p.version.as_deref());
            let version = locked.and_then(|text| pep440_rs::Version::from_str(text).ok());
            if version.is_some_and(|version| !requirement.version_specifiers().contains(&version)) {
                reasons.push(format!(
                    "it has {} {}, which is not `{requirement}`",
                    requirement.name.as_deref().unwrap_or_default(),
                    locked.unwrap_or_default()
                ));
            }
        }
        let now = Inputs::of(spec);
        if now.digest == self.inputs.digest {
            return reasons;
        }
        let before = reasons.len();
        let empty = Vec::new();
        let keys: std::collections::BTreeSet<&String> = now.lists.keys().chain(self.inputs.lists.keys()).collect();
        for key in keys {
            let (old, new) = (self.inputs.lists.get(key).unwrap_or(&empty), now.lists.get(key).unwrap_or(&empty));
            reasons.extend(new.iter().filter(|v| !old.contains(v)).map(|v| format!("`{key}` now has `{v}`")));
            reasons.extend(old.iter().filter(|v| !new.contains(v)).map(|v| format!("`{key}` no longer has `{v}`")));
        }
        if reasons.len() == before {
            reasons.push("the addresses of the spec's own indexes changed".to_owned());
        }
        reasons
    }

    /// Lines such as `numpy 1.24.3 -> 1.26.4`, for packages that were added, removed or changed.
    pub fn changes_from(&self, old: &Lock) -> Vec<String> {
        let mut lines = Vec::new();
        let version = |lock: &Lock, name: &str| lock.package(name).map(|p| p.version.clone().unwrap_or_else(|| "local".into()));
        let mut names: Vec<&str> = self.packages.iter().chain(&old.packages).map(|p| p.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            match (version(old, name), version(self, name)) {
                (None, Some(new)) => lines.push(format!("added {name} {new}")),
                (Some(old), None) => lines.push(format!("removed {name} {old}")),
                (Some(old), Some(new)) if old != new => lines.push(format!("changed {name} {old} -> {new}")),
                _ => {}
            }
        }
        if old.python.version != self.python.version {
            lines.push(format!("changed python {} -> {}", old.python.version, self.python.version));
        }
        lines
    }

    /// conda's `environment.yml` with every package exact, for one platform; pip packages keep their hashes.
    pub fn to_environment_yml(&self, name: &str, channels: &[String], platform: &Platform) -> String {
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        let mut out = format!("# Exported by envharness for {}.\nname: {}\n", platform.conda_name(), quote(name));
        if !channels.is_empty() {
            out.push_str("channels:\n");
            channels.iter().for_each(|channel| out.push_str(&format!("  - {}\n", quote(channel))));
        }
        out.push_str("dependencies:\n");
        for (package, source) in self.conda_packages_for(platform) {
            let version = package.version.as_deref().unwrap_or_default();
            out.push_str(&format!("  - {}\n", quote(&format!("{}={version}={}", package.name, source.build))));
        }
        let pip = self.to_requirements(platform).replace(" \\\n    ", " ");
        let lines: Vec<&str> = pip.lines().filter(|line| !line.starts_with('#')).collect();
        if !lines.is_empty() {
            out.push_str("  - pip:\n");
            lines.iter().for_each(|line| out.push_str(&format!("      - {}\n", quote(line))));
        }
        out
    }

    /// requirements.txt with hashes, for one platform.
    pub fn to_requirements(&self, platform: &Platform) -> String {
        let mut out = format!("# Exported by envharness for Python {} on {platform}.\n", self.python.minor());
        for package in self.pip_packages_for(platform) {
            let version = package.version.as_deref().unwrap_or_default();
            out.push_str(&match &package.source {
                // Conda packages are filtered out above; the arm keeps the match whole.
                LockedSource::Index(_) | LockedSource::Host | LockedSource::Conda(_) => format!("{}=={version}", package.name),
                LockedSource::Url(url) => format!("{} @ {url}", package.name),
                LockedSource::Git { url, commit, subdirectory } => {
                    let folder = subdirectory.as_ref().map(|f| format!("#subdirectory={f}")).unwrap_or_default();
                    format!("{} @ git+{url}@{commit}{folder}", package.name)
                }
                LockedSource::Path { path, editable, .. } => format!("{}{path}", if *editable { "-e " } else { "" }),
            });
            for file in &package.files {
                out.push_str(&format!(" \\\n    --hash={}", file.sha256));
            }
            out.push('\n');
        }
        out
    }
}
