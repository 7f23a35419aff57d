//! What a base offers to the environment on top of it.

use std::collections::BTreeSet;
use std::fs;

use envharness_store::write_atomic;

use crate::error::{ImageError, IoContext as _};
use crate::images::Images;
use crate::import::Base;
use crate::layer::{Packed, open_tar};

/// Paths in a base that decide what can run on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Interpreters, `usr/local/bin/python3.11`.
    pub pythons: BTreeSet<String>,
    /// Loaders of C libraries.
    pub loaders: BTreeSet<String>,
}

impl Facts {
    /// Where the base has a Python of a minor version, as an absolute path. One that was installed by hand goes before
    /// the distribution's.
    pub fn python(&self, minor: &str) -> Option<String> {
        let name = format!("python{minor}");
        let fits = |path: &&String| path.rsplit('/').next() == Some(&name);
        let rank = |path: &&String| match path.split_once("bin/").map(|(folder, _)| folder) {
            Some("usr/local/") => 0,
            Some("usr/") => 1,
            Some("") => 2,
            _ => 3,
        };
        self.pythons.iter().filter(fits).min_by_key(rank).map(|path| format!("/{path}"))
    }

    /// Minor versions of Python that are there.
    pub fn minors(&self) -> Vec<String> {
        let minors: BTreeSet<&str> = self.pythons.iter().filter_map(|path| path.rsplit_once("python")).map(|(_, minor)| minor).collect();
        minors.into_iter().map(str::to_owned).collect()
    }

    /// Whether there is the GNU C library, which Python packages with native code are built for.
    pub fn has_glibc(&self) -> bool {
        self.loaders.iter().any(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-linux")))
    }

    fn note(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let minor = name.strip_prefix("python3.").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
        if minor && path.rsplit('/').nth(1) == Some("bin") {
            self.pythons.insert(path.to_owned());
        } else if (name.starts_with("ld-linux") || name.starts_with("ld-musl")) && name.contains(".so") {
            self.loaders.insert(path.to_owned());
        }
    }
}

impl Images {
    /// Reads the names in a base's layers; what was read of a layer is kept.
    ///
    /// # Errors
    /// [`ImageError::Broken`] for a layer that is no tar.
    pub fn facts(&self, base: &Base) -> Result<Facts, ImageError> {
        let mut facts = Facts::default();
        for (_, layer) in &base.layers {
            for path in self.interesting(layer)? {
                facts.note(&path);
            }
        }
        Ok(facts)
    }

    fn interesting(&self, layer: &Packed) -> Result<BTreeSet<String>, ImageError> {
        let kept = self.root().join("layers").join(format!("{}.names", layer.digest.hex()));
        if let Ok(text) = fs::read_to_string(&kept) {
            return Ok(text.lines().skip(1).map(str::to_owned).collect());
        }
        let blob = self.blob(&layer.digest);
        let broken = |error: std::io::Error| ImageError::broken(layer.digest.to_string(), format!("it is no layer: {error}"));
        let mut all = Facts::default();
        for entry in tar::Archive::new(open_tar(&blob).on("read", &blob)?).entries().map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let path = entry.path().map_err(broken)?;
            all.note(path.to_string_lossy().trim_start_matches("./").trim_matches('/'));
        }
        let names: BTreeSet<String> = all.pythons.into_iter().chain(all.loaders).collect();
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        // The first line is what `prune` goes by.
        write_atomic(&kept, format!("{}\n{lines}", layer.digest).as_bytes())?;
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_and_loaders_are_known_by_their_paths() {
        let mut facts = Facts::default();
        for path in [
            "usr/bin/python3.11",
            "usr/local/bin/python3.11",
            "usr/bin/python3.11-config",
            "usr/lib/python3.11",
            "lib64/ld-linux-x86-64.so.2",
        ] {
            facts.note(path);
        }
        assert_eq!(facts.python("3.11").as_deref(), Some("/usr/local/bin/python3.11"));
        assert_eq!(facts.python("3.1"), None);
        assert_eq!(facts.minors(), ["3.11"]);
        assert!(facts.has_glibc());
    }
}
