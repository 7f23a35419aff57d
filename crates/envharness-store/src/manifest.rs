//! Every file of a prefix, with what it must be.
//!
//! A wheel's own `RECORD` has the hash of nearly every file, and so has a conda package's file in `conda-meta`. The manifest
//! hashes only these and what they do not cover; a deep check then follows the chain from the manifest through them to each
//! file.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use envharness_spec::Digest;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use sha2::{Digest as _, Sha256};

/// What stands in a prefix.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    /// Files and links by relative path.
    pub entries: HashMap<String, Entry>,
    /// Folders, the root (`""`) first.
    pub folders: Vec<String>,
}

/// One file or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file: size, and its hash where no `RECORD` has one.
    File { size: u64, sha256: Option<String> },
    /// A symbolic link and its target.
    Link(String),
}

/// One thing wrong with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The relative path.
    pub path: String,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// The ways in which a file can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Not there.
    Missing,
    /// There, but nobody put it there.
    Unexpected,
    /// Not what it was.
    Changed,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self.kind {
            FaultKind::Missing => "missing",
            FaultKind::Unexpected => "unexpected",
            FaultKind::Changed => "changed",
        };
        write!(f, "{word}: {}", self.path)
    }
}

impl Manifest {
    /// Lists a tree; nothing is hashed yet.
    pub(crate) fn scan(root: &Path) -> io::Result<Self> {
        Self::walk(root, false)
    }

    /// Lists a tree, without the byte-code that wheels bring, and takes the write bits from all in it but the root, which
    /// a rename may have to move yet.
    pub(crate) fn seal_and_scan(root: &Path) -> io::Result<Self> {
        Self::walk(root, true)
    }

    /// Folders are handed out to two threads once there are a few: a fresh tree is thousands of small calls.
    fn walk(root: &Path, seal: bool) -> io::Result<Self> {
        const ENOUGH: usize = 8;
        let mut manifest = Self { folders: vec![String::new()], ..Self::default() };
        let mut queue = VecDeque::from([String::new()]);
        while queue.len() < ENOUGH {
            let Some(folder) = queue.pop_front() else { break };
            manifest.read_folder(root, &folder, seal, &mut queue)?;
        }
        let jobs = Mutex::new(queue);
        let work = || -> io::Result<Self> {
            let mut part = Self::default();
            loop {
                let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(folder) = next else { return Ok(part) };
                let mut below = VecDeque::from([folder]);
                while let Some(folder) = below.pop_front() {
                    part.read_folder(root, &folder, seal, &mut below)?;
                }
            }
        };
        let parts = std::thread::scope(|scope| {
            let other = scope.spawn(work);
            let mine = work();
            [mine, other.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended early")))]
        });
        for part in parts {
            let part = part?;
            manifest.entries.extend(part.entries);
            manifest.folders.extend(part.folders);
        }
        manifest.folders.sort();
        Ok(manifest)
    }

    /// Takes up one folder: its files here, its folders here and in `below`.
    fn read_folder(&mut self, root: &Path, folder: &str, seal: bool, below: &mut VecDeque<String>) -> io::Result<()> {
        let path = root.join(folder);
        let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for entry in rustix::fs::Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            let full = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if seal && name == "__pycache__" {
                // Byte-code that a wheel brings is nobody's to trust: the builder alone makes it, from the sources.
                fs::remove_dir_all(path.join(&name))?;
                continue;
            }
            let stat = rustix::fs::statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Symlink {
                self.entries.insert(full, Entry::Link(fs::read_link(path.join(&name))?.to_string_lossy().into_owned()));
                continue;
            }
            if seal && stat.st_mode & 0o222 != 0 {
                rustix::fs::chmodat(&opened, entry.file_name(), Mode::from_raw_mode(stat.st_mode & 0o7555), AtFlags::empty())?;
            }
            if kind == FileType::Directory {
                self.folders.push(full.clone());
                below.push_back(full);
            } else {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.entries.insert(full, Entry::File { size, sha256: None });
            }
        }
        Ok(())
    }

    /// Hashes what no `RECORD` covers, the `RECORD`s included.
    pub(crate) fn hash_uncovered(&mut self, root: &Path) -> io::Result<()> {
        let covered = self.recorded_hashes(root)?;
        for (path, entry) in &mut self.entries {
            if let Entry::File { sha256, .. } = entry
                && !covered.contains_key(path)
            {
                *sha256 = Some(hash_file(&root.join(path))?);
            }
        }
        Ok(())
    }

