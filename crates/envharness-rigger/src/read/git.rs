//! git, asked so that nothing of a repository's own configuration runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::RiggerError;

fn git(args: &[&str], cwd: Option<&Path>) -> Command {
    let mut command = Command::new("git");
    for setting in
        ["core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "log.showSignature=false", "protocol.ext.allow=never"]
    {
        command.args(["-c", setting]);
    }
    command.args(args).env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").stdin(Stdio::null());
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    command
}

/// The day of the last commit of the repository that a folder is the top of.
pub(super) fn last_commit(folder: &Path) -> Option<String> {
    if !folder.join(".git").exists() {
        return None;
    }
    let mut command = git(&["log", "-1", "--no-ext-diff", "--format=%cs"], Some(folder));
    // A clone with parts left out fetches what is asked for, by whatever program its configuration names.
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
    let output = command.stderr(Stdio::null()).output().ok()?;
    let day = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (day.len() == 10).then_some(day)
}

/// Clones into a folder of the repository's name below the current one.
pub(super) fn clone(address: &str) -> Result<PathBuf, RiggerError> {
    let failed = |reason: String, hint: &str| RiggerError::Target { target: address.to_owned(), reason, hint: Some(hint.to_owned()) };
    let (address, revision) = split_revision(address);
    if revision.is_some_and(|revision| revision.starts_with('-')) {
        return Err(failed("its revision begins with `-`".into(), "name a branch, a tag or a commit"));
    }
    let name = address.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or("task").trim_end_matches(".git").to_owned();
    if name.is_empty() || name.starts_with(['.', '-']) || address.starts_with('-') {
        return Err(failed("it names no repository".into(), "as in `git+https://example.org/a/b.git`"));
    }
    let folder = std::path::absolute(&name).unwrap_or_else(|_| PathBuf::from(&name));
    if folder.exists() {
        return Err(failed(format!("the folder `{name}` is there already"), "rig the folder itself, or remove it first"));
    }
    let mut args = vec!["clone", "--quiet", "--no-recurse-submodules"];
    if revision.is_none() {
        args.extend(["--depth", "1"]);
    }
    args.extend(["--", address, &name]);
    run(git(&args, None), address)?;
    if let Some(revision) = revision {
        let checked_out = run(git(&["checkout", "--quiet", "--detach", revision], Some(&folder)), address);
        if checked_out.is_err() {
            // Or the next try would be told that the folder is there.
            let _ = std::fs::remove_dir_all(&folder);
        }
        checked_out?;
    }
    Ok(folder)
}

fn run(mut command: Command, address: &str) -> Result<(), RiggerError> {
    let failed = |reason: String| RiggerError::Target {
        target: address.to_owned(),
        reason,
        hint: Some("check the address and your access to it with `git clone`".into()),
    };
    let output = command.output().map_err(|error| failed(format!("git cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("git failed: {}", said.lines().last().unwrap_or("without a word"))))
}

/// `address@revision`, as pip has it.
fn split_revision(address: &str) -> (&str, Option<&str>) {
    let path_starts = address.find("://").map_or(0, |at| at + 3);
    match address[path_starts..].rfind('@') {
        Some(at) if address[path_starts..at + path_starts].contains('/') && !address[path_starts + at..].contains(['/', ':']) => {
            (&address[..path_starts + at], Some(&address[path_starts + at + 1..]))
        }
        _ => (address, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions() {
        assert_eq!(split_revision("https://example.org/a/b.git@v1"), ("https://example.org/a/b.git", Some("v1")));
        assert_eq!(split_revision("git@example.org:a/b.git"), ("git@example.org:a/b.git", None));
        assert_eq!(split_revision("ssh://git@example.org/a/b"), ("ssh://git@example.org/a/b", None));
    }
}
