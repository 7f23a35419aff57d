//! Ending what nobody holds: the short sweep of every create, and `gc`.

use std::time::{Duration, Instant};

use envharness_sandbox::processes_by_variable;
use envharness_store::{GcOptions, GcReport, Home, StoreError};

use crate::container::{remove_container, remove_strays};
use crate::context::{PROCESS_OF, context_tree};
use crate::error::RigError;
use crate::rig::Rig;

/// The longest a sweep may take within a create.
const SWEEP: Duration = Duration::from_millis(20);
/// Rows that a sweep looks at before it knows that there is something to do.
const LOOK: usize = 16;

/// Ends a few contexts whose holder died or whose time is over, and abandoned temporaries. Trouble is left to `gc`.
pub(crate) fn sweep(home: &Home) {
    let started = Instant::now();
    loop {
        let rows = home.sweepable(LOOK, false).unwrap_or_default();
        let found = rows.len();
        // Ending a container takes an engine longer than a sweep may: `gc` does it, and the next create there.
        let (slow, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| is_container(&row.backend));
        let found = found - slow.len();
        for row in rows {
            if started.elapsed() > SWEEP {
                return;
            }
            if let Err(error) = sweep_one(home, &row.id, false) {
                tracing::debug!(%error, id = row.id, "not swept");
                return;
            }
        }
        if found == 0 || started.elapsed() > SWEEP {
            break;
        }
    }
    if let Err(error) = home.sweep_temporaries(2, Some(started + SWEEP)) {
        tracing::debug!(%error, "temporaries were not swept");
    }
}

/// Ends a few contexts in containers whose holder died or whose time is over, where a create takes an engine's time anyway.
pub(crate) fn sweep_containers(home: &Home, address: &str) {
    let rows = home.sweepable(LOOK, false).unwrap_or_default();
    for row in rows.iter().filter(|row| is_container(&row.backend) && row.payload.contains(address)).take(2) {
        if let Err(error) = sweep_one(home, &row.id, false) {
            tracing::debug!(%error, id = row.id, "not swept");
        }
    }
}

fn is_container(backend: &str) -> bool {
    matches!(backend, "docker" | "podman")
}

/// Removes a context that nobody holds or whose time is over, judged again with its lease in hand.
fn sweep_one(home: &Home, id: &str, kept_too: bool) -> Result<bool, RigError> {
    let Some(lease) = home.lease_to_sweep(id, kept_too)? else { return Ok(false) };
    context_tree(id).kill();
    remove_container(&home.find_context(id)?)?;
    home.remove_context(lease)?;
    Ok(true)
}

/// Ends a context's processes and removes it; `force` also takes one that is held.
pub(crate) fn destroy(home: &Home, id: &str, force: bool) -> Result<(), RigError> {
    let lease = match home.try_lease(id)? {
        Some(lease) => lease,
        None if force => home.take_lease_by_force(id)?,
        None => return Err(StoreError::InUse(id.to_owned()).into()),
    };
    context_tree(id).kill();
    match remove_container(&home.find_context(id)?) {
        // An engine that is gone for good must not keep its contexts for ever; `gc` finds what is left once it is back.
        Err(RigError::Engine(error)) if force => tracing::warn!(%error, id, "its container was not removed"),
        other => other?,
    }
    home.remove_context(lease)?;
    Ok(())
}

impl Rig {
    /// Removes contexts past their time and prefixes nobody uses, by age and size, never what is in use.
    ///
    /// # Errors
    /// [`RigError::Store`].
    pub fn gc(&self, options: GcOptions) -> Result<GcReport, RigError> {
        let mut report = GcReport::default();
        let running = processes_by_variable(PROCESS_OF);
        for row in self.home.sweepable(usize::MAX / 4, true)? {
            let alive = running.contains_key(&row.id) && !row.lost_its_holder();
            if alive {
                continue;
            }
            if !options.dry_run {
                match sweep_one(&self.home, &row.id, true) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    // Its row stays, so that a later run finds it.
                    Err(RigError::Engine(error)) => {
                        tracing::warn!(%error, id = row.id, "its container was not removed");
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            report.contexts.push(row.id);
        }
        report.containers = remove_strays(&self.home, options.dry_run)?;
        self.home.collect(options, &mut report)?;
        Ok(report)
    }

    /// The settings' own limits for [`Rig::gc`].
    pub fn gc_options(&self) -> GcOptions {
        GcOptions { max_age: self.settings.duration("gc.max_age"), max_size: self.settings.bytes("gc.max_size"), dry_run: false }
    }
}
