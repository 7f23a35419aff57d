//! `backend: conda`: conda packages first, pip packages on top of them.

mod activation;
mod exchange;
mod install;
mod resolve;

use std::path::{Path, PathBuf};

use envharness_conda::{Conda, Options, Package};
use envharness_spec::{Backend, CondaSource, Digest, LockedFile, LockedPackage, LockedSource, Spec};
use envharness_store::Home;

use crate::error::RigError;
use crate::settings::Settings;

pub(crate) use activation::{Activation, activation_of, compute};
pub(crate) use exchange::read;
pub(crate) use install::install;

/// How often a request is sent again where nobody says otherwise.
const RETRIES: u32 = 3;

/// Opens conda's part with the user's caches, mirrors and network settings.
pub(crate) fn open(settings: &Settings, home: &Home) -> Result<Conda, RigError> {
    let retries = settings.variable("UV_HTTP_RETRIES").and_then(|text| text.parse().ok()).unwrap_or(RETRIES);
    let mirrors = settings.mirrors.clone();
    Ok(Conda::new(Options { cache: home.cache().join("conda"), offline: settings.flag("offline"), retries, mirrors })?)
}

/// The channels of a spec, else those of the settings.
pub(crate) fn channels(settings: &Settings, spec: &Spec) -> Vec<String> {
    if spec.channels.is_empty() { settings.list("channels") } else { spec.channels.clone() }
}

/// The folder that relative channels start from.
pub(crate) fn base_of(spec: &Spec) -> PathBuf {
    let base = spec.base.clone().unwrap_or_default();
    if base.is_absolute() { base } else { std::env::current_dir().unwrap_or_default().join(base) }
}

/// The backend that `auto` stands for, and why, for a person.
pub(crate) fn reason(spec: &Spec) -> String {
    match spec.backend {
        Backend::Auto => "the spec has conda packages".into(),
        _ => "the spec says so".into(),
    }
}

/// A locked package as conda's part knows it.
pub(crate) fn package_of(locked: &LockedPackage, source: &CondaSource) -> Package {
    let file = locked.files.first();
    Package {
        name: locked.name.clone(),
        version: locked.version.clone().unwrap_or_default(),
        build: source.build.clone(),
        build_number: source.build_number,
        channel: source.channel.clone(),
        subdir: source.subdir.clone(),
        file: file.map(|file| file.name.clone()).unwrap_or_default(),
        size: file.and_then(|file| file.size),
        sha256: file.map(|file| file.sha256.hex().to_owned()),
        md5: None,
        noarch: source.noarch.clone(),
        depends: source.depends.clone(),
        constrains: source.constrains.clone(),
        pypi: source.pypi.clone(),
        site_packages: source.site_packages.clone(),
    }
}

/// A package as a lock keeps it; a channel without SHA-256 is refused, since a lock holds every file to its hash.
pub(crate) fn locked_of(package: Package, via: Vec<String>) -> Result<LockedPackage, RigError> {
    let hash = package.sha256.as_deref().and_then(|hex| Digest::parse(&format!("sha256:{hex}")));
    let Some(sha256) = hash else {
        return Err(RigError::from(envharness_conda::CondaError::Record {
            package: package.file,
            reason: format!("has no sha256 in the channel `{}`", package.channel),
        }));
    };
    let source = CondaSource {
        channel: package.channel,
        subdir: package.subdir,
        build: package.build,
        build_number: package.build_number,
        noarch: package.noarch,
        depends: package.depends,
        constrains: package.constrains,
        pypi: package.pypi,
        site_packages: package.site_packages,
    };
    Ok(LockedPackage {
        name: package.name,
        version: Some(package.version),
        source: LockedSource::Conda(Box::new(source)),
        platforms: Vec::new(),
        via,
        files: vec![LockedFile { name: package.file, size: package.size, sha256 }],
    })
}

/// The interpreter inside a prefix.
pub(crate) fn python_of(prefix: &Path) -> PathBuf {
    prefix.join("bin/python")
}