    /// The hashes that the `RECORD`s and conda's records hold, by relative path.
    fn recorded_hashes(&self, root: &Path) -> io::Result<HashMap<String, String>> {
        let mut out: HashMap<String, String> = HashMap::new();
        let mut disputed = Vec::new();
        for path in self.entries.keys().filter(|path| path.ends_with(".dist-info/RECORD")) {
            let base = path.rsplitn(3, '/').nth(2).unwrap_or_default().to_owned();
            for line in String::from_utf8_lossy(&fs::read(root.join(path))?).lines() {
                if let Some((file, hash)) = record_line(line)
                    && let Some(relative) = join_relative(&base, &file)
                {
                    // Two packages may claim one file; the one that is there is then hashed itself.
                    if out.get(&relative).is_some_and(|other| *other != hash) {
                        disputed.push(relative.clone());
                    }
                    out.insert(relative, hash);
                }
            }
        }
        for path in self.entries.keys().filter(|path| path.starts_with("conda-meta/") && path.ends_with(".json")) {
            for (file, hash) in conda_record(&fs::read(root.join(path))?) {
                if out.get(&file).is_some_and(|other| *other != hash) {
                    disputed.push(file.clone());
                }
                out.insert(file, hash);
            }
        }
        disputed.iter().for_each(|path| drop(out.remove(path)));
        out.retain(|path, _| self.entries.contains_key(path));
        Ok(out)
    }

    /// Packages (`name-version`) of a tree that is not published yet, of which a file is not what its `RECORD` says.
    pub(crate) fn packages_against_record(root: &Path) -> io::Result<Vec<String>> {
        let manifest = Self::scan(root)?;
        let recorded = manifest.recorded_hashes(root)?;
        let mut bad: Vec<String> = Vec::new();
        for path in manifest.entries.keys().filter(|path| path.ends_with(".dist-info/RECORD")) {
            let base = path.rsplitn(3, '/').nth(2).unwrap_or_default();
            let name = path.rsplit('/').nth(1).unwrap_or_default().trim_end_matches(".dist-info");
            let text = fs::read(root.join(path))?;
            let differs = String::from_utf8_lossy(&text).lines().filter_map(record_line).any(|(file, hash)| {
                join_relative(base, &file).filter(|relative| recorded.contains_key(relative)).is_some_and(|relative| {
                    matches!(manifest.entries.get(&relative), Some(Entry::File { .. }))
                        && hash_file(&root.join(&relative)).is_ok_and(|now| now != hash)
                })
            });
            if differs {
                bad.push(name.to_owned());
            }
        }
        Ok(bad)
    }

    /// Everything wrong with a tree; `deep` follows the hashes, else names, kinds and sizes are compared.
    pub(crate) fn check(&self, root: &Path, deep: bool) -> io::Result<Vec<Fault>> {
        let found = Self::scan(root)?;
        let mut faults = Vec::new();
        let mut fault = |path: &str, kind| faults.push(Fault { path: path.to_owned(), kind });
        for path in found.entries.keys().filter(|path| !self.entries.contains_key(*path)) {
            fault(path, FaultKind::Unexpected);
        }
        let recorded = if deep { found.recorded_hashes(root).unwrap_or_default() } else { HashMap::new() };
        for (path, entry) in &self.entries {
            let same = match (entry, found.entries.get(path)) {
                (_, None) => {
                    fault(path, FaultKind::Missing);
                    continue;
                }
                (Entry::Link(wanted), Some(Entry::Link(target))) => wanted == target,
                (Entry::File { size, sha256 }, Some(Entry::File { size: now, .. })) if size == now => {
                    match sha256.as_ref().or_else(|| recorded.get(path)) {
                        Some(hash) if deep => hash_file(&root.join(path)).is_ok_and(|now| now == *hash),
                        // Covered by a RECORD when it was sealed, and no longer: the RECORD is what changed.
                        None if deep => false,
                        _ => true,
                    }
                }
                _ => false,
            };
            if !same {
                fault(path, FaultKind::Changed);
            }
        }
        for folder in self.folders.iter().filter(|folder| !root.join(folder).is_dir()) {
            fault(folder, FaultKind::Missing);
        }
        faults.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(faults)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.entries.values().map(|e| if let Entry::File { size, .. } = e { *size } else { 0 }).sum()
    }

    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        for folder in &self.folders {
            let _ = writeln!(out, "d {folder}");
        }
        let mut paths: Vec<&String> = self.entries.keys().collect();
        paths.sort();
        for path in paths {
            let _ = match &self.entries[path] {
                Entry::File { size, sha256 } => writeln!(out, "f {size} {} {path}", sha256.as_deref().unwrap_or("-")),
                Entry::Link(target) => writeln!(out, "l {path}\t{target}"),
            };
        }
        out
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut manifest = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ')?;
            match kind {
                "d" => manifest.folders.push(rest.to_owned()),
                "l" => {
                    let (path, target) = rest.split_once('\t')?;
                    manifest.entries.insert(path.to_owned(), Entry::Link(target.to_owned()));
                }
                _ => {
                    let mut parts = rest.splitn(3, ' ');
                    let size = parts.next()?.parse().ok()?;
                    let hash = parts.next()?;
                    let sha256 = (hash != "-").then(|| hash.to_owned());
                    manifest.entries.insert(parts.next()?.to_owned(), Entry::File { size, sha256 });
                }
            }
        }
        (!manifest.folders.is_empty()).then_some(manifest)
    }
}

