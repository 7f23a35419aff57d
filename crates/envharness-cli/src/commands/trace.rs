//! `trace show`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Ended;
use crate::args::TraceCommand;
use crate::exit;
use crate::printer::Printer;

/// The longest piece of an observation that is shown to a person.
const MOST_SHOWN: usize = 160;

pub(super) fn run(printer: Printer, command: &TraceCommand) -> Ended {
    let TraceCommand::Show { path, session } = command;
    let mut found = 0;
    for file in files(path)? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if session.as_ref().is_some_and(|wanted| !name.starts_with(wanted.as_str())) {
            continue;
        }
        found += 1;
        show(printer, &file)?;
    }
    match (found, session) {
        (0, Some(wanted)) => anyhow::bail!("{} has no trace of a session `{wanted}`", path.display()),
        (0, None) => anyhow::bail!("{} has no traces; `envharness serve --trace DIR` writes them", path.display()),
        _ => Ok(exit::OK),
    }
}

fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        anyhow::ensure!(path.is_file(), "there is no {}", path.display());
        return Ok(vec![path.to_owned()]);
    }
    let mut files: Vec<PathBuf> = fs::read_dir(path)?.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "jsonl"));
    files.sort_by_key(|file| fs::metadata(file).and_then(|m| m.modified()).ok());
    Ok(files)
}

fn show(printer: Printer, file: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(file)?;
    let mut began = None;
    for (number, line) in text.lines().enumerate() {
        if printer.is_json() {
            printer.data(line);
            continue;
        }
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            // The last line of a server that was killed may be half a one.
            printer.warning(&format!("{}:{}: not a whole event", file.display(), number + 1), None);
            continue;
        };
        let time = event["time"].as_f64().unwrap_or_default();
        let since = time - *began.get_or_insert(time);
        printer.data(&format!("{since:9.3} s  {}", sentence(&event)));
    }
    Ok(())
}

fn sentence(event: &Value) -> String {
    let short = |value: &Value| {
        let text = value.to_string();
        if text.chars().count() > MOST_SHOWN { text.chars().take(MOST_SHOWN).collect::<String>() + "…" } else { text }
    };
    let kind = event["event"].as_str().unwrap_or("?");
    match kind {
        "open" => {
            let lock = event["lock"].as_str().map_or_else(String::new, |lock| format!(", lock {lock}"));
            format!("session {} of {}, contract {}{lock}", text(&event["session"]), text(&event["env"]), text(&event["contract"]))
        }
        "output" => format!("{}: {}", text(&event["stream"]), text(&event["text"])),
        "close" => "closed".to_owned(),
        _ => {
            let reply = &event["reply"];
            let answer = match (&reply["data"]["code"], &reply["observation"], &reply["code"]) {
                (Value::String(code), ..) => format!("{code}: {}", text(&reply["data"]["message"])),
                (_, Value::Null, Value::String(code)) => format!("{code}: {}", text(&reply["message"])),
                (_, Value::Null, _) => short(reply),
                (_, observation, _) => {
                    let done = if reply["done"] == true { ", done" } else { "" };
                    format!("reward {}{done}, {}", short(&reply["reward"]), short(observation))
                }
            };
            format!("{kind} {} -> {answer}", short(&event["data"]))
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
