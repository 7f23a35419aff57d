//! Prefixes: publishing, using, checking, putting aside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use crate::database::boot_id;
use crate::error::{IoContext as _, StoreError};
use crate::files::{read_text, write_atomic};
use crate::flock::FileLock;
use crate::home::Home;
use crate::manifest::{Entry, Fault, Manifest, hash_file};
use crate::record::Record;

/// What is known of a prefix when it is built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixMeta {
    /// The prefix key.
    pub key: String,
    /// The backend.
    pub backend: String,
    /// The Python version.
    pub python: String,
    /// The base interpreter.
    pub interpreter: PathBuf,
    /// The digest of the lock it was first built from.
    pub lock_digest: String,
    /// How many packages it holds.
    pub packages: usize,
}

/// A prefix's row.
#[derive(Debug, Clone)]
pub struct PrefixRow {
    /// What was known when it was built.
    pub meta: PrefixMeta,
    /// Files and links.
    pub files: u64,
    /// Bytes, those that it shares with other prefixes included.
    pub bytes: u64,
    /// When it was published, in seconds since 1970.
    pub created: f64,
    /// When it was last taken, to the minute.
    pub used: f64,
    /// Contexts that name it.
    pub contexts: u64,
}

/// A prefix held against garbage collection.
#[derive(Debug)]
pub struct PrefixUse {
    /// The prefix key.
    pub key: String,
    /// The folder.
    pub path: PathBuf,
    _lock: FileLock,
}

/// What became of an attempt to take a prefix.
#[derive(Debug)]
pub enum Acquired {
    /// It is there and as it was published.
    Ready(PrefixUse),
    /// It is not there.
    Absent,
    /// It was there, was not what it should be, and was put into quarantine.
    Quarantined(Vec<Fault>),
}

/// What [`Home::verify_prefix`] found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// The prefix key.
    pub key: String,
    /// Files that were checked.
    pub files: usize,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// A quarantine holds this many faults in its note; more say nothing new.
const MOST_FAULTS: usize = 50;

impl Home {
    /// Waits for the right to build, amend or compare a prefix.
    ///
    /// # Errors
    /// [`StoreError::Io`], or what `tick` returns.
    pub fn build_lock<E: From<StoreError>>(
        &self,
        key: &str,
        exclusive: bool,
        tick: impl FnMut(Duration) -> Result<(), E>,
    ) -> Result<FileLock, E> {
        FileLock::acquire(&self.lock(&format!("{key}.build")), exclusive, tick)
    }

