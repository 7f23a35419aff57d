//! uv's `pylock.toml`: read into locked packages, and written again for `export`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use envharness_spec::{Backend, Digest, Lock, LockedFile, LockedPackage, LockedSource, Platform, Requirement, Spec};
use serde::Deserialize;

use super::{Annotations, Provided, Resolved, Resolver, Work};
use crate::error::{IoContext as _, RigError};
use crate::interpreter::{self, Choice};
use crate::settings::Settings;
use crate::source_tree;
use crate::uv::{Uv, effective_indexes, tail};

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: Option<String>,
    #[serde(default)]
    wheels: Vec<Artifact>,
    sdist: Option<Artifact>,
    archive: Option<Artifact>,
    vcs: Option<Vcs>,
    directory: Option<Directory>,
}

#[derive(Deserialize)]
struct Artifact {
    name: Option<String>,
    url: Option<String>,
    path: Option<String>,
    size: Option<u64>,
    #[serde(rename = "upload-time")]
    upload_time: Option<toml::value::Datetime>,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Vcs {
    url: Option<String>,
    path: Option<String>,
    #[serde(rename = "commit-id")]
    commit: String,
    subdirectory: Option<String>,
}

#[derive(Deserialize)]
struct Directory {
    path: String,
    #[serde(default)]
    editable: bool,
}

/// Reads uv's answer.
pub(super) fn read(text: &str, work: &Work<'_>, annotations: &Annotations, settings: &Settings) -> Result<Vec<Resolved>, RigError> {
    let document: Document = toml::from_str(text).map_err(|error| RigError::Program {
        program: "uv",
        action: "write a lock that can be read".into(),
        output: error.message().to_owned(),
    })?;
    let own = document.packages.into_iter().filter(|package| !work.is_provided(&package.name));
    own.map(|package| resolved(package, work, annotations, settings)).collect()
}

fn resolved(package: Package, work: &Work<'_>, annotations: &Annotations, settings: &Settings) -> Result<Resolved, RigError> {
    let direct: Vec<&Requirement> = work.spec.pip.iter().filter(|r| r.name.as_ref() == Some(&package.name)).collect();
    let annotation = annotations.get(&package.name).cloned().unwrap_or_default();
    let mut via = annotation.via;
    let mut artifacts: Vec<&Artifact> = package.wheels.iter().collect();
    // A source archive is recorded only where no wheel fits: what is in the lock is what is installed.
    if artifacts.is_empty() {
        artifacts.extend(package.sdist.iter().chain(&package.archive));
    }
    let uploaded = artifacts.iter().filter_map(|a| a.upload_time.map(|time| time.to_string())).max();
    let mut files: Vec<LockedFile> = artifacts.iter().filter_map(|artifact| file(artifact)).collect();
    files.sort();
    let source = if let Some(directory) = &package.directory {
        via = vec![format!("<{}>", work.spec.name)];
        path_source(&directory.path, directory.editable, work)?
    } else if let Some(vcs) = &package.vcs {
        let url = vcs.url.clone().or_else(|| vcs.path.clone()).unwrap_or_default();
        LockedSource::Git { url, commit: vcs.commit.clone(), subdirectory: vcs.subdirectory.clone() }
    } else if let Some(archive) = &package.archive {
        match (&archive.url, &archive.path) {
            (Some(url), _) => LockedSource::Url(url.clone()),
            (None, path) => path_source(path.as_deref().unwrap_or_default(), false, work)?,
        }
    } else {
        LockedSource::Index(index_name(annotation.index.as_deref(), &artifacts, settings, work.spec))
    };
    keep_hashed(&package.name, &direct, &mut files, work)?;
    let package = LockedPackage { version: package.version, source, platforms: Vec::new(), via, files, name: package.name };
    Ok(Resolved { package, uploaded })
}

fn file(artifact: &Artifact) -> Option<LockedFile> {
    let place = artifact.url.as_deref().or(artifact.path.as_deref()).unwrap_or_default();
    let name = artifact.name.clone().unwrap_or_else(|| {
        let last = place.split(['#', '?']).next().unwrap_or(place).rsplit('/').next().unwrap_or(place);
        last.replace("%2B", "+").replace("%21", "!")
    });
    Some(LockedFile { name, size: artifact.size, sha256: Digest::parse(artifact.hashes.get("sha256")?)? })
}

/// Hashes that the spec demands leave only the files that have one of them.
fn keep_hashed(name: &str, direct: &[&Requirement], files: &mut Vec<LockedFile>, work: &Work<'_>) -> Result<(), RigError> {
    let wanted: Vec<&String> = direct.iter().flat_map(|r| &r.hashes).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    files.retain(|file| wanted.contains(&&file.sha256.to_string()));
    if files.is_empty() {
        return Err(RigError::Unsolvable {
            name: work.spec.name.clone(),
            python: work.choice.interpreter.version.clone(),
            explanation: vec![format!("no file of `{name}` that fits this platform has one of the hashes that the spec demands")],
            hint: Some("the file was replaced, or the hashes are for another platform or version".into()),
        });
    }
    Ok(())
}

fn path_source(path: &str, editable: bool, work: &Work<'_>) -> Result<LockedSource, RigError> {
    let base = work.base();
    let absolute = work.folder.join(path);
    let absolute = absolute.canonicalize().on("find", &absolute)?;
    let written = work.spec.pip.iter().find_map(|requirement| {
        let (written, _) = requirement.local_path()?;
        (base.join(written).canonicalize().ok()? == absolute).then(|| (written.to_owned(), source_tree::is_editable(requirement)))
    });
    let (path, editable) = written.unwrap_or_else(|| (absolute.display().to_string(), editable));
    Ok(LockedSource::Path { path, digest: source_tree::digest(&absolute, editable)?, editable })
}

/// The name of the index an artifact came from.
fn index_name(annotated: Option<&str>, artifacts: &[&Artifact], settings: &Settings, spec: &Spec) -> String {
    // Without userinfo: uv does not repeat credentials.
    let trim = |url: &str| {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let rest = rest.split_once('@').filter(|(user, _)| !user.contains('/')).map_or(rest, |(_, rest)| rest);
        format!("{scheme}://{}", rest.trim_end_matches('/'))
    };
    let indexes = effective_indexes(settings, spec);
    let known = annotated.and_then(|url| indexes.iter().find(|index| trim(&index.url) == trim(url)));
    match known {
        Some(index) => index.name.clone(),
        None if artifacts.iter().any(|a| a.path.is_some() || a.url.as_deref().is_some_and(|u| u.starts_with("file:"))) => {
            "find-links".into()
        }
        None if annotated
            .is_some_and(|url| spec.find_links.iter().chain(&settings.list("find_links")).any(|place| trim(place) == trim(url))) =>
        {
            "find-links".into()
        }
        None => indexes.iter().find(|index| index.default).map_or_else(|| "pypi".into(), |index| index.name.clone()),
    }
}

/// PEP 751 text for one platform of a lock. Addresses come from the configured index and are not in the lock, so uv is
/// asked for them; its answer must have the lock's versions and hashes.
///
/// # Errors
/// As [`Resolver::resolve`], and when the index no longer has a locked file.
pub fn export_pylock(resolver: &Resolver<'_>, spec: &Spec, lock: &Lock, platform: &Platform) -> Result<String, RigError> {
    // A conda lock's Python is inside of its prefix; uv is told its version.
    let conda = lock.backend == Backend::Conda || lock.image.is_some();
    let libc = lock.image.as_ref().and_then(|image| crate::container::uv_platform(&image.libc));
    let provided = Provided { python: lock.python.version.clone(), platform: libc, packages: Vec::new() };
    let interpreter = if conda {
        resolver.any_interpreter(&lock.python.minor())?
    } else {
        interpreter::for_lock(resolver.settings, resolver.home, spec, &lock.python.version)?
    };
    let choice = Choice { interpreter, reason: lock.python.reason.clone() };
    let folder = resolver.home.temporary("export")?;
    let base = spec.base.clone().unwrap_or_default();
    let mut pinned = Spec { constraints: Vec::new(), base: Some(base.clone()), ..spec.clone() };
    pinned.pip = spec.pip.iter().filter(|r| r.location.is_some()).cloned().collect();
    for package in lock.packages_for(platform).filter(|p| matches!(p.source, LockedSource::Index(_))) {
        let line = format!("{}=={}", package.name, package.version.as_deref().unwrap_or_default());
        pinned.pip.push(Requirement::parse(&line).map_err(|(message, _)| RigError::Program {
            program: "uv",
            action: "export".into(),
            output: message,
        })?);
    }
    let work = Work { spec: &pinned, choice: &choice, platform, folder: folder.path(), provided: conda.then_some(&provided) };
    work.write_inputs()?;
    let output = folder.path().join("pylock.toml");
    let uv = Uv::find(resolver.settings, resolver.home)?;
    let mut args = work.args(&uv, "pylock.toml", &output);
    args.push(OsString::from("--no-deps"));
    let ran = uv.run(&pinned, &args, folder.path(), "exporting", resolver.deadline, resolver.reporter)?;
    if !ran.success {
        return Err(RigError::Program { program: "uv", action: "export the lock".into(), output: tail(&ran.stderr) });
    }
    let text = fs::read_to_string(&output).on("read", &output)?;
    check_export(&text, lock, platform)?;
    Ok(text)
}

/// SHA-256 (hex) and address, without credentials, of every file in a text of [`export_pylock`].
pub(crate) fn addresses(text: &str) -> Vec<(String, String)> {
    let Ok(document) = toml::from_str::<Document>(text) else { return Vec::new() };
    let files = document.packages.into_iter().flat_map(|package| package.wheels.into_iter().chain(package.sdist));
    files.filter_map(|artifact| Some((artifact.hashes.get("sha256")?.clone(), artifact.url?))).collect()
}

fn check_export(text: &str, lock: &Lock, platform: &Platform) -> Result<(), RigError> {
    let broken = |output: String| RigError::Program { program: "uv", action: "export the lock as it is".into(), output };
    let document: Document = toml::from_str(text).map_err(|error| broken(error.message().to_owned()))?;
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in document.packages {
        let hashes = package.wheels.iter().chain(package.sdist.iter()).filter_map(|a| a.hashes.get("sha256").cloned());
        known.insert(package.name.clone(), hashes.collect());
    }
    for package in lock.packages_for(platform).filter(|p| matches!(p.source, LockedSource::Index(_))) {
        let offered = known.get(&package.name).cloned().unwrap_or_default();
        // A lock of several platforms has the others' files too.
        if !package.files.iter().any(|file| offered.iter().any(|hash| hash == file.sha256.hex())) {
            let names: Vec<&str> = package.files.iter().map(|file| file.name.as_str()).collect();
            return Err(broken(format!("the index no longer has `{}` for {platform} with the locked hash", names.join("`, `"))));
        }
    }
    Ok(())
}
