//! Format 1: the frozen shapes that are read, and the printer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use super::{
    CondaSource, Inputs, LOCK_VERSION, Lock, LockError, LockedFile, LockedImage, LockedPackage, LockedPython, LockedSource, Platform,
};
use crate::digest::Digest;
use crate::spec::Backend;

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "version")]
    _version: u32,
    spec: String,
    backend: String,
    platforms: Vec<String>,
    python: Python,
    inputs: RawInputs,
    image: Option<Image>,
    #[serde(default)]
    package: Vec<Package>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Python {
    version: String,
    implementation: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    name: String,
    id: String,
    pull: Option<String>,
    #[serde(default)]
    libc: String,
    #[serde(default)]
    python: String,
    context: Option<String>,
}

#[derive(Deserialize)]
struct RawInputs {
    digest: String,
    #[serde(flatten)]
    lists: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Package {
    name: String,
    version: Option<String>,
    index: Option<String>,
    url: Option<String>,
    git: Option<String>,
    commit: Option<String>,
    subdirectory: Option<String>,
    path: Option<String>,
    digest: Option<String>,
    #[serde(default)]
    editable: bool,
    #[serde(default)]
    host: bool,
    channel: Option<String>,
    subdir: Option<String>,
    build: Option<String>,
    #[serde(default)]
    build_number: u64,
    noarch: Option<String>,
    #[serde(default)]
    depends: Vec<String>,
    #[serde(default)]
    constrains: Vec<String>,
    #[serde(default)]
    pypi: Vec<String>,
    site_packages: Option<String>,
    #[serde(default)]
    platforms: Vec<String>,
    #[serde(default)]
    via: Vec<String>,
    #[serde(default)]
    files: Vec<File>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    size: Option<u64>,
    hash: String,
}

pub(super) fn parse(text: &str) -> Result<Lock, LockError> {
    let toml_error = |error: toml::de::Error| LockError::Invalid {
        message: error.message().trim().to_owned(),
        line: error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1),
    };
    let head: Head = toml::from_str(text).map_err(toml_error)?;
    if head.version > LOCK_VERSION {
        return Err(LockError::Newer(head.version));
    }
    let document: Document = toml::from_str(text).map_err(toml_error)?;
    let platforms = platforms(&document.platforms)?;
    let mut packages = document.package.into_iter().map(package).collect::<Result<Vec<_>, _>>()?;
    sort(&mut packages);
    Ok(Lock {
        spec: digest(&document.spec)?,
        backend: Backend::parse(&document.backend).ok_or_else(|| invalid(format!("unknown backend `{}`", document.backend)))?,
        python: LockedPython {
            version: document.python.version,
            implementation: document.python.implementation,
            reason: document.python.reason,
        },
        platforms,
        inputs: Inputs { digest: Some(digest(&document.inputs.digest)?), lists: document.inputs.lists },
        image: document.image.map(image).transpose()?,
        packages,
    })
}

fn image(raw: Image) -> Result<LockedImage, LockError> {
    let Image { name, id, pull, libc, python, context } = raw;
    digest(&id)?;
    // A name alone may be another image tomorrow.
    if let Some(name) = pull.as_ref().filter(|name| !name.contains("@sha256:")) {
        return Err(invalid(format!("the image `{name}` has no digest to be pulled by")));
    }
    Ok(LockedImage { name, id, pull, libc, python, context: context.as_deref().map(digest).transpose()? })
}

fn invalid(message: String) -> LockError {
    LockError::Invalid { message, line: None }
}

fn digest(text: &str) -> Result<Digest, LockError> {
    Digest::parse(text).ok_or_else(|| invalid(format!("`{text}` is not a sha256 digest")))
}

fn platforms(names: &[String]) -> Result<Vec<Platform>, LockError> {
    names.iter().map(|name| Platform::parse(name).ok_or_else(|| invalid(format!("unknown platform `{name}`")))).collect()
}

fn package(raw: Package) -> Result<LockedPackage, LockError> {
    let name = raw.name;
    let missing = |what: &str| invalid(format!("package `{name}` has no {what}"));
    if let Some(channel) = raw.channel {
        if raw.index.is_some() || raw.url.is_some() || raw.git.is_some() || raw.path.is_some() || raw.host {
            return Err(missing("single source (channel, index, url, git or path)"));
        }
        let [file] = raw.files.as_slice() else { return Err(missing("single file")) };
        let files = vec![LockedFile { name: file.name.clone(), size: file.size, sha256: digest(&file.hash)? }];
        let source = CondaSource {
            channel,
            subdir: raw.subdir.ok_or_else(|| missing("subdir"))?,
            build: raw.build.ok_or_else(|| missing("build"))?,
            build_number: raw.build_number,
            noarch: raw.noarch,
            depends: raw.depends,
            constrains: raw.constrains,
            pypi: raw.pypi,
            site_packages: raw.site_packages,
        };
        let source = LockedSource::Conda(Box::new(source));
        return Ok(LockedPackage { source, platforms: platforms(&raw.platforms)?, version: raw.version, via: raw.via, files, name });
    }
    let source = match (raw.index, raw.url, raw.git, raw.path, raw.host) {
        (Some(index), None, None, None, false) => LockedSource::Index(index),
        (None, Some(url), None, None, false) => LockedSource::Url(url),
        (None, None, Some(url), None, false) => {
            LockedSource::Git { url, commit: raw.commit.ok_or_else(|| missing("commit"))?, subdirectory: raw.subdirectory }
        }
        (None, None, None, Some(path), false) => {
            LockedSource::Path { path, digest: digest(&raw.digest.ok_or_else(|| missing("digest"))?)?, editable: raw.editable }
        }
        (None, None, None, None, true) => LockedSource::Host,
        _ => return Err(missing("single source (index, url, git or path)")),
    };
    let mut files = Vec::with_capacity(raw.files.len());
    for file in raw.files {
        files.push(LockedFile { name: file.name, size: file.size, sha256: digest(&file.hash)? });
    }
    files.sort();
    Ok(LockedPackage { source, platforms: platforms(&raw.platforms)?, version: raw.version, via: raw.via, files, name })
}

