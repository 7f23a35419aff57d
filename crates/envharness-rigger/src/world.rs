//! What the machine has, as far as decisions hang on it.

use std::collections::BTreeMap;

use serde::Serialize;

/// The machine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct World {
    /// Minor versions of the Pythons that are there, `3.11`, the preferred first.
    pub pythons: Vec<String>,
    /// The caller's own Python.
    pub preferred: Option<String>,
    /// What the caller's own environment holds: module and distributions.
    pub installed: BTreeMap<String, Vec<String>>,
    /// GPUs present.
    pub gpus: u32,
    /// The newest CUDA that the driver knows.
    pub cuda: Option<String>,
    /// Memory of the machine in bytes.
    pub memory: u64,
    /// The day, ISO.
    pub today: String,
    /// Whether missing Pythons may be fetched.
    pub python_downloads: bool,
}

/// The minor number of `3.11`.
pub(crate) fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("3.")?.split('.').next()?.parse().ok()
}
