//! Whether a distribution provides a module, by what its wheel recorded when it was installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use envharness_rig::{LockRequest, Quiet, Rig};
use envharness_spec::{Requirement, Spec};

use crate::decide::current_python;
use crate::evidence::Evidence;
use crate::plan::{Origin, Plan};
use crate::table::normal;
use crate::world::World;

/// Whether the RECORD of an installed distribution holds a module.
pub(crate) fn provides(site_packages: &Path, distribution: &str, module: &str) -> Option<bool> {
    let record = records(site_packages).into_iter().find(|(name, _)| name == distribution).map(|(_, text)| text)?;
    let inside = |line: &str| {
        let line = line.trim_start_matches('"');
        line.strip_prefix(module).is_some_and(|rest| rest.starts_with(['/', '.']))
    };
    Some(record.lines().any(inside))
}

fn records(site_packages: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(site_packages).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let distribution = normal(name.strip_suffix(".dist-info")?.rsplit_once('-')?.0);
            Some((distribution, fs::read_to_string(entry.path().join("RECORD")).ok()?))
        })
        .collect()
}

/// What became of a distribution that only has the name of its module.
pub(crate) enum Proof {
    /// The newest release that has a wheel holds all that the task uses of it: its version.
    Given(String),
    /// The newest does not, and a release of the task's own time does: its version.
    Older(String),
    /// It is not what is meant, as far as anybody can tell.
    Refused(String),
}

/// Lets distributions that only have the name of their module prove themselves, each by itself and from a wheel alone, so that
/// nothing of theirs runs: name, module and what became of it.
pub(crate) fn own_names(
    rig: &Rig,
    plan: &Plan,
    evidence: &Evidence,
    world: &World,
    interrupted: &dyn Fn() -> bool,
) -> Vec<(String, String, Proof)> {
    let unproved = plan.packages.iter().filter(|(_, wanted)| wanted.origin == Origin::OwnName);
    let mut out = Vec::new();
    for (name, wanted) in unproved {
        let Some(module) = wanted.module.clone().filter(|_| !interrupted()) else { continue };
        let mut proof = prove(rig, plan, evidence, name, &module, None);
        // What later releases lost, one of the task's own time may have had.
        let day = evidence.dates.iter().map(|date| date.day.as_str()).max().filter(|_| plan.exclude_newer.is_none());
        if let (Proof::Refused(_), Some(day)) = (&proof, day)
            && let Proof::Older(version) = prove(rig, plan, evidence, name, &module, Some((day, current_python(day, evidence, world))))
        {
            proof = Proof::Older(version);
        }
        out.push((name.clone(), module, proof));
    }
    out
}

fn prove(rig: &Rig, plan: &Plan, evidence: &Evidence, name: &str, module: &str, then: Option<(&str, Option<String>)>) -> Proof {
    let day = then.as_ref().map(|(day, _)| *day);
    let Ok(requirement) = Requirement::parse(name) else { return Proof::Refused(format!("`{name}` is no name")) };
    let spec = Spec {
        name: "proof".into(),
        python: then.map_or_else(|| plan.python.as_ref().map(|python| python.value.clone()), |(_, python)| python),
        pip: vec![requirement],
        indexes: plan.base.indexes.clone(),
        find_links: plan.base.find_links.clone(),
        exclude_newer: day.map(ToOwned::to_owned).or_else(|| plan.exclude_newer.as_ref().map(|day| day.value.clone())),
        no_build: true,
        compile: envharness_spec::Compile::Never,
        base: plan.base.base.clone(),
        ..Spec::default()
    };
    let synced = match rig.sync(&spec, &LockRequest::default(), &Quiet) {
        Ok(synced) => synced,
        Err(error) => return Proof::Refused(format!("there is no wheel of a distribution `{name}` ({error})")),
    };
    let library = synced.lock.python.version.split('.').take(2).collect::<Vec<_>>().join(".");
    let site_packages = synced.path.join("lib").join(format!("python{library}")).join("site-packages");
    if provides(&site_packages, name, module) != Some(true) {
        return Proof::Refused(format!("the distribution `{name}` has no module `{module}`"));
    }
    let version = synced.lock.package(name).and_then(|package| package.version.clone());
    match (doubt(&site_packages, name, module, evidence), day, version) {
        (None, Some(_), Some(version)) => Proof::Older(version),
        (None, _, version) => Proof::Given(version.unwrap_or_default()),
        (Some(doubt), ..) => Proof::Refused(format!("{doubt}; `--with {name}` takes it all the same")),
    }
}

