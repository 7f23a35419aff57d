//! Lists the guest's files, so that a new one is embedded without being named.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../guest");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file);
        // Writing to a string does not fail.
        let _ = writeln!(list, "    ({:?}, include_str!({:?})),", name.display().to_string(), file.display().to_string());
    }
    list.push(']');
    fs::write(PathBuf::from(env::var("OUT_DIR").unwrap_or_default()).join("guest_files.rs"), list)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "__pycache__" {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "py") || name == "METADATA" {
            files.push(path);
        }
    }
    Ok(())
}
