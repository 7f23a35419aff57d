//! The store: finished prefixes and all state, shared by every process of a user.
//!
//! ```text
//! ENVHARNESS_HOME/
//!   state.db          rows of prefixes, contexts and known interpreters (SQLite)
//!   prefixes/<key>/   finished, read-only
//!   records/<key>.*   folder times and file list of a prefix, written before it is published
//!   contexts/<id>/    the folder of a context, with its lease
//!   bytecode/         compiled once per package and interpreter
//!   locks/ tmp/ logs/ quarantine/ guest/
//! ```
//!
//! Everything is published by rename; whatever was killed when, an id is either absent or complete. A holder is dead
//! when its kernel lock is free, whatever its row says.

mod contexts;
mod database;
mod error;
mod files;
mod flock;
mod fs;
mod gc;
mod home;
mod manifest;
mod prefixes;
mod record;
mod tree;

pub use contexts::{ContextRow, Lease, NewContext, Origin, State};
pub use database::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use error::StoreError;
pub use files::{read_text, write_atomic};
pub use flock::FileLock;
pub use fs::{Fs, OsFs};
pub use gc::{GcOptions, GcReport};
pub use home::{Home, Temporary};
pub use manifest::{Fault, FaultKind};
pub use prefixes::{Acquired, PrefixMeta, PrefixRow, PrefixUse, VerifyReport};
pub use record::Record;
pub use tree::{remove_tree, seal, tree_size};

/// Packages of a tree that is not published yet, of which a file is not what its `RECORD` says.
///
/// # Errors
/// As the system says.
pub fn packages_against_record(root: &std::path::Path) -> std::io::Result<Vec<String>> {
    manifest::Manifest::packages_against_record(root)
}

/// Seconds since 1970, as rows store them. Only ages that a person reads depend on it; liveness never does.
pub fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Lower-case letters and digits that cannot be mistaken for each other.
pub fn random_suffix(length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = vec![0_u8; length];
    // Without a random source a counter and the pid still make names that differ.
    if getrandom::fill(&mut bytes).is_err() {
        let seed = now().to_bits() ^ u64::from(std::process::id());
        bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (seed >> (i * 5)) as u8);
    }
    bytes.iter().map(|b| char::from(ALPHABET[usize::from(b & 31)])).collect()
}
