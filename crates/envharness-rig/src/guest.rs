//! Our pure-Python code that runs inside contexts, embedded here and written once to the store by its hash.

use std::fs;
use std::path::PathBuf;

use envharness_spec::Digest;
use envharness_store::{Home, remove_tree, seal};

use crate::error::{IoContext as _, RigError};

/// Relative path and content; `build.rs` lists them.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/guest_files.rs"));

/// The folder with the guest, written if it is not there.
///
/// # Errors
/// [`RigError::Io`].
pub fn ensure(home: &Home) -> Result<PathBuf, RigError> {
    let text: String = FILES.iter().map(|(path, content)| format!("{path}\0{content}\0")).collect();
    let target = home.guest().join(&Digest::of(text).hex()[..16]);
    if target.is_dir() {
        return Ok(target);
    }
    let folder = home.temporary("guest")?;
    let staged = folder.path().join("it");
    for (path, content) in FILES {
        let path = staged.join(path);
        let parent = path.parent().unwrap_or(&staged);
        fs::create_dir_all(parent).on("create", parent)?;
        fs::write(&path, content).on("write", &path)?;
    }
    home.sync()?;
    match fs::rename(&staged, &target) {
        Ok(()) => {}
        // Another process was first.
        Err(_) if target.is_dir() => {
            let _ = remove_tree(&staged);
        }
        Err(error) => return Err(error).on("publish", &target),
    }
    seal(&target).on("seal", &target)?;
    Ok(target)
}
