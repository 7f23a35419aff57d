//! Where the store keeps what.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{IoContext as _, StoreError};
use crate::flock::FileLock;
use crate::fs::{Fs, OsFs};

/// The store's folders.
#[derive(Clone)]
pub struct Home {
    root: PathBuf,
    cache: PathBuf,
    pub(crate) fs: Arc<dyn Fs>,
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").field("root", &self.root).field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Home {
    /// Opens the store, making its folders (mode 0700) where they are missing.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(root: &Path, cache: &Path) -> Result<Self, StoreError> {
        Self::with_fs(root, cache, Arc::new(OsFs))
    }

    /// Opens the store on another [`Fs`].
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn with_fs(root: &Path, cache: &Path, fs: Arc<dyn Fs>) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).on("find", root)?;
        let cache = std::path::absolute(cache).on("find", cache)?;
        if !root.join("guest").is_dir() {
            for folder in ["", "prefixes", "records", "contexts", "bytecode", "locks", "tmp", "logs", "quarantine", "specs", "guest"] {
                let path = root.join(folder);
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).on("create", &path)?;
            }
        }
        let root = root.canonicalize().on("find", &root)?;
        Ok(Self { root, cache, fs })
    }

    /// `ENVHARNESS_HOME`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `ENVHARNESS_CACHE`: downloads only.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The state database.
    pub fn database(&self) -> PathBuf {
        self.root.join("state.db")
    }

    /// The folder of all prefixes.
    pub fn prefixes(&self) -> PathBuf {
        self.root.join("prefixes")
    }

    /// A prefix.
    pub fn prefix(&self, key: &str) -> PathBuf {
        self.root.join("prefixes").join(key)
    }

    /// A record of a prefix: `folders` or `files`.
    pub fn record(&self, key: &str, kind: &str) -> PathBuf {
        self.root.join("records").join(format!("{key}.{kind}"))
    }

    /// A context's folder.
    pub fn context(&self, id: &str) -> PathBuf {
        self.root.join("contexts").join(id)
    }

    /// A context's log.
    pub fn log(&self, id: &str) -> PathBuf {
        self.root.join("logs").join(format!("{id}.log"))
    }

    /// A lock file.
    pub fn lock(&self, name: &str) -> PathBuf {
        self.root.join("locks").join(name)
    }

    /// Where compiled byte-code is kept.
    pub fn bytecode(&self) -> PathBuf {
        self.root.join("bytecode")
    }

    /// Where locks of specs without a file are kept.
    pub fn specs(&self) -> PathBuf {
        self.root.join("specs")
    }

    /// Where the guest is unpacked.
    pub fn guest(&self) -> PathBuf {
        self.root.join("guest")
    }

    /// Where broken prefixes are put aside.
    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// The folder of temporaries, on the same file system as all else.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Makes a temporary folder that a later sweep removes if this process dies.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn temporary(&self, kind: &str) -> Result<Temporary, StoreError> {
        let (name, lock) = loop {
            let name = format!("{kind}-{}", crate::random_suffix(10));
            // A sweeper may look at the new file in this very moment.
            if let Some(lock) = FileLock::try_acquire(&self.tmp().join(format!("{name}.lock")), true)? {
                break (name, lock);
            }
        };
        let path = self.tmp().join(name);
        self.fs.create_dir_all(&path).on("create", &path)?;
        Ok(Temporary { path, lock: Some(lock), fs: Arc::clone(&self.fs) })
    }

    /// As [`Home::temporary`], with a name that comes again: the first free of `kind-0`, `kind-1`, ... What uv learned
    /// of an interpreter at that path it need not ask again.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn temporary_slot(&self, kind: &str) -> Result<Temporary, StoreError> {
        let mut number = 0_usize;
        loop {
            let name = format!("{kind}-{number}");
            if let Some(lock) = FileLock::try_acquire(&self.tmp().join(format!("{name}.lock")), true)? {
                let path = self.tmp().join(name);
                if path.exists() {
                    // A maker was killed here, and a child of it may write a moment longer: its lock went before its
                    // children. The sweep removes the folder; this build goes elsewhere.
                    drop(lock);
                    number += 1;
                    continue;
                }
                self.fs.create_dir_all(&path).on("create", &path)?;
                return Ok(Temporary { path, lock: Some(lock), fs: Arc::clone(&self.fs) });
            }
            number += 1;
        }
    }

    /// Flushes the file system that holds the store.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn sync(&self) -> Result<(), StoreError> {
        self.fs.sync_fs(&self.root).on("flush", &self.root)
    }

    /// Removes temporaries whose maker is dead, until `deadline`; returns how many.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn sweep_temporaries(&self, most: usize, deadline: Option<std::time::Instant>) -> Result<usize, StoreError> {
        let tmp = self.tmp();
        let mut removed = 0;
        for entry in fs::read_dir(&tmp).on("list", &tmp)?.flatten().take(most * 4) {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let (folder, lock) = match name.strip_suffix(".lock") {
                Some(stem) => (tmp.join(stem), entry.path()),
                // A folder without a lock file is one whose maker died between removing the two.
                None => (entry.path(), tmp.join(format!("{name}.lock"))),
            };
            if removed == most {
                break;
            }
            if let Some(lock) = FileLock::try_acquire(&lock, true)? {
                if !crate::tree::remove_tree_until(&folder, deadline).on("remove", &folder)? {
                    return Ok(removed);
                }
                lock.remove();
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Takes a folder out of sight at once and then removes it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn discard(&self, path: &Path) -> Result<(), StoreError> {
        let trash = self.temporary("trash")?;
        let target = trash.path().join("it");
        match self.fs.rename(path, &target) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            // A folder that its owner may not move (not writable itself) is removed where it is.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => self.fs.remove_tree(path).on("remove", path),
            other => other.on("remove", path),
        }
    }
}

/// A folder that goes away with its value.
pub struct Temporary {
    path: PathBuf,
    lock: Option<FileLock>,
    fs: Arc<dyn Fs>,
}

impl Temporary {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = self.fs.remove_tree(&self.path);
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
    }
}
