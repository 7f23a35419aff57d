//! `store dir | size | verify | clean`.

use envharness_rig::{RigError, counted};
use envharness_spec::human_bytes;
use envharness_store::{GcOptions, GcReport, tree_size};
use serde_json::json;

use super::{Ended, Session};
use crate::args::StoreCommand;
use crate::exit;

pub(super) fn run(session: &Session, command: &StoreCommand) -> Ended {
    match command {
        StoreCommand::Dir => {
            session.printer.data(&session.rig.home.root().display().to_string());
            Ok(exit::OK)
        }
        StoreCommand::Size => size(session),
        StoreCommand::Verify { keys, quick, repair } => verify(session, keys, *quick, *repair),
        StoreCommand::Clean { yes } => clean(session, *yes),
    }
}

fn size(session: &Session) -> Ended {
    let home = &session.rig.home;
    let rows = home.prefix_rows().map_err(RigError::from)?;
    let shares = [
        ("prefixes", home.prefixes()),
        ("byte-code", home.bytecode()),
        ("contexts", home.root().join("contexts")),
        ("images", home.root().join("images")),
        ("quarantine", home.quarantine()),
        ("downloads", home.cache().to_owned()),
    ];
    let shares: Vec<(&str, u64, u64)> =
        shares.iter().map(|(name, path)| (*name, tree_size(path))).map(|(name, (bytes, files))| (name, bytes, files)).collect();
    if session.printer.is_json() {
        let prefixes: Vec<_> = rows
            .iter()
            .map(|row| json!({ "key": row.meta.key, "python": row.meta.python, "packages": row.meta.packages, "files": row.files, "bytes": row.bytes, "contexts": row.contexts, "used": row.used }))
            .collect();
        let shares: Vec<_> = shares.iter().map(|(name, bytes, files)| json!({ "name": name, "bytes": bytes, "files": files })).collect();
        session.printer.json(&json!({ "schema": 1, "home": home.root(), "prefixes": prefixes, "shares": shares }));
        return Ok(exit::OK);
    }
    let mut table: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.meta.key.clone(),
                human_bytes(row.bytes),
                row.files.to_string(),
                row.meta.packages.to_string(),
                row.contexts.to_string(),
            ]
        })
        .collect();
    table.reverse();
    session.printer.table(&["PREFIX", "SIZE", "FILES", "PACKAGES", "CONTEXTS"], &table);
    session.printer.data("");
    let shares: Vec<Vec<String>> =
        shares.iter().map(|(name, bytes, files)| vec![(*name).to_owned(), human_bytes(*bytes), files.to_string()]).collect();
    session.printer.table(&["SHARE", "SIZE", "FILES"], &shares);
    session.printer.note("Files that prefixes share with each other and with the downloads are counted in each.");
    Ok(exit::OK)
}

fn verify(session: &Session, keys: &[String], quick: bool, repair: bool) -> Ended {
    let home = &session.rig.home;
    let known: Vec<String> = home.prefix_rows().map_err(RigError::from)?.into_iter().map(|row| row.meta.key).collect();
    let chosen: Vec<String> = if keys.is_empty() {
        known.clone()
    } else {
        let find = |given: &String| {
            known
                .iter()
                .find(|key| key.starts_with(given))
                .cloned()
                .ok_or_else(|| anyhow::anyhow!("no environment `{given}` is in the store"))
        };
        keys.iter().map(find).collect::<Result<_, _>>()?
    };
    let mut reports = Vec::new();
    let mut broken = 0;
    for key in &chosen {
        let report = home.verify_prefix(key, !quick).map_err(RigError::from)?;
        if !report.faults.is_empty() {
            broken += 1;
            if repair {
                home.repair_prefix(key).map_err(RigError::from)?;
            } else if !quick {
                home.distrust_prefix(key).map_err(RigError::from)?;
            }
        }
        if !session.printer.is_json() {
            let word = if report.faults.is_empty() { "ok" } else { "BROKEN" };
            session.printer.data(&format!("{key}  {word}  {} files", report.files));
            for fault in report.faults.iter().take(20) {
                session.printer.data(&format!("  {fault}"));
            }
        }
        let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        reports.push(json!({ "key": key, "files": report.files, "faults": faults }));
    }
    let database = home.check_database().map_err(RigError::from)?;
    if session.printer.is_json() {
        session.printer.json(&json!({ "schema": 1, "prefixes": reports, "broken": broken, "database": database }));
    } else {
        for line in &database {
            session.printer.data(&format!("state.db  BROKEN  {line}"));
        }
        session.printer.done(&format!("Verified {}, {broken} broken", counted(chosen.len(), "environment")));
        if broken > 0 {
            session.printer.note("The next create puts a broken one aside and builds it anew; `--repair` does so at once.");
        }
    }
    Ok(if broken == 0 && database.is_empty() { exit::OK } else { exit::FAILED })
}

fn clean(session: &Session, yes: bool) -> Ended {
    let question = format!("Remove every environment in {} that is not in use?", session.rig.home.root().display());
    if !yes && !session.printer.confirm(&question) {
        anyhow::bail!("nothing was removed; give --yes to remove without a question");
    }
    for row in session.rig.home.contexts().map_err(RigError::from)? {
        if !session.rig.home.is_held(&row.id) {
            session.rig.destroy(&row.id, false)?;
        }
    }
    let mut report = GcReport::default();
    let all = GcOptions { max_size: Some(0), max_age: Some(std::time::Duration::ZERO), dry_run: false };
    session.rig.home.collect(all, &mut report).map_err(RigError::from)?;
    envharness_store::remove_tree(&session.rig.home.bytecode())?;
    std::fs::create_dir_all(session.rig.home.bytecode())?;
    session.printer.done(&format!(
        "Removed {} ({}); in use: {}",
        counted(report.prefixes.len(), "environment"),
        human_bytes(report.bytes),
        report.in_use
    ));
    Ok(if report.in_use == 0 { exit::OK } else { exit::FAILED })
}
