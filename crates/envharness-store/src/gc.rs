//! Garbage collection of prefixes and leftovers; contexts go first, by the rig, which ends their processes.

use std::time::Duration;

use crate::error::{IoContext as _, StoreError};
use crate::home::Home;

/// What `gc` may take.
#[derive(Debug, Clone, Copy, Default)]
pub struct GcOptions {
    /// Prefixes unused for longer go.
    pub max_age: Option<Duration>,
    /// While prefixes take more bytes than this, the least recently used go.
    pub max_size: Option<u64>,
    /// Only says what would go.
    pub dry_run: bool,
}

/// What `gc` took.
#[derive(Debug, Clone, Default)]
pub struct GcReport {
    /// Ids of contexts.
    pub contexts: Vec<String>,
    /// Names of containers whose context is gone.
    pub containers: Vec<String>,
    /// Keys of prefixes.
    pub prefixes: Vec<String>,
    /// Bytes of those prefixes.
    pub bytes: u64,
    /// Abandoned temporaries, quarantined prefixes and leftover locks.
    pub leftovers: usize,
    /// Prefixes that would go but are in use.
    pub in_use: usize,
}

impl Home {
    /// Removes prefixes by age and by size, never one in use, and what crashes left.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn collect(&self, options: GcOptions, report: &mut GcReport) -> Result<(), StoreError> {
        if !options.dry_run {
            for key in self.prefixes_without_row()? {
                if !self.adopt_prefix(&key)? && self.remove_prefix(&key)? {
                    report.leftovers += 1;
                }
            }
        }
        self.collect_prefixes(options, report)?;
        if options.dry_run {
            return Ok(());
        }
        for lease in self.context_folders_without_row()? {
            self.remove_context(lease)?;
            report.leftovers += 1;
        }
        report.leftovers += self.sweep_temporaries(usize::MAX / 8, None)?;
        report.leftovers += self.empty_quarantine(options.max_age)?;
        self.sweep_records()?;
        self.sweep_logs(options.max_age)?;
        self.sweep_locks()
    }

    /// The prefixes' part of [`Home::collect`], which a publication runs too when there is a size cap.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn collect_prefixes(&self, options: GcOptions, report: &mut GcReport) -> Result<(), StoreError> {
        let rows = self.prefix_rows()?;
        let mut total: u64 = rows.iter().map(|row| row.bytes).sum();
        for row in &rows {
            let old = options.max_age.is_some_and(|age| crate::now() - row.used > age.as_secs_f64());
            let over = options.max_size.is_some_and(|size| total > size);
            if !old && !over {
                continue;
            }
            let freed = if options.dry_run {
                row.contexts == 0 && !self.prefix_in_use(&row.meta.key)?
            } else {
                row.contexts == 0 && self.remove_prefix(&row.meta.key)?
            };
            if freed {
                total -= row.bytes;
                report.bytes += row.bytes;
                report.prefixes.push(row.meta.key.clone());
            } else {
                report.in_use += 1;
            }
        }
        Ok(())
    }

    /// Removes records of prefixes that are gone.
    fn sweep_records(&self) -> Result<(), StoreError> {
        let folder = self.root().join("records");
        for entry in std::fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((key, _)) = name.rsplit_once('.') else { continue };
            // Under the lock: a builder writes the records before the prefix is there.
            if !self.prefix(key).exists()
                && let Some(lock) = crate::FileLock::try_acquire(&self.lock(&format!("{key}.build")), true)?
            {
                let _ = self.fs.remove_file(&entry.path());
                lock.remove();
            }
        }
        Ok(())
    }

    /// Removes old logs of contexts that are gone.
    fn sweep_logs(&self, max_age: Option<Duration>) -> Result<(), StoreError> {
        let folder = self.root().join("logs");
        for entry in std::fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = name.trim_end_matches(".1").trim_end_matches(".log").to_owned();
            let age = entry.metadata().ok().and_then(|m| m.modified().ok()).and_then(|t| t.elapsed().ok()).unwrap_or_default();
            if !self.context(&id).exists() && max_age.is_some_and(|most| age >= most) {
                let _ = self.fs.remove_file(&entry.path());
            }
        }
        Ok(())
    }

    fn prefix_in_use(&self, key: &str) -> Result<bool, StoreError> {
        Ok(crate::FileLock::try_acquire(&self.lock(&format!("{key}.use")), true)?.is_none())
    }

    fn empty_quarantine(&self, max_age: Option<Duration>) -> Result<usize, StoreError> {
        let folder = self.quarantine();
        let mut removed = 0;
        for entry in std::fs::read_dir(&folder).on("list", &folder)?.flatten() {
            // The change time: when it was put here.
            let age = entry.metadata().ok().and_then(|m| m.modified().ok()).and_then(|t| t.elapsed().ok()).unwrap_or_default();
            if max_age.is_none_or(|most| age >= most) {
                self.fs.remove_tree(&entry.path()).on("remove", &entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes lock files of prefixes and contexts that are gone.
    fn sweep_locks(&self) -> Result<(), StoreError> {
        let folder = self.root().join("locks");
        for entry in std::fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let gone = match name.rsplit_once('.') {
                Some((key, "use" | "build")) => !self.prefix(key).exists(),
                Some((id, "lease" | "attached")) => !self.context(id).exists(),
                _ => false,
            };
            if gone && let Some(lock) = crate::FileLock::try_acquire(&entry.path(), true)? {
                lock.remove();
            }
        }
        Ok(())
    }
}
