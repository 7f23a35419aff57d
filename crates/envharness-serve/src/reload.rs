//! While authoring: sources that change are loaded anew. What cannot be loaded leaves the last that could.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use envharness_rig::{Quiet, Rig};
use envharness_server::ServerHandle;
use envharness_worker::Stats;

use crate::memory::sources;
use crate::options::ServeOptions;
use crate::prepare::{Printed, prepare};

/// How often the sources are looked at.
const EVERY: Duration = Duration::from_millis(300);

fn times(folder: &Path) -> BTreeMap<PathBuf, (Option<SystemTime>, u64)> {
    let entry = |entry: walkdir::DirEntry| {
        let metadata = entry.metadata().ok();
        (entry.into_path(), (metadata.as_ref().and_then(|m| m.modified().ok()), metadata.map_or(0, |m| m.len())))
    };
    sources(folder, true).map(entry).collect()
}

/// Watches until the task is dropped.
pub(crate) async fn watch(handle: ServerHandle, options: ServeOptions, rig: Arc<Rig>, folder: PathBuf, stats: Stats, printed: Printed) {
    let mut known = times(&folder);
    loop {
        tokio::time::sleep(EVERY).await;
        let now = times(&folder);
        if now == known {
            continue;
        }
        // An editor may still be writing: the same look twice is a finished change.
        tokio::time::sleep(EVERY).await;
        if times(&folder) != now {
            continue;
        }
        let changed = now.iter().find(|(path, state)| known.get(*path) != Some(*state)).map(|(path, _)| path.clone());
        known = now;
        let what = changed.unwrap_or_else(|| folder.clone());
        let (again, store) = (options.clone(), rig.clone());
        let prepared = tokio::task::spawn_blocking(move || prepare(&again, &store, &Quiet)).await;
        let result = match prepared {
            Ok(Ok(prepared)) => prepared.host(&options, stats.clone(), handle.next_generation(), &printed).await,
            Ok(Err(error)) => Err(error),
            Err(error) => {
                tracing::error!("the reload broke: {error}");
                continue;
            }
        };
        match result {
            Ok(served) => {
                handle.replace(served);
                tracing::info!(target: "envharness::reload", "{} has changed: new sessions use it", what.display());
            }
            Err(error) => {
                let details = error.details().join("\n");
                tracing::error!(target: "envharness::reload", "{} has changed and cannot be loaded, the last that could goes on: {error}\n{details}", what.display());
            }
        }
    }
}
