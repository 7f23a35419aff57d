//! Gathers evidence: files are read, nothing of the target runs.

mod folder;
mod git;
mod sources;
mod traceback;

use std::fs;
use std::path::{Path, PathBuf};

use envharness_rig::{Rig, load_spec};

use crate::error::RiggerError;
use crate::evidence::{Dated, Declared, Evidence, Kind, PythonBound, Weight};

/// What is to be rigged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A file or folder.
    Path(PathBuf),
    /// The address of a git repository, as git takes it.
    Git(String),
    /// The text of a traceback.
    Traceback(String),
}

impl Target {
    /// Reads a target as it is typed; `-` is for the caller to read.
    pub fn parse(text: &str) -> Self {
        let address = text.strip_prefix("git+").unwrap_or(text);
        let is_git = text.starts_with("git+")
            || text.starts_with("git@")
            || ["ssh://", "git://"].iter().any(|scheme| text.starts_with(scheme))
            || (text.contains("://") && !text.ends_with(".py") && !text.ends_with(".ipynb"))
            || (text.ends_with(".git") && !Path::new(text).exists());
        if is_git { Self::Git(address.to_owned()) } else { Self::Path(PathBuf::from(text)) }
    }
}

/// Gathers all that a target says.
///
/// # Errors
/// [`RiggerError::Target`] for what cannot be rigged, [`RiggerError::Rig`].
pub fn gather(rig: &Rig, target: &Target) -> Result<Evidence, RiggerError> {
    match target {
        Target::Traceback(text) => traceback::read(rig, text),
        Target::Git(address) => {
            let folder = git::clone(address)?;
            folder::read(rig, &folder)
        }
        Target::Path(path) => {
            let refuse = |reason: &str, hint: &str| RiggerError::Target {
                target: path.display().to_string(),
                reason: reason.to_owned(),
                hint: Some(hint.to_owned()),
            };
            let path = &std::path::absolute(path).unwrap_or_else(|_| path.clone());
            if !path.exists() {
                return Err(refuse("there is no such file or folder", "name a script, a notebook, a folder, a spec or a git address"));
            }
            if path.is_dir() {
                return folder::read(rig, path);
            }
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("py" | "pyw") => script(rig, path, Kind::Script),
                Some("ipynb") => script(rig, path, Kind::Notebook),
                Some("lock") => lock(rig, path),
                Some("yaml" | "yml" | "toml" | "json" | "txt" | "in") => spec(rig, path),
                _ if is_python(path) => script(rig, path, Kind::Script),
                _ => Err(refuse("it is neither a script nor a notebook nor a spec", "name a .py, an .ipynb, a spec or a folder")),
            }
        }
    }
}

/// A script without an ending, known by its first line.
fn is_python(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| {
        bytes.starts_with(b"#!") && bytes.iter().take(80).copied().collect::<Vec<u8>>().windows(6).any(|w| w == b"python")
    })
}

fn script(rig: &Rig, path: &Path, kind: Kind) -> Result<Evidence, RiggerError> {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let home = path.parent().unwrap_or(Path::new("/")).to_owned();
    let root = sources::project_root(&home);
    let mut evidence = Evidence::new(kind, &name, root.clone());
    evidence.file = Some(path.to_owned());
    sources::follow(rig, vec![path.to_owned()], &mut evidence)?;
    inline_metadata(rig, path, &mut evidence);
    for place in [&home, &root] {
        folder::declarations(rig, place, &mut evidence, false);
        if home == root {
            break;
        }
    }
    dates(&root, &mut evidence);
    Ok(evidence)
}

/// PEP 723.
fn inline_metadata(rig: &Rig, path: &Path, evidence: &mut Evidence) {
    let text = fs::read_to_string(path).unwrap_or_default();
    if text.lines().any(|line| line.trim_end() == "# /// script") {
        take_spec(rig, path, evidence, true);
    }
}

/// A spec that is to be mended.
fn spec(rig: &Rig, path: &Path) -> Result<Evidence, RiggerError> {
    let spec = load_spec(path, &rig.settings)?;
    let root = path.parent().unwrap_or(Path::new("/")).to_owned();
    let mut evidence = Evidence::new(Kind::Spec, &spec.name, root);
    evidence.file = Some(path.to_owned());
    take_spec(rig, path, &mut evidence, true);
    Ok(evidence)
}