/// The paths and hex hashes of a conda package's record: what lies in the prefix, prefixes replaced.
fn conda_record(bytes: &[u8]) -> Vec<(String, String)> {
    #[derive(serde::Deserialize, Default)]
    struct Document {
        #[serde(default)]
        paths_data: Paths,
    }
    #[derive(serde::Deserialize, Default)]
    struct Paths {
        #[serde(default)]
        paths: Vec<Item>,
    }
    #[derive(serde::Deserialize)]
    struct Item {
        #[serde(rename = "_path")]
        path: String,
        sha256: Option<String>,
        sha256_in_prefix: Option<String>,
    }
    let document: Document = serde_json::from_slice(bytes).unwrap_or_default();
    let hashed = |item: Item| {
        let hash = item.sha256_in_prefix.or(item.sha256).filter(|hash| hash.len() == 64)?;
        Some((join_relative("", &item.path)?, hash.to_ascii_lowercase()))
    };
    document.paths_data.paths.into_iter().filter_map(hashed).collect()
}

/// The path and hex hash of a line of `RECORD` (PEP 376): CSV with `sha256=<url-safe base64>`.
fn record_line(line: &str) -> Option<(String, String)> {
    let (path, rest) = match line.strip_prefix('"') {
        Some(quoted) => {
            let end = quoted.find("\",")?;
            (quoted[..end].replace("\"\"", "\""), &quoted[end + 2..])
        }
        None => line.split_once(',').map(|(path, rest)| (path.to_owned(), rest))?,
    };
    let hash = rest.split(',').next()?.strip_prefix("sha256=")?;
    Some((path, base64_to_hex(hash)?))
}

/// The value of each letter of url-safe base64; 255 for other bytes.
const BASE64: [u8; 256] = {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut table = [255_u8; 256];
    let mut i = 0;
    while i < alphabet.len() {
        table[alphabet[i] as usize] = i as u8;
        i += 1;
    }
    table
};

fn base64_to_hex(text: &str) -> Option<String> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let (mut bits, mut buffer, mut out) = (0_u32, 0_u32, String::with_capacity(64));
    for c in text.trim_end_matches('=').bytes() {
        let value = BASE64[usize::from(c)];
        if value == 255 {
            return None;
        }
        buffer = (buffer << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            let byte = (buffer >> bits) & 0xff;
            out.push(char::from(HEX[(byte >> 4) as usize]));
            out.push(char::from(HEX[(byte & 15) as usize]));
        }
    }
    (out.len() == 64).then_some(out)
}

/// Joins `../../../bin/f2py` to a folder; `None` when it leaves the tree.
fn join_relative(base: &str, path: &str) -> Option<String> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Hashes a file in pieces.
pub(crate) fn hash_file(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    if file.metadata()?.size() < 1 << 20 {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        return Ok(Digest::of(bytes).hex().to_owned());
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 18];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    Ok(hasher.finalize().iter().fold(String::with_capacity(64), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_lines_give_hex_hashes_and_never_leave_the_tree() {
        let line = "six.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0";
        let (path, hash) = record_line(line).unwrap();
        assert_eq!(path, "six.py");
        assert_eq!(hash, Digest::of("").hex());
        assert_eq!(join_relative("lib/site", "../../bin/x"), Some("bin/x".into()));
        assert_eq!(join_relative("lib/site", "../../../../etc/passwd"), None);
        assert_eq!(join_relative("lib", "/etc/passwd"), None);
    }

    #[test]
    fn conda_records_give_the_hash_of_what_lies_in_the_prefix() {
        let (packed, replaced) = (Digest::of("a"), Digest::of("b"));
        let text = format!(
            r#"{{"paths_data": {{"paths": [{{"_path": "bin/x", "sha256": "{0}", "sha256_in_prefix": "{1}"}},
                {{"_path": "lib/y", "sha256": "{0}"}}, {{"_path": "../etc/z", "sha256": "{0}"}}, {{"_path": "link"}}]}}}}"#,
            packed.hex(),
            replaced.hex()
        );
        let wanted = vec![("bin/x".to_owned(), replaced.hex().to_owned()), ("lib/y".to_owned(), packed.hex().to_owned())];
        assert_eq!(conda_record(text.as_bytes()), wanted);
        assert!(conda_record(b"not json").is_empty());
    }

    #[test]
    fn text_form_survives_a_round_trip() {
        let mut manifest = Manifest { folders: vec![String::new(), "bin".into()], ..Manifest::default() };
        manifest.entries.insert("bin/a b".into(), Entry::File { size: 3, sha256: None });
        manifest.entries.insert("bin/python".into(), Entry::Link("/usr/bin/python3".into()));
        let read = Manifest::parse(&manifest.to_text()).unwrap();
        assert_eq!((read.entries, read.folders), (manifest.entries, manifest.folders));
    }
}
