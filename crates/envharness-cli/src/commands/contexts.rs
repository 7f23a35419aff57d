//! `list`, `inspect`, `logs` and `rm`.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use envharness_rig::{Reporter as _, counted};
use envharness_store::now;
use serde_json::{Value, json};

use super::{Ended, Session};
use crate::args::{LogsArgs, OutputFormat, RmArgs};
use crate::exit;
use crate::printer::human_age;

pub(super) fn list(session: &Session) -> Ended {
    let contexts = session.rig.list()?;
    let printer = session.printer;
    let documents: Vec<Value> = contexts
        .iter()
        .map(|context| {
            json!({
                "id": context.row.id, "name": context.row.name, "backend": context.row.backend, "state": context.state.as_str(),
                "owner": context.row.origin.as_str(), "created": context.row.created, "used": context.row.used,
                "expires": context.row.expires, "prefix_key": context.row.prefix, "processes": context.processes,
            })
        })
        .collect();
    match printer.format {
        OutputFormat::Json => printer.json(&json!({ "schema": 1, "contexts": documents })),
        OutputFormat::Jsonl => documents.iter().for_each(|document| printer.json(document)),
        OutputFormat::Text if contexts.is_empty() => printer.note("No contexts; `envharness create SPEC` makes one"),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = contexts
                .iter()
                .map(|c| {
                    vec![
                        c.row.id.clone(),
                        c.row.backend.clone(),
                        c.state.as_str().to_owned(),
                        c.row.origin.as_str().to_owned(),
                        human_age(now() - c.row.created),
                        human_age(now() - c.row.used),
                        c.processes.len().to_string(),
                    ]
                })
                .collect();
            printer.table(&["ID", "BACKEND", "STATE", "OWNER", "AGE", "USED", "PROCESSES"], &rows);
        }
    }
    Ok(exit::OK)
}

pub(super) fn inspect(session: &Session, id: &str) -> Ended {
    let document = session.rig.inspect(id)?;
    if session.printer.is_json() {
        session.printer.json(&document);
        return Ok(exit::OK);
    }
    let Value::Object(map) = &document else { return Ok(exit::OK) };
    for (key, value) in map.iter().filter(|(key, value)| *key != "schema" && !value.is_null()) {
        match value {
            Value::String(text) => session.printer.data(&format!("{key}: {text}")),
            Value::Array(limits) if key == "limits" => {
                session.printer.data("limits:");
                for limit in limits {
                    let text = |key: &str| limit[key].as_str().unwrap_or_default().to_owned();
                    session.printer.data(&format!("  {}: {} (enforced by {})", text("name"), text("value"), text("enforced_by")));
                }
            }
            other => session.printer.data(&format!("{key}: {other}")),
        }
    }
    Ok(exit::OK)
}

pub(super) fn logs(session: &Session, args: &LogsArgs) -> Ended {
    let path = match session.rig.home.find_context(&args.id) {
        Ok(row) => session.rig.home.log(&row.id),
        // A context that is gone may have left its log.
        Err(error) => Some(session.rig.home.log(&args.id)).filter(|path| path.is_file()).ok_or(envharness_rig::RigError::from(error))?,
    };
    let mut shown = 0;
    if let Ok(mut file) = File::open(&path) {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        shown = text.len() as u64;
        let start = args.tail.map_or(0, |lines| tail_start(&text, lines));
        session.printer.bytes(&text[start..]);
    }
    while args.follow && !session.reporter.interrupted() && session.rig.home.find_context(&args.id).is_ok() {
        std::thread::sleep(Duration::from_millis(200));
        let Ok(mut file) = File::open(&path) else { continue };
        let length = file.metadata()?.len();
        if length < shown {
            shown = 0;
        }
        if length > shown {
            file.seek(SeekFrom::Start(shown))?;
            let mut text = Vec::new();
            shown += file.read_to_end(&mut text)? as u64;
            session.printer.bytes(&text);
        }
    }
    Ok(exit::OK)
}

fn tail_start(text: &[u8], lines: usize) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    if lines == 0 { text.len() } else { newlines.map(|(at, _)| at + 1).nth(lines - 1).unwrap_or(0) }
}

pub(super) fn rm(session: &Session, args: &RmArgs) -> Ended {
    let ids: Vec<String> = if args.all {
        session.rig.home.contexts()?.into_iter().map(|row| row.id).filter(|id| args.force || !session.rig.home.is_held(id)).collect()
    } else {
        args.ids.clone()
    };
    if args.all && !args.yes && !ids.is_empty() && !session.printer.confirm(&format!("Remove {}?", counted(ids.len(), "context"))) {
        anyhow::bail!("nothing was removed; give --yes to remove without a question");
    }
    let mut code = exit::OK;
    let mut removed = Vec::new();
    for id in ids {
        match session.rig.destroy(&id, args.force) {
            Ok(id) => removed.push(id),
            Err(error) => {
                session.printer.rig_error(&error);
                code = exit::code_of(&error);
            }
        }
    }
    if session.printer.is_json() {
        session.printer.json(&json!({ "schema": 1, "removed": removed }));
    } else {
        for id in &removed {
            session.printer.data(id);
        }
    }
    Ok(code)
}
