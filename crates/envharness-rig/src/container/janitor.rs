//! Ends the containers of contexts that are gone.

use std::collections::BTreeSet;

use envharness_engine::{Patient, label};
use envharness_store::{ContextRow, Home};

use super::{home_label, reconnect, remembered};
use crate::context::Payload;
use crate::error::RigError;

/// Removes the container of a context, if it has one.
///
/// # Errors
/// [`RigError::Engine`] when its engine does not answer: the row must stay then, or nobody would know of it.
pub(crate) fn remove_container(row: &ContextRow) -> Result<(), RigError> {
    if !matches!(row.backend.as_str(), "docker" | "podman") {
        return Ok(());
    }
    // A context that was never finished has no place yet; strays of it are found by their labels.
    let Some(place) = Payload::parse(&row.payload).ok().and_then(|payload| payload.container) else { return Ok(()) };
    Ok(place.engine()?.remove(&row.id, &Patient)?)
}

/// Removes every container of the store whose context is gone or whose time is over; gives their names.
pub(crate) fn remove_strays(home: &Home, dry_run: bool) -> Result<Vec<String>, RigError> {
    let (mine, now) = (home_label(home)?, envharness_store::now());
    let mut gone = Vec::new();
    for (kind, url) in remembered(home) {
        let found = reconnect(kind.as_str(), &url).and_then(|engine| {
            let all = engine.containers(label::HOME, &mine, &Patient)?;
            Ok((engine, all))
        });
        // An engine that is down has nothing that runs.
        let Ok((engine, all)) = found else { continue };
        // Looked up after the list: what was made in between has its row already.
        let rows: BTreeSet<String> = home.contexts()?.into_iter().map(|row| row.id).collect();
        for container in all {
            let owner = container.labels.get(label::OWNER).cloned().unwrap_or_default();
            let over = container.labels.get(label::DEADLINE).and_then(|text| text.parse::<f64>().ok()).is_some_and(|at| at < now);
            let role = container.labels.get(label::ROLE).map(String::as_str);
            let stray = match role {
                Some("context") => !rows.contains(&owner),
                // A probe lives as long as its question.
                Some("probe") => container.state == "exited",
                _ => false,
            };
            if !stray && !over {
                continue;
            }
            if !dry_run && let Err(error) = engine.remove(&container.name, &Patient) {
                tracing::warn!(%error, container = container.name, "not removed");
                continue;
            }
            gone.push(container.name);
        }
    }
    Ok(gone)
}