/// A lock whose packages may have vanished: its spec, held to the versions that were locked; what is no longer there moves to what is
/// nearest.
fn lock(rig: &Rig, path: &Path) -> Result<Evidence, RiggerError> {
    let refuse =
        |reason: String, hint: &str| RiggerError::Target { target: path.display().to_string(), reason, hint: Some(hint.to_owned()) };
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string(), "check the path"))?;
    let lock = envharness_spec::Lock::parse(&text).map_err(|error| refuse(error.to_string(), error.hint()))?;
    let beside = ["yaml", "yml", "toml", "json"].iter().map(|ending| path.with_extension(ending)).find(|file| file.is_file());
    let Some(file) = beside else {
        return Err(refuse("its spec is not beside it".into(), "put the spec back, or rig the task itself"));
    };
    let mut evidence = spec(rig, &file)?;
    let name = shown(path, &evidence.root);
    for package in lock.packages.iter().filter(|package| matches!(package.source, envharness_spec::LockedSource::Index(_))) {
        if let Some(version) = &package.version {
            let text = format!("{}=={version}", package.name);
            evidence.constraints.push(Declared { text, place: name.clone(), weight: Weight::Declared });
        }
    }
    let minor = lock.python.version.split('.').take(2).collect::<Vec<_>>().join(".");
    evidence.pythons.push(PythonBound { specifier: format!("=={minor}.*"), why: format!("{name} has it"), firm: true });
    Ok(evidence)
}

/// Takes all that a spec file says.
pub(super) fn take_spec(rig: &Rig, path: &Path, evidence: &mut Evidence, firm: bool) {
    let file = shown(path, &evidence.root);
    let spec = match load_spec(path, &rig.settings) {
        Ok(spec) => spec,
        Err(error) => {
            evidence.notes.push(format!("{file} was left out: {error}"));
            return;
        }
    };
    evidence.sources.push(file.clone());
    for requirement in &spec.pip {
        // The project itself: its modules are found where they lie, and none of its code runs to install it.
        if requirement.local_path().is_some() {
            evidence.notes.push(format!("`{requirement}` ({file}) is the task's own and is not installed"));
            continue;
        }
        let line =
            spec.place_of(requirement).and_then(|place| place.rsplit_once(':')).map(|(_, line)| format!(":{line}")).unwrap_or_default();
        evidence.declared.push(Declared { text: requirement.to_string(), place: format!("{file}{line}"), weight: Weight::Declared });
    }
    let constraints = spec.constraints.iter().map(|c| Declared { text: c.to_string(), place: file.clone(), weight: Weight::Declared });
    evidence.constraints.extend(constraints);
    if let Some(python) = &spec.python {
        let exact = python.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let specifier = if exact { format!("=={}.*", python.split('.').take(2).collect::<Vec<_>>().join(".")) } else { python.clone() };
        evidence.pythons.push(PythonBound { specifier, why: format!("{file} asks for it"), firm: firm && evidence.kind != Kind::Spec });
    }
    let base = &mut evidence.base;
    base.conda.extend(spec.conda);
    base.channels.extend(spec.channels.into_iter().filter(|channel| !base.channels.contains(channel)).collect::<Vec<_>>());
    base.indexes.extend(spec.indexes.into_iter().filter(|index| !base.indexes.contains(index)).collect::<Vec<_>>());
    for place in spec.find_links {
        if evidence.kind == Kind::Spec || place.contains("://") {
            base.find_links.push(place);
        } else {
            // Archives in the target are its own code, and to install one may be to run it.
            evidence.notes.push(format!("find-links `{place}` ({file}) was left out: it is the task's own folder"));
        }
    }
    base.no_build |= spec.no_build;
    base.prerelease |= spec.prerelease;
    base.exclude_newer = base.exclude_newer.take().or(spec.exclude_newer);
    if evidence.kind == Kind::Spec {
        let base = &mut evidence.base;
        base.backend = spec.backend;
        base.env_vars = spec.env_vars;
        base.resources = spec.resources;
        base.secrets = spec.secrets;
        base.image = spec.image;
        base.dockerfile = spec.dockerfile;
        base.container = spec.container;
        base.description = spec.description;
        base.tmp = spec.tmp;
        base.isolation = spec.isolation;
        base.channel_priority = spec.channel_priority;
        base.virtual_packages = spec.virtual_packages;
        base.link_scripts = spec.link_scripts;
        base.compile = spec.compile;
        base.writable = spec.writable;
    }
}

/// The day of the last commit, and that of the files.
pub(super) fn dates(root: &Path, evidence: &mut Evidence) {
    if let Some(day) = git::last_commit(root) {
        evidence.dates.push(Dated { why: format!("the last commit is of {day}"), day, firm: true });
    }
    let newest = evidence.sources.iter().filter_map(|source| fs::metadata(evidence.root.join(source)).ok()?.modified().ok()).max();
    let seconds = newest.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).map(|age| age.as_secs_f64());
    if let Some(seconds) = seconds {
        let day = crate::survey::day_of(seconds);
        evidence.dates.push(Dated { why: format!("the newest of its files is of {day}"), day, firm: false });
    }
}

/// A path as places show it.
pub(super) fn shown(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let git = |address: &str| Target::Git(address.to_owned());
        assert_eq!(Target::parse("git+https://example.org/a/b"), git("https://example.org/a/b"));
        assert_eq!(Target::parse("https://example.org/a/b.git"), git("https://example.org/a/b.git"));
        assert_eq!(Target::parse("git@example.org:a/b.git"), git("git@example.org:a/b.git"));
        assert_eq!(Target::parse("train.py"), Target::Path("train.py".into()));
    }
}
