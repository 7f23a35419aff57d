//! Whole small files.

use std::fs;
use std::path::Path;

use crate::error::{IoContext as _, StoreError};

/// Reads a text file; `None` when there is none.
///
/// # Errors
/// [`StoreError::Io`] for everything but absence.
pub fn read_text(path: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).on("read", path),
    }
}

/// Replaces a file's content in one step: readers see the old text or the new.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", crate::random_suffix(8)));
    let result = fs::write(&temporary, bytes).on("write", &temporary).and_then(|()| fs::rename(&temporary, path).on("replace", path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}
