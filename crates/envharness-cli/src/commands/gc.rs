//! `gc`.

use envharness_rig::counted;
use envharness_spec::human_bytes;
use envharness_store::GcOptions;
use serde_json::json;

use super::{Ended, Session, duration};
use crate::args::GcArgs;
use crate::exit;

pub(super) fn run(session: &Session, args: &GcArgs) -> Ended {
    let defaults = session.rig.gc_options();
    let max_size = match &args.max_size {
        Some(text) => {
            Some(envharness_spec::parse_bytes(text).ok_or_else(|| anyhow::anyhow!("`--max-size {text}` is not a size such as 20G"))?)
        }
        None => defaults.max_size,
    };
    let max_age = duration("--max-age", args.max_age.as_ref())?.or(defaults.max_age);
    let report = session.rig.gc(GcOptions { max_age, max_size, dry_run: args.dry_run })?;
    if session.printer.is_json() {
        session.printer.json(&json!({
            "schema": 1,
            "dry_run": args.dry_run,
            "contexts": report.contexts,
            "containers": report.containers,
            "prefixes": report.prefixes,
            "bytes": report.bytes,
            "leftovers": report.leftovers,
            "in_use": report.in_use,
        }));
        return Ok(exit::OK);
    }
    for id in report.contexts.iter().chain(&report.containers).chain(&report.prefixes) {
        session.printer.data(id);
    }
    let verb = if args.dry_run { "Would remove" } else { "Removed" };
    session.printer.done(&format!(
        "{verb} {}, {} ({}), {}; in use: {}",
        counted(report.contexts.len(), "context"),
        counted(report.prefixes.len(), "environment"),
        human_bytes(report.bytes),
        counted(report.leftovers, "leftover"),
        report.in_use
    ));
    Ok(exit::OK)
}