fn sort(packages: &mut [LockedPackage]) {
    let file = |package: &LockedPackage| package.files.first().map(|file| file.name.clone());
    packages.sort_by(|a, b| (&a.name, &a.version, &a.platforms, file(a)).cmp(&(&b.name, &b.version, &b.platforms, file(b))));
}

/// A TOML basic string; JSON's escapes are a part of TOML's.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn list(values: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let items: Vec<String> = values.into_iter().map(|v| quote(v.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A list with a line for each value, so that a change is a line of a diff.
fn tall(values: &[String]) -> String {
    if values.len() < 2 {
        return list(values);
    }
    let items: String = values.iter().map(|v| format!("    {},\n", quote(v))).collect();
    format!("[\n{items}]")
}

pub(super) fn print(lock: &Lock) -> String {
    let mut out = String::from("# Made by envharness from the spec beside it; change the spec, not this file.\n");
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("version = {LOCK_VERSION}"));
    line(format!("spec = {}", quote(&lock.spec.to_string())));
    line(format!("backend = {}", quote(lock.backend.as_str())));
    line(format!("platforms = {}", list(lock.platforms.iter().map(Platform::as_str))));
    line("\n[python]".into());
    line(format!("version = {}", quote(&lock.python.version)));
    line(format!("implementation = {}", quote(&lock.python.implementation)));
    line(format!("reason = {}", quote(&lock.python.reason)));
    line("\n[inputs]".into());
    let digest = lock.inputs.digest.clone().unwrap_or_else(|| Digest::of(""));
    line(format!("digest = {}", quote(&digest.to_string())));
    for (key, values) in &lock.inputs.lists {
        line(format!("{key} = {}", tall(values)));
    }
    if let Some(image) = &lock.image {
        line("\n[image]".into());
        line(format!("name = {}", quote(&image.name)));
        line(format!("id = {}", quote(&image.id)));
        let context = image.context.as_ref().map(Digest::to_string);
        let optional =
            [("pull", image.pull.as_ref()), ("libc", Some(&image.libc)), ("python", Some(&image.python)), ("context", context.as_ref())];
        for (key, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                line(format!("{key} = {}", quote(value)));
            }
        }
    }
    let mut packages = lock.packages.clone();
    sort(&mut packages);
    for package in &packages {
        line(print_package(package));
    }
    out
}

fn print_package(package: &LockedPackage) -> String {
    let mut out = String::from("\n[[package]]\n");
    let mut put = |key: &str, value: String| {
        let _ = writeln!(out, "{key} = {value}");
    };
    put("name", quote(&package.name));
    if let Some(version) = &package.version {
        put("version", quote(version));
    }
    match &package.source {
        LockedSource::Conda(conda) => {
            put("channel", quote(&conda.channel));
            put("subdir", quote(&conda.subdir));
            put("build", quote(&conda.build));
            if conda.build_number != 0 {
                put("build_number", conda.build_number.to_string());
            }
            for (key, value) in [("noarch", &conda.noarch), ("site_packages", &conda.site_packages)] {
                if let Some(value) = value {
                    put(key, quote(value));
                }
            }
            for (key, values) in [("depends", &conda.depends), ("constrains", &conda.constrains), ("pypi", &conda.pypi)] {
                if !values.is_empty() {
                    put(key, list(values));
                }
            }
        }
        LockedSource::Index(name) => put("index", quote(name)),
        LockedSource::Url(url) => put("url", quote(url)),
        LockedSource::Git { url, commit, subdirectory } => {
            put("git", quote(url));
            put("commit", quote(commit));
            if let Some(folder) = subdirectory {
                put("subdirectory", quote(folder));
            }
        }
        LockedSource::Path { path, digest, editable } => {
            put("path", quote(path));
            put("digest", quote(&digest.to_string()));
            if *editable {
                put("editable", "true".into());
            }
        }
        LockedSource::Host => put("host", "true".into()),
    }
    if !package.platforms.is_empty() {
        put("platforms", list(package.platforms.iter().map(Platform::as_str)));
    }
    if !package.via.is_empty() {
        put("via", list(&package.via));
    }
    if !package.files.is_empty() {
        let file = |file: &LockedFile| {
            let size = file.size.map(|size| format!(", size = {size}")).unwrap_or_default();
            format!("    {{ name = {}{size}, hash = {} }},\n", quote(&file.name), quote(&file.sha256.to_string()))
        };
        put("files", format!("[\n{}]", package.files.iter().map(file).collect::<String>()));
    }
    out.pop();
    out
}
