//! `config show` and `completions`.

use envharness_rig::{SETTINGS, Settings};
use serde_json::json;

use crate::exit;
use crate::printer::Printer;

/// An address without the password in it.
fn without_password(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    match rest.split('/').next().and_then(|authority| authority.rsplit_once('@')) {
        Some((user, _)) => format!("{scheme}://****{}", &rest[user.len()..]),
        None => value.to_owned(),
    }
}

pub(super) fn show(settings: &Settings, printer: Printer) -> i32 {
    if printer.is_json() {
        let values: serde_json::Map<String, serde_json::Value> = settings
            .values
            .iter()
            .map(|(key, (value, source))| (key.clone(), json!({ "value": without_password(value), "source": source.to_string() })))
            .collect();
        printer.json(&json!({ "schema": 1, "settings": values }));
        return exit::OK;
    }
    let rows: Vec<Vec<String>> = SETTINGS
        .iter()
        .filter_map(|(key, ..)| settings.values.get(*key).map(|(value, source)| (key, value, source)))
        .map(|(key, value, source)| {
            vec![
                (*key).to_owned(),
                if value.is_empty() { "-".into() } else { value.lines().map(without_password).collect::<Vec<_>>().join(" ") },
                source.to_string(),
            ]
        })
        .collect();
    printer.table(&["SETTING", "VALUE", "FROM"], &rows);
    exit::OK
}

/// The script that asks this program for candidates, so that ids are completed too.
pub(super) fn completions(shell: clap_complete::Shell, printer: Printer) -> i32 {
    let line = match shell {
        clap_complete::Shell::Fish => "COMPLETE=fish envharness | source",
        clap_complete::Shell::Elvish => "eval (E:COMPLETE=elvish envharness | slurp)",
        clap_complete::Shell::PowerShell => {
            "$env:COMPLETE = \"powershell\"; envharness | Out-String | Invoke-Expression; Remove-Item Env:\\COMPLETE"
        }
        clap_complete::Shell::Zsh => "source <(COMPLETE=zsh envharness)",
        _ => "source <(COMPLETE=bash envharness)",
    };
    printer.data(line);
    exit::OK
}
