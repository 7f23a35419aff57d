//! Folder times of a prefix: what a lease compares, at a cost that does not grow with the files.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Modification and change times of every folder of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Relative path, modification time and change time in nanoseconds. The root's change time is left out: the
    /// rename that publishes a prefix sets it.
    pub folders: Vec<(String, i128, i128)>,
}

impl Record {
    /// Reads the times of the folders named, `""` being the root.
    ///
    /// # Errors
    /// As the system says; a folder that is gone among them.
    pub fn of(root: &Path, folders: impl IntoIterator<Item = String>) -> io::Result<Self> {
        let mut record = Self::default();
        for folder in folders {
            let (modified, changed) = times(root, &folder)?;
            record.folders.push((folder, modified, changed));
        }
        Ok(record)
    }

    /// The first folder whose times differ from the record, or that is gone.
    pub fn first_difference(&self, root: &Path) -> Option<String> {
        self.folders
            .iter()
            .find(|(folder, modified, changed)| !times(root, folder).is_ok_and(|now| now == (*modified, *changed)))
            .map(|(folder, ..)| if folder.is_empty() { ".".to_owned() } else { folder.clone() })
    }

    /// The text form: a line per folder.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for (folder, modified, changed) in &self.folders {
            let _ = writeln!(out, "{modified} {changed} {folder}");
        }
        out
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut record = Self::default();
        for line in text.lines() {
            let mut parts = line.splitn(3, ' ');
            let modified = parts.next()?.parse().ok()?;
            let changed = parts.next()?.parse().ok()?;
            record.folders.push((parts.next()?.to_owned(), modified, changed));
        }
        (!record.folders.is_empty()).then_some(record)
    }
}

fn times(root: &Path, folder: &str) -> io::Result<(i128, i128)> {
    let metadata = std::fs::symlink_metadata(root.join(folder))?;
    if !metadata.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let changed = if folder.is_empty() { 0 } else { nanos(metadata.ctime(), metadata.ctime_nsec()) };
    Ok((nanos(metadata.mtime(), metadata.mtime_nsec()), changed))
}
