//! What a layer holds: a sorted listing with the hash of every file.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use envharness_spec::Digest;

use crate::error::{ImageError, IoContext as _};
use crate::hashing::Hasher;

/// One name in a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its permissions.
    pub mode: u32,
    /// What it is.
    pub kind: EntryKind,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// Where its bytes are.
        source: PathBuf,
        /// How many.
        size: u64,
        /// Their hash.
        sha256: Digest,
    },
    /// A symbolic link and its target.
    Link(String),
}

/// Names, relative to the image's root and sorted, with what they stand for.
pub type Tree = BTreeMap<String, Entry>;

/// How the permissions of a tree are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modes {
    /// 0755 for folders and what its owner may execute, 0644 for the rest: a prefix's own modes depend on its maker.
    Normal,
    /// As they are, as in a root file system.
    Kept,
}

/// Lists a folder as it would lie at `at` in an image. Hard links are listed as files of their own.
///
/// # Errors
/// [`ImageError::Content`] for a socket, pipe or device; [`ImageError::Io`].
pub fn read(folder: &Path, at: &str, modes: Modes) -> Result<Tree, ImageError> {
    let mut out = Tree::new();
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(folder).min_depth(1) {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            ImageError::Io { action: "read", path, source: error.into() }
        })?;
        let path = entry.path();
        let relative = path.strip_prefix(folder).unwrap_or(path);
        let text = |path: &Path| {
            let reason = || ImageError::Content { path: path.to_owned(), reason: "its name is not UTF-8".into() };
            path.to_str().map(str::to_owned).ok_or_else(reason)
        };
        let name = join(at, &text(relative)?);
        let metadata = entry.path().symlink_metadata().on("read", path)?;
        let kind = entry.file_type();
        let listed = if kind.is_symlink() {
            Entry { mode: 0o777, kind: EntryKind::Link(text(&fs::read_link(path).on("read", path)?)?) }
        } else if kind.is_dir() {
            let mode = if modes == Modes::Kept { metadata.permissions().mode() & 0o7777 } else { 0o755 };
            Entry { mode, kind: EntryKind::Folder }
        } else if kind.is_file() {
            let normal = if metadata.mode() & 0o100 == 0 { 0o644 } else { 0o755 };
            let mode = if modes == Modes::Kept { metadata.permissions().mode() & 0o7777 } else { normal };
            files.push((name, path.to_owned(), mode, metadata.len()));
            continue;
        } else {
            let reason = "it is neither a file, a folder nor a link".to_owned();
            return Err(ImageError::Content { path: path.to_owned(), reason });
        };
        out.insert(name, listed);
    }
    hash_all(files, &mut out)?;
    Ok(out)
}

type Unhashed = (String, PathBuf, u32, u64);

fn hash_all(files: Vec<Unhashed>, out: &mut Tree) -> Result<(), ImageError> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let hashed: Vec<Result<Vec<(String, Entry)>, ImageError>> = std::thread::scope(|scope| {
        let files = &files;
        let hash = move |worker: usize| {
            let one = |(name, source, mode, size): &Unhashed| {
                let sha256 = hash_file(source)?;
                Ok((name.clone(), Entry { mode: *mode, kind: EntryKind::File { source: source.clone(), size: *size, sha256 } }))
            };
            files.iter().skip(worker).step_by(workers).map(one).collect()
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || hash(worker))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for part in hashed {
        out.extend(part?);
    }
    Ok(())
}

fn hash_file(path: &Path) -> Result<Digest, ImageError> {
    let mut file = fs::File::open(path).on("read", path)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0_u8; 128 << 10];
    loop {
        match file.read(&mut buffer).on("read", path)? {
            0 => return Ok(hasher.digest()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// A path below another, without a slash at either end.
pub fn join(at: &str, name: &str) -> String {
    let at = at.trim_matches('/');
    if at.is_empty() { name.to_owned() } else { format!("{at}/{name}") }
}

/// Adds the folders above every name, 0755, where they are not listed.
pub fn with_parents(tree: &mut Tree) {
    let mut missing = Vec::new();
    for name in tree.keys() {
        let parents = name.match_indices('/').map(|(at, _)| &name[..at]);
        missing.extend(parents.filter(|parent| !tree.contains_key(*parent)).map(str::to_owned));
    }
    for parent in missing {
        tree.entry(parent).or_insert(Entry { mode: 0o755, kind: EntryKind::Folder });
    }
}

/// A line for each name: what decides a layer's bytes.
pub fn listing(tree: &Tree) -> String {
    let mut out = String::new();
    for (name, entry) in tree {
        let content = match &entry.kind {
            EntryKind::Folder => "folder".to_owned(),
            EntryKind::File { size, sha256, .. } => format!("file {size} {sha256}"),
            EntryKind::Link(target) => format!("link {target:?}"),
        };
        out.push_str(&format!("{name:?} {:o} {content}\n", entry.mode));
    }
    out
}

/// A file of its own.
///
/// # Errors
/// [`ImageError::Io`].
pub fn file(path: &Path, mode: u32) -> Result<Entry, ImageError> {
    let size = fs::metadata(path).on("read", path)?.len();
    Ok(Entry { mode, kind: EntryKind::File { source: path.to_owned(), size, sha256: hash_file(path)? } })
}