    /// Takes a prefix that is there, after comparing its folders with the record.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn acquire_prefix(&self, key: &str) -> Result<Acquired, StoreError> {
        let path = self.prefix(key);
        let lock = FileLock::acquire(&self.lock(&format!("{key}.use")), false, |_| Ok::<(), StoreError>(()))?;
        if !path.is_dir() {
            return Ok(Acquired::Absent);
        }
        let taken = PrefixUse { key: key.to_owned(), path: path.clone(), _lock: lock };
        let guard = self.build_lock(key, false, |_| Ok::<(), StoreError>(()))?;
        let boot = boot_id();
        let row = self.database_call(|db| {
            db.query_row("SELECT boot_id, durable, used FROM prefixes WHERE key = ?1", [key], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?, row.get::<_, f64>(2)?))
            })
            .optional()
        })?;
        let record = read_text(&self.record(key, "folders"))?.and_then(|text| Record::parse(&text));
        let trusted = row.as_ref().is_some_and(|(booted, durable, _)| *durable || *booted == boot);
        if trusted && record.is_some_and(|record| record.first_difference(&path).is_none()) {
            if row.is_some_and(|(_, _, used)| crate::now() - used > 60.0) {
                self.database_call(|db| db.execute("UPDATE prefixes SET used = ?2 WHERE key = ?1", params![key, crate::now()]))?;
            }
            return Ok(Acquired::Ready(taken));
        }
        drop(guard);
        let guard = self.build_lock(key, true, |_| Ok::<(), StoreError>(()))?;
        if !path.is_dir() {
            return Ok(Acquired::Absent);
        }
        self.settle(key)?;
        let faults = self.faults_of(key, true)?;
        if !faults.is_empty() {
            self.quarantine_prefix(key, &faults)?;
            return Ok(Acquired::Quarantined(faults));
        }
        // Whole after all: a backup, or a row that a crash swallowed. Note its times as they are now.
        self.write_record(key)?;
        if let Some(meta) = self.read_meta(key)? {
            self.insert_row(&meta, true)?;
        }
        drop(guard);
        Ok(Acquired::Ready(taken))
    }

    /// Publishes a finished tree under its key. The caller holds the build lock.
    ///
    /// # Errors
    /// [`StoreError::Io`]; nothing is published then.
    pub fn publish(&self, staged: &Path, meta: &PrefixMeta) -> Result<(), StoreError> {
        let key = meta.key.as_str();
        let target = self.prefix(key);
        tracing::debug!(key, "sealing");
        let mut manifest = Manifest::seal_and_scan(staged).on("seal", staged)?;
        tracing::debug!(key, "hashing what no record covers");
        manifest.hash_uncovered(staged).on("hash", staged)?;
        tracing::debug!(key, "recording");
        let record = Record::of(staged, manifest.folders.iter().cloned()).on("record", staged)?;
        let meta_text = serde_json::to_string(meta).unwrap_or_default();
        for (kind, text) in [("files", manifest.to_text()), ("folders", record.to_text()), ("meta", meta_text)] {
            let path = self.record(key, kind);
            self.fs.write(&path, text.as_bytes()).on("write", &path)?;
        }
        tracing::debug!(key, "flushing");
        let durable = self.fs.sync_fs(staged).is_ok();
        tracing::debug!(key, durable, "publishing");
        self.fs.rename(staged, &target).on("publish", &target)?;
        seal_root(&target).on("seal", &target)?;
        let parent = self.prefixes();
        let durable = self.fs.sync_dir(&parent).is_ok() && durable;
        self.insert_row_of(meta, &manifest, durable)
    }

    /// Adds files to a published prefix, as links to `sources`, under its build lock, and notes the new times before
    /// letting go. What will be added is noted first, so that a kill in between leaves a prefix that is still known.
    ///
    /// Returns how many were added; none when the prefix is gone or was changed by somebody else.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn amend_prefix(&self, key: &str, additions: &[(String, PathBuf)]) -> Result<usize, StoreError> {
        let mut entries = Vec::with_capacity(additions.len());
        for (path, source) in additions {
            let size = std::fs::metadata(source).on("read", source)?.len();
            entries.push((path.clone(), Entry::File { size, sha256: Some(hash_file(source).on("hash", source)?) }));
        }
        let guard = self.build_lock(key, true, |_| Ok::<(), StoreError>(()))?;
        let root = self.prefix(key);
        let Some(mut manifest) = self.manifest(key)?.filter(|_| root.is_dir()) else { return Ok(0) };
        let record = read_text(&self.record(key, "folders"))?.and_then(|text| Record::parse(&text));
        if record.is_none_or(|record| record.first_difference(&root).is_some()) {
            // A change that is not ours: the next lease finds it and decides.
            return Ok(0);
        }
        for (path, entry) in entries {
            manifest.entries.insert(path.clone(), entry);
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            if !manifest.folders.contains(&folder) {
                manifest.folders.push(folder);
            }
        }
        let next = self.record(key, "next");
        write_atomic(&next, manifest.to_text().as_bytes())?;
        let result = add_links(&root, additions);
        self.settle(key)?;
        // What was added may not survive a power cut, though the folders' times say it did: after another boot the
        // prefix is verified before use.
        let boot = boot_id();
        self.database_call(|db| db.execute("UPDATE prefixes SET durable = 0, boot_id = ?2 WHERE key = ?1", params![key, boot]))?;
        drop(guard);
        result.on("amend", &root)
    }

    /// Takes over what an amendment added, whole or cut short; does nothing where none was planned. The caller holds
    /// the build lock.
    fn settle(&self, key: &str) -> Result<(), StoreError> {
        if !self.record(key, "next").exists() {
            return Ok(());
        }
        let (root, next) = (self.prefix(key), self.record(key, "next"));
        let (Some(mut manifest), Some(mut planned)) = (self.manifest(key)?, read_text(&next)?.and_then(|t| Manifest::parse(&t))) else {
            let _ = self.fs.remove_file(&next);
            return Ok(());
        };
        planned.entries.retain(|path, _| !manifest.entries.contains_key(path) && root.join(path).exists());
        manifest.entries.extend(planned.entries);
        for folder in planned.folders {
            if !manifest.folders.contains(&folder) && root.join(&folder).is_dir() {
                manifest.folders.push(folder);
            }
        }
        write_atomic(&self.record(key, "files"), manifest.to_text().as_bytes())?;
        self.write_record(key)?;
        self.fs.remove_file(&next).on("remove", &next)
    }

    fn manifest(&self, key: &str) -> Result<Option<Manifest>, StoreError> {
        Ok(read_text(&self.record(key, "files"))?.and_then(|text| Manifest::parse(&text)))
    }

    /// Checks a prefix against its file list; `deep` hashes every file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn verify_prefix(&self, key: &str, deep: bool) -> Result<VerifyReport, StoreError> {
        if self.record(key, "next").exists() {
            // An addition that was cut short: what it brought is known and no fault.
            let guard = self.build_lock(key, true, |_| Ok::<(), StoreError>(()))?;
            self.settle(key)?;
            drop(guard);
        }
        let guard = self.build_lock(key, false, |_| Ok::<(), StoreError>(()))?;
        let faults = self.faults_of(key, deep)?;
        let files = self.manifest(key)?.map_or(0, |m| m.entries.len());
        drop(guard);
        Ok(VerifyReport { key: key.to_owned(), files, faults })
    }

    /// Checks a prefix once more with nobody else at work on it, and puts it aside when it is broken.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn repair_prefix(&self, key: &str) -> Result<Vec<Fault>, StoreError> {
        let guard = self.build_lock(key, true, |_| Ok::<(), StoreError>(()))?;
        self.settle(key)?;
        let faults = self.faults_of(key, true)?;
        if !faults.is_empty() {
            self.quarantine_prefix(key, &faults)?;
        }
        drop(guard);
        Ok(faults)
    }

    /// Has the next taker of a prefix look at every file, and put the prefix aside when it is broken.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn distrust_prefix(&self, key: &str) -> Result<(), StoreError> {
        self.database_call(|db| db.execute("UPDATE prefixes SET durable = 0, boot_id = '' WHERE key = ?1", [key])).map(drop)
    }

    /// Whether a prefix of that key was put aside before: then what it is built from may be bad.
    pub fn was_quarantined(&self, key: &str) -> bool {
        let entries = std::fs::read_dir(self.quarantine()).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(key))
    }

    /// Gives a whole prefix without a row, as a crash leaves it, its row again; `false` when it is not whole.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn adopt_prefix(&self, key: &str) -> Result<bool, StoreError> {
        match (self.read_meta(key)?, self.manifest(key)?) {
            (Some(meta), Some(_)) => self.insert_row(&meta, false).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Puts a broken prefix aside, with a note of what is wrong.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn quarantine_prefix(&self, key: &str, faults: &[Fault]) -> Result<(), StoreError> {
        let aside = self.quarantine().join(format!("{key}-{}", crate::random_suffix(5)));
        let path = self.prefix(key);
        self.database_call(|db| db.execute("DELETE FROM prefixes WHERE key = ?1", [key]))?;
        unseal_root(&path);
        match self.fs.rename(&path, &aside) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.on("quarantine", &path)?,
        }
        let note: String = faults.iter().take(MOST_FAULTS).map(|fault| format!("{fault}\n")).collect();
        write_atomic(&aside.with_extension("txt"), note.as_bytes())
    }

    /// Every prefix, the least recently used first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn prefix_rows(&self) -> Result<Vec<PrefixRow>, StoreError> {
        self.database_call(|db| {
            let mut statement = db.prepare(
                "SELECT key, backend, python, interpreter, lock_digest, packages, files, bytes, created, used,
                        (SELECT count(*) FROM contexts WHERE contexts.prefix = prefixes.key)
                 FROM prefixes ORDER BY used, key",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(PrefixRow {
                    meta: PrefixMeta {
                        key: row.get(0)?,
                        backend: row.get(1)?,
                        python: row.get(2)?,
                        interpreter: PathBuf::from(row.get::<_, String>(3)?),
                        lock_digest: row.get(4)?,
                        packages: row.get::<_, i64>(5)?.unsigned_abs() as usize,
                    },
                    files: row.get::<_, i64>(6)?.unsigned_abs(),
                    bytes: row.get::<_, i64>(7)?.unsigned_abs(),
                    created: row.get(8)?,
                    used: row.get(9)?,
                    contexts: row.get::<_, i64>(10)?.unsigned_abs(),
                })
            })?;
            rows.collect()
        })
    }

    /// Removes a prefix that nobody uses; `false` when somebody does.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn remove_prefix(&self, key: &str) -> Result<bool, StoreError> {
        let Some(used) = FileLock::try_acquire(&self.lock(&format!("{key}.use")), true)? else { return Ok(false) };
        let Some(build) = FileLock::try_acquire(&self.lock(&format!("{key}.build")), true)? else { return Ok(false) };
        let free = self.database_call(|db| {
            let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let named: i64 = transaction.query_row("SELECT count(*) FROM contexts WHERE prefix = ?1", [key], |r| r.get(0))?;
            if named == 0 {
                transaction.execute("DELETE FROM prefixes WHERE key = ?1", [key])?;
            }
            transaction.commit()?;
            Ok(named == 0)
        })?;
        if !free {
            return Ok(false);
        }
        let path = self.prefix(key);
        unseal_root(&path);
        self.discard(&path)?;
        for kind in ["files", "folders", "meta", "next", "activation"] {
            let _ = self.fs.remove_file(&self.record(key, kind));
        }
        build.remove();
        used.remove();
        Ok(true)
    }

    /// Keys of folders that lie in `prefixes/` without a row, as a crash between the two leaves them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn prefixes_without_row(&self) -> Result<Vec<String>, StoreError> {
        let known: std::collections::HashSet<String> = self.prefix_rows()?.into_iter().map(|row| row.meta.key).collect();
        let folder = self.prefixes();
        let entries = std::fs::read_dir(&folder).on("list", &folder)?.flatten();
        Ok(entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|key| !known.contains(key)).collect())
    }

    fn faults_of(&self, key: &str, deep: bool) -> Result<Vec<Fault>, StoreError> {
        let path = self.prefix(key);
        match self.manifest(key)? {
            Some(manifest) => manifest.check(&path, deep).on("check", &path),
            None => Ok(vec![Fault { path: format!("records/{key}.files"), kind: crate::FaultKind::Missing }]),
        }
    }

    fn write_record(&self, key: &str) -> Result<(), StoreError> {
        let root = self.prefix(key);
        let manifest = self.manifest(key)?.unwrap_or_default();
        let record = Record::of(&root, manifest.folders).on("record", &root)?;
        write_atomic(&self.record(key, "folders"), record.to_text().as_bytes())
    }

    fn read_meta(&self, key: &str) -> Result<Option<PrefixMeta>, StoreError> {
        Ok(read_text(&self.record(key, "meta"))?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    fn insert_row(&self, meta: &PrefixMeta, durable: bool) -> Result<(), StoreError> {
        let manifest = self.manifest(&meta.key)?.unwrap_or_default();
        self.insert_row_of(meta, &manifest, durable)
    }

    fn insert_row_of(&self, meta: &PrefixMeta, manifest: &Manifest, durable: bool) -> Result<(), StoreError> {
        let (boot, now) = (boot_id(), crate::now());
        self.database_call(|db| {
            db.execute(
                "INSERT INTO prefixes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11)
                 ON CONFLICT (key) DO UPDATE SET boot_id = ?10, durable = ?11, used = ?9",
                params![
                    meta.key,
                    meta.backend,
                    meta.python,
                    meta.interpreter.to_string_lossy(),
                    meta.lock_digest,
                    i64::try_from(meta.packages).unwrap_or(i64::MAX),
                    i64::try_from(manifest.entries.len()).unwrap_or(i64::MAX),
                    i64::try_from(manifest.bytes()).unwrap_or(i64::MAX),
                    now,
                    boot,
                    durable
                ],
            )
            .map(drop)
        })
    }
}

fn seal_root(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o555))
}