/// Why a distribution that has the module's name may be another than what is meant: the task uses nothing of it that could be
/// looked for, or uses what it does not have. A task's own module that is missing has often a namesake on an index.
fn doubt(site_packages: &Path, distribution: &str, module: &str, evidence: &Evidence) -> Option<String> {
    let top = |dotted: &str| dotted.split('.').next() == Some(module);
    let imported = evidence.imports.iter().filter(|import| top(&import.module));
    let mut parts: BTreeSet<&str> =
        evidence.uses.keys().filter(|dotted| top(dotted)).filter_map(|dotted| dotted.split('.').nth(1)).collect();
    for import in imported {
        parts.extend(import.module.split('.').skip(1));
        parts.extend(import.names.iter().map(String::as_str));
    }
    if parts.is_empty() {
        return Some(format!("a distribution `{distribution}` has a module of that name, and nothing tells that it is what is meant"));
    }
    let record = records(site_packages).into_iter().find(|(name, _)| name == distribution).map(|(_, text)| text)?;
    let mut lacking = parts.clone();
    lacking.retain(|part| !record.lines().any(|line| line.split(['/', '.', ',']).any(|piece| piece == *part)));
    for path in record.lines().filter_map(|line| line.split(',').next()) {
        let code = [".py", ".pyi", ".so"].iter().any(|end| path.ends_with(end)) && !path.starts_with("..");
        if lacking.is_empty() || !code {
            continue;
        }
        let bytes = fs::read(site_packages.join(path)).unwrap_or_default();
        lacking.retain(|part| !has_word(&bytes, part.as_bytes()));
    }
    let lacks = lacking.iter().map(|part| format!("`{part}`")).collect::<Vec<_>>().join(", ");
    (!lacking.is_empty()).then(|| format!("the distribution `{distribution}` has nothing called {lacks}, which the task uses of it"))
}

/// Whether a text has a word, and not only a longer one that holds it.
fn has_word(text: &[u8], word: &[u8]) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let mut ends = text.windows(word.len()).enumerate().filter(|(_, window)| *window == word);
    ends.any(|(at, _)| !is_part(at.checked_sub(1).and_then(|before| text.get(before))) && !is_part(text.get(at + word.len())))
}

/// The first module that the RECORD of an installed distribution holds.
pub(crate) fn first_module(site_packages: &Path, distribution: &str) -> Option<String> {
    let record = records(site_packages).into_iter().find(|(name, _)| name == distribution).map(|(_, text)| text)?;
    let mut modules: Vec<&str> = record
        .lines()
        .filter_map(|line| {
            let path = line.split(',').next()?;
            let (top, rest) = path.split_once('/').unwrap_or((path, ""));
            let module = if rest.is_empty() { top.strip_suffix(".py")? } else { (rest == "__init__.py").then_some(top)? };
            let plain = module.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !module.starts_with('_')
                && !matches!(module, "tests" | "test" | "docs" | "examples");
            plain.then_some(module)
        })
        .collect();
    // The one that has the distribution's name comes first.
    let named = normal(distribution);
    modules.sort_by_key(|module| (normal(module) != named, module.len()));
    modules.first().map(|module| (*module).to_owned())
}

#[cfg(test)]
mod tests {
    use super::has_word;

    #[test]
    fn a_longer_word_proves_nothing() {
        assert!(has_word(b"def train(x):", b"train") && has_word(b"train", b"train"));
        assert!(!has_word(b"constraint = trains + _train", b"train"));
    }
}
