//! What the activation scripts of a prefix set: run once, kept beside the prefix, given to every process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use envharness_store::{Home, read_text, write_atomic};
use serde::{Deserialize, Serialize};

use crate::error::RigError;
use crate::process::{self, Input, RunLimits};
use crate::settings::Settings;

/// The variables that a prefix's packages want in its processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Activation {
    /// Variables and their values.
    pub set: BTreeMap<String, String>,
    /// Variables that the scripts take away.
    pub unset: Vec<String>,
    /// Folders before the prefix's own `bin`.
    pub path: Vec<String>,
}

/// A script that computes a few variables needs no longer.
const LIMIT: Duration = Duration::from_secs(60);
/// Between the variables before and after.
const MARK: &str = "--envharness-after--";
/// What the shell itself changes.
const SHELL: [&str; 8] = ["_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV", "ENVHARNESS_RUN", "PS1", "IFS"];

/// The activation of a published prefix: what was computed before, else computed now.
///
/// # Errors
/// [`RigError::Program`] when a script fails, with what it printed.
pub(crate) fn activation_of(home: &Home, settings: &Settings, key: &str, prefix: &Path) -> Result<Activation, RigError> {
    if scripts_of(prefix).is_empty() {
        return compute(settings, prefix);
    }
    let kept = home.record(key, "activation");
    if let Some(known) = read_text(&kept)?.and_then(|text| serde_json::from_str(&text).ok()) {
        return Ok(known);
    }
    let out = compute(settings, prefix)?;
    write_atomic(&kept, serde_json::to_string(&out).unwrap_or_default().as_bytes())?;
    Ok(out)
}

/// The activation of a prefix that nobody published.
///
/// # Errors
/// [`RigError::Program`] when a script fails, with what it printed.
pub(crate) fn compute(settings: &Settings, prefix: &Path) -> Result<Activation, RigError> {
    let scripts = scripts_of(prefix);
    let mut out = Activation { set: variables_of(prefix), ..Activation::default() };
    if !scripts.is_empty() {
        run(settings, prefix, &scripts, &mut out)?;
    }
    Ok(out)
}

/// `etc/conda/activate.d/*.sh`, in the order conda runs them.
fn scripts_of(prefix: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(prefix.join("etc/conda/activate.d")).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "sh"));
    let mut out: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    out.sort();
    out
}

/// `etc/conda/env_vars.d/*.json` and `conda-meta/state`: plain variables; later files count more.
fn variables_of(prefix: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(prefix.join("etc/conda/env_vars.d")).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    files.push(prefix.join("conda-meta/state"));
    let mut out = BTreeMap::new();
    for file in files {
        let Some(value) = std::fs::read_to_string(file).ok().and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok()) else {
            continue;
        };
        let table = value.get("env_vars").unwrap_or(&value).as_object().cloned().unwrap_or_default();
        out.extend(table.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))));
    }
    out
}

/// Sources the scripts in one clean shell and takes the difference.
fn run(settings: &Settings, prefix: &Path, scripts: &[String], out: &mut Activation) -> Result<(), RigError> {
    let bin = prefix.join("bin").display().to_string();
    // Each script is an argument, so that no name is ever read as shell.
    let line = format!("env -0; printf '%s\\0' '{MARK}'; for script; do . \"$script\" >&2 || exit 1; done; env -0");
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
    let mut command = Command::new(shell);
    command.args(["-c", &line, "envharness-activate"]).args(scripts).env_clear();
    command.env("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin")).env("HOME", settings.variable("HOME").unwrap_or("/"));
    command.env("CONDA_PREFIX", prefix).env("CONDA_DEFAULT_ENV", prefix).env("CONDA_SHLVL", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    command.envs(&out.set).env("ENVHARNESS_RUN", marker.trim_start_matches("ENVHARNESS_RUN="));
    let limits = RunLimits { timeout: Some(LIMIT), no_output: None };
    let ran = process::run(&mut command, &marker, None, Input::Closed, limits, &mut |_, _| {}, &|| false, &mut |_| {})?;
    if ran.exit_code != 0 {
        let output = String::from_utf8_lossy(&ran.logs).replace('\0', "\n");
        return Err(RigError::Program { program: "sh", action: "run the activation scripts of conda packages".into(), output });
    }
    difference(&String::from_utf8_lossy(&ran.stdout), &bin, out);
    Ok(())
}

/// What is set, taken away and put on PATH between two prints of `env -0`.
fn difference(text: &str, bin: &str, out: &mut Activation) {
    let (before, after) = text.split_once(&format!("{MARK}\0")).unwrap_or((text, text));
    let table = |text: &str| -> BTreeMap<String, String> {
        text.split('\0').filter_map(|entry| entry.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let (before, after) = (table(before), table(after));
    for (name, value) in &after {
        if name == "PATH" {
            let own = value.split(':').take_while(|folder| folder != &bin);
            out.path = own.filter(|folder| !folder.is_empty()).map(str::to_owned).collect();
        } else if !SHELL.contains(&name.as_str()) && before.get(name) != Some(value) {
            out.set.insert(name.clone(), value.clone());
        }
    }
    out.unset = before.keys().filter(|name| !after.contains_key(*name) && !SHELL.contains(&name.as_str())).cloned().collect();
    for name in &out.unset {
        out.set.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_environments_is_taken() {
        let before = "PATH=/p/bin:/usr/bin\0HOME=/h\0GONE=1\0SHLVL=1\0";
        let after = "PATH=/p/extra:/p/bin:/usr/bin\0HOME=/h\0NEW=a=b\nc\0SHLVL=2\0";
        let mut out = Activation::default();
        difference(&format!("{before}{MARK}\0{after}"), "/p/bin", &mut out);
        assert_eq!(out.set, BTreeMap::from([("NEW".to_owned(), "a=b\nc".to_owned())]));
        assert_eq!((out.unset, out.path), (vec!["GONE".to_owned()], vec!["/p/extra".to_owned()]));
    }
}
