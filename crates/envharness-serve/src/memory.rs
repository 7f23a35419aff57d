//! What was learnt of a target, kept in the store by the digest of its sources.

use std::fs;
use std::path::{Path, PathBuf};

use envharness_spec::Digest;
use envharness_store::{Home, write_atomic};
use envharness_worker::{Memory, Mode};
use walkdir::WalkDir;

/// A file with one word: how the sessions of a class ran well.
#[derive(Debug)]
pub(crate) struct ModeFile(PathBuf);

impl ModeFile {
    /// The file for sources of a digest.
    pub(crate) fn of(home: &Home, target: &str, sources: &Digest) -> Self {
        let key = Digest::of(format!("{target}\0{sources}"));
        Self(home.root().join("serve").join(format!("{}.mode", &key.hex()[..24])))
    }
}

impl Memory for ModeFile {
    fn recall(&self) -> Option<Mode> {
        fs::read_to_string(&self.0).ok().and_then(|text| Mode::parse(text.trim()))
    }

    fn remember(&self, mode: Mode) {
        let written = self.0.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| error.to_string());
        let written = written.and_then(|()| write_atomic(&self.0, mode.name().as_bytes()).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::debug!("what was learnt is not kept: {error}");
        }
    }
}

/// Sources below a folder, without what is hidden or generated.
pub(crate) fn sources(folder: &Path, deep: bool) -> impl Iterator<Item = walkdir::DirEntry> {
    let walk = WalkDir::new(folder).max_depth(if deep { 8 } else { 1 }).sort_by_file_name().into_iter();
    let wanted = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name.starts_with('.') || name == "__pycache__" || name == "node_modules" || name.ends_with(".egg-info"))
    };
    let is_source = |entry: &walkdir::DirEntry| {
        entry.file_type().is_file() && entry.path().extension().is_some_and(|e| e == "py" || e == "toml" || e == "yaml" || e == "yml")
    };
    walk.filter_entry(wanted).filter_map(Result::ok).filter(move |entry| is_source(entry)).take(5000)
}

/// The digest of all sources below a folder.
pub(crate) fn digest_of_sources(folder: &Path, deep: bool) -> Digest {
    let mut all = Vec::new();
    for entry in sources(folder, deep) {
        all.extend_from_slice(entry.path().strip_prefix(folder).unwrap_or(entry.path()).to_string_lossy().as_bytes());
        all.push(0);
        all.extend(fs::read(entry.path()).unwrap_or_default());
        all.push(0);
    }
    Digest::of(all)
}
