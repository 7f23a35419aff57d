//! `lock`, `sync` and `compile`.

use envharness_rig::{Upgrade, counted};
use envharness_spec::Platform;
use serde_json::json;

use super::{Ended, Session, lock_request, platforms};
use crate::args::{LockArgs, SyncArgs, WarmArgs};
use crate::exit;

pub(super) fn lock(session: &Session, args: &LockArgs) -> Ended {
    let spec = session.spec(args.spec.as_deref())?;
    let mut request = lock_request(&args.lock);
    request.upgrade = Upgrade { all: args.upgrade, packages: args.upgrade_package.clone() };
    request.platforms = platforms(&args.platform)?;
    let lock = session.rig.lock(&spec, &request, &session.reporter)?;
    session.reporter.finish();
    let path = session.rig.lock_path(&spec);
    if session.printer.is_json() {
        let packages: Vec<_> = lock.packages.iter().map(|p| json!({ "name": p.name, "version": p.version, "via": p.via })).collect();
        session.printer.json(&json!({
            "schema": 1,
            "path": path,
            "spec_digest": spec.digest().to_string(),
            "lock_digest": lock.digest().to_string(),
            "python": { "version": lock.python.version, "reason": lock.python.reason },
            "platforms": lock.platforms.iter().map(Platform::as_str).collect::<Vec<_>>(),
            "packages": packages,
        }));
    } else {
        let count = counted(lock.packages.len(), "package");
        session.printer.done(&format!("Locked {count} for Python {} in {}", lock.python.version, path.display()));
    }
    Ok(exit::OK)
}

pub(super) fn sync(session: &Session, args: &SyncArgs) -> Ended {
    let started = std::time::Instant::now();
    let spec = session.spec(args.spec.as_deref())?;
    let synced = session.rig.sync(&spec, &lock_request(&args.lock), &session.reporter)?;
    session.reporter.finish();
    if session.printer.is_json() {
        session.printer.json(&json!({
            "schema": 1,
            "key": synced.key,
            "prefix": synced.path,
            "python": synced.python,
            "packages": synced.lock.packages.len(),
        }));
    } else {
        let (count, millis) = (counted(synced.lock.packages.len(), "package"), started.elapsed().as_millis());
        session.printer.done(&format!("Synced {count} in {millis}ms to {}", synced.path.display()));
    }
    Ok(exit::OK)
}

pub(super) fn warm(session: &Session, args: &WarmArgs) -> Ended {
    let started = std::time::Instant::now();
    let spec = session.spec(args.spec.as_deref())?;
    let made = session.rig.warm(&spec, args.count, &lock_request(&args.lock), &session.reporter)?;
    session.reporter.finish();
    if session.printer.is_json() {
        session.printer.json(&json!({ "schema": 1, "made": made, "idle": args.count.max(made) }));
    } else {
        session.printer.done(&format!("Made {} in {}ms", counted(made, "idle context"), started.elapsed().as_millis()));
    }
    Ok(exit::OK)
}

pub(super) fn compile(session: &Session, args: &SyncArgs) -> Ended {
    let started = std::time::Instant::now();
    let spec = session.spec(args.spec.as_deref())?;
    let added = session.rig.compile(&spec, &lock_request(&args.lock), &session.reporter)?;
    session.reporter.finish();
    if session.printer.is_json() {
        session.printer.json(&json!({ "schema": 1, "added": added }));
    } else {
        session.printer.done(&format!("Added {} in {}ms", counted(added, "byte-code file"), started.elapsed().as_millis()));
    }
    Ok(exit::OK)
}
