//! The seam under everything that publishes, so that tests can fail or cut it at any call.

use std::io;
use std::path::Path;

/// State-changing file operations.
pub trait Fs: Send + Sync {
    /// Creates a folder and its parents.
    ///
    /// # Errors
    /// As the system says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Writes a whole file.
    ///
    /// # Errors
    /// As the system says.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Renames; an existing folder is not replaced.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Flushes the file system that holds `path`; one call is far cheaper than a sync of each file.
    ///
    /// # Errors
    /// As the system says.
    fn sync_fs(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// As the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a tree, read-only folders included.
    ///
    /// # Errors
    /// As the system says.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsFs;

impl Fs for OsFs {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        std::fs::write(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_fs(&self, path: &Path) -> io::Result<()> {
        let folder = std::fs::File::open(path)?;
        rustix::fs::syncfs(&folder).map_err(io::Error::from)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        crate::tree::remove_tree(path)
    }
}
