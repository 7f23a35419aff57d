//! `dockerfile:`: an image built by the engine.

use std::collections::BTreeMap;
use std::path::Path;

use envharness_engine::{Engine, label};
use envharness_spec::{Lock, LockedImage, Spec};
use envharness_store::Home;

use super::resolve::context_digest;
use super::{Waiting, home_label};
use crate::error::{IoContext as _, RigError};
use crate::event::Event;

/// More than a build's context needs; a `.dockerignore` is missing then.
const MOST_CONTEXT: u64 = 2 << 30;

/// The image that a Dockerfile makes of its folder, built once for each content of it.
pub(crate) fn from_dockerfile(
    engine: &Engine,
    home: &Home,
    spec: &Spec,
    dockerfile: &str,
    call: &Waiting<'_>,
) -> Result<LockedImage, RigError> {
    let path = crate::source_tree::absolute(dockerfile, &spec.base.clone().unwrap_or_default());
    let (folder, file) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    if !path.is_file() {
        let hint = Some("a relative path begins at the spec's folder".to_owned());
        return Err(RigError::Context { id: spec.name.clone(), reason: format!("names `{}`, which is not there", path.display()), hint });
    }
    let tar = context(folder, &file)?;
    let digest = context_digest(&tar, &file);
    let name = format!("envharness/{}:{}", spec.name.trim_matches(['.', '_', '-']), &digest.hex()[..16]);
    if engine.image(&name, call)?.is_none() {
        let labels = BTreeMap::from([(label::HOME.to_owned(), home_label(home)?), (label::ROLE.to_owned(), "build".to_owned())]);
        let mut printed = Vec::new();
        let mut line = |text: &str| {
            call.reporter.event(&Event::Imaging { what: format!("Building {name}: {text}") });
            printed.push(text.to_owned());
        };
        let built = engine.build(tar, &file, &name, &labels, &mut line, call);
        built.map_err(|error| match error {
            envharness_engine::EngineError::Refused { reason, .. } => {
                let output = printed.iter().rev().take(40).rev().cloned().chain([reason]).collect::<Vec<_>>().join("\n");
                RigError::Program { program: "the engine", action: format!("build `{}`", path.display()), output }
            }
            other => other.into(),
        })?;
    }
    let missing = || envharness_engine::EngineError::NoImage { kind: engine.kind(), name: name.clone(), pull: None };
    let facts = engine.image(&name, call)?.ok_or_else(missing)?;
    Ok(LockedImage { name, id: facts.id, context: Some(digest), ..LockedImage::default() })
}

/// Why a lock no longer answers what its image is built from.
pub(crate) fn changed_context(lock: &Lock, spec: &Spec) -> Result<Option<String>, RigError> {
    let locked = lock.image.as_ref().and_then(|image| image.context.as_ref());
    let (Some(locked), Some(dockerfile)) = (locked, &spec.dockerfile) else { return Ok(None) };
    let path = crate::source_tree::absolute(dockerfile, &spec.base.clone().unwrap_or_default());
    let (folder, file) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let same = path.is_file() && context_digest(&context(folder, &file)?, &file) == *locked;
    Ok((!same).then(|| format!("what `{dockerfile}` builds from changed")))
}

/// A folder as the tar of a build, without what `.dockerignore` names. The same folder gives the same bytes.
fn context(folder: &Path, dockerfile: &str) -> Result<Vec<u8>, RigError> {
    let ignored = ignored(folder);
    // What a later line takes back may lie in a folder that an earlier one takes out.
    let takes_back = ignored.iter().any(|(_, back)| *back);
    let mut builder = tar::Builder::new(Vec::new());
    builder.mode(tar::HeaderMode::Deterministic);
    builder.follow_symlinks(false);
    let mut bytes = 0;
    let entries = walkdir::WalkDir::new(folder).min_depth(1).sort_by_file_name().into_iter().filter_entry(|entry| {
        let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path()).display().to_string();
        relative == dockerfile || takes_back && entry.file_type().is_dir() || !is_ignored(&ignored, &relative)
    });
    for entry in entries {
        let entry = entry.map_err(|error| RigError::Io { action: "read", path: folder.to_owned(), source: error.into() })?;
        let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let kind = entry.file_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            continue;
        }
        bytes += entry.metadata().map_or(0, |metadata| metadata.len());
        if bytes > MOST_CONTEXT {
            let hint = Some("name what the build does not need in `.dockerignore`".to_owned());
            let reason = "is more than 2 GiB, too much for the context of a build".to_owned();
            return Err(RigError::Context { id: folder.display().to_string(), reason, hint });
        }
        builder.append_path_with_name(entry.path(), relative).on("read", entry.path())?;
    }
    builder.into_inner().on("pack", folder)
}

/// The patterns of `.dockerignore` in their order, with whether each takes back.
fn ignored(folder: &Path) -> Vec<(String, bool)> {
    let text = std::fs::read_to_string(folder.join(".dockerignore")).unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (line, back) = line.strip_prefix('!').map_or((line, false), |rest| (rest, true));
            (line.trim_matches('/').trim_start_matches("./").to_owned(), back)
        })
        .collect()
}

/// Whether the last pattern that fits a path takes it out; what fits a folder fits all in it.
fn is_ignored(patterns: &[(String, bool)], path: &str) -> bool {
    let fits = |pattern: &str| path.match_indices('/').map(|(at, _)| &path[..at]).chain([path]).any(|part| glob(pattern, part));
    patterns.iter().rev().find(|(pattern, _)| fits(pattern)).is_some_and(|(_, back)| !back)
}

/// `*` is anything but a slash, `**/` any folders, `?` one character.
fn glob(pattern: &str, text: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**/") {
        return glob(rest, text) || text.match_indices('/').any(|(at, _)| glob(rest, &text[at + 1..]));
    }
    let mut left = pattern.chars();
    match left.next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = left.as_str();
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.take_while(|at| !text[..*at].contains('/')).any(|at| glob(rest, &text[at..]))
        }
        Some(wanted) => {
            let mut have = text.chars();
            have.next().is_some_and(|c| (c == wanted || wanted == '?' && c != '/') && glob(left.as_str(), have.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dockerignore_takes_out_and_takes_back() {
        let patterns: Vec<(String, bool)> =
            [("*.log", false), ("build", false), ("**/*.pyc", false), ("keep.log", true)].map(|(p, back)| (p.to_owned(), back)).into();
        for (path, out) in [
            ("a.log", true),
            ("keep.log", false),
            ("sub/a.log", false),
            ("build/x/y", true),
            ("a/b/c.pyc", true),
            ("c.pyc", true),
            ("src/main.py", false),
        ] {
            assert_eq!(is_ignored(&patterns, path), out, "{path}");
        }
    }
}