/// A folder that is moved must be writable itself, since its `..` changes.
fn unseal_root(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
}

/// Links each source to its place; a folder that is read-only is opened for the moment.
fn add_links(root: &Path, additions: &[(String, PathBuf)]) -> std::io::Result<usize> {
    use std::os::unix::fs::PermissionsExt as _;
    let writable =
        |folder: &Path, yes: bool| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(if yes { 0o755 } else { 0o555 }));
    let mut opened: std::collections::BTreeSet<PathBuf> = std::collections::BTreeSet::new();
    let mut added = 0;
    let mut result = Ok(());
    for (path, source) in additions {
        let target = root.join(path);
        let folder = target.parent().unwrap_or(root).to_owned();
        let one = (|| {
            if !folder.is_dir() {
                let above = folder.parent().unwrap_or(root).to_owned();
                if opened.insert(above.clone()) {
                    writable(&above, true)?;
                }
                std::fs::create_dir(&folder)?;
                opened.insert(folder.clone());
            } else if opened.insert(folder.clone()) {
                writable(&folder, true)?;
            }
            match std::fs::hard_link(source, &target) {
                // Too many links to one file, or another file system: a copy under another name, then renamed.
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    let temporary = target.with_extension(format!("pyc.{}", crate::random_suffix(6)));
                    std::fs::copy(source, &temporary)?;
                    std::fs::rename(&temporary, &target)
                }
                Err(_) => Ok(()),
                Ok(()) => Ok(()),
            }
        })();
        match one {
            Ok(()) => added += 1,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    for folder in opened {
        writable(&folder, false)?;
    }
    result.map(|()| added)
}
