//! Virtual packages: what the machine has that packages may ask for, and what the spec says instead.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use rattler_conda_types::{GenericVirtualPackage, Matches as _, PackageName, Subdir, Version};
use rattler_virtual_packages::{VirtualPackageOverrides, VirtualPackages};

use crate::CondaError;
use crate::match_spec::parse;
use crate::package::Package;

/// The virtual packages of a platform, as `__glibc=2.36`: detected where it is this machine's, what conda assumes where it
/// is another. `CONDA_OVERRIDE_*` count, and `overrides` before them; an empty version hides a package.
///
/// # Errors
/// [`CondaError::VirtualPackage`], [`CondaError::Platform`].
pub fn virtual_packages(platform: &str, overrides: &BTreeMap<String, String>) -> Result<Vec<String>, CondaError> {
    let found = detect(subdir(platform)?, overrides)?;
    let mut out: Vec<String> = found
        .iter()
        .map(|package| {
            let build = package.build_string.to_string();
            let build = if build.is_empty() || build == "0" { String::new() } else { format!("={build}") };
            format!("{}={}{build}", package.name.as_normalized(), package.version)
        })
        .collect();
    out.sort();
    Ok(out)
}

/// What packages ask of the machine and do not find, as `__cuda >=12`. A lock may have been made on another machine.
///
/// # Errors
/// As [`virtual_packages`].
pub fn missing_virtual_packages(
    packages: &[Package],
    platform: &str,
    overrides: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, CondaError> {
    let asked: Vec<(&str, &str)> = packages
        .iter()
        .flat_map(|package| package.depends.iter().map(|spec| (package.name.as_str(), spec.as_str())))
        .filter(|(_, spec)| spec.starts_with("__"))
        .collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let machine = detect(subdir(platform)?, overrides)?;
    let mut out = Vec::new();
    for (package, text) in asked {
        let spec = parse(text)?;
        if !machine.iter().any(|found| spec.matches(found)) {
            out.push((package.to_owned(), text.to_owned()));
        }
    }
    Ok(out)
}

pub(crate) fn subdir(platform: &str) -> Result<Subdir, CondaError> {
    let name = match platform {
        "linux-x86_64" => "linux-64",
        "macos-x86_64" => "osx-64",
        "macos-aarch64" => "osx-arm64",
        "windows-x86_64" => "win-64",
        other => other,
    };
    Subdir::from_str(name).map_err(|_| CondaError::Platform(platform.to_owned()))
}

pub(crate) fn detect(platform: Subdir, overrides: &BTreeMap<String, String>) -> Result<Vec<GenericVirtualPackage>, CondaError> {
    let wrong = |name: &str, reason: String| CondaError::VirtualPackage { name: name.to_owned(), reason };
    let detected = VirtualPackages::detect_for_platform(platform, &VirtualPackageOverrides::from_env(), None)
        .map_err(|error| wrong("__*", crate::error::chain(&error)))?;
    let mut out: Vec<GenericVirtualPackage> = detected.into_generic_virtual_packages().collect();
    for (name, value) in overrides {
        let parsed = PackageName::from_str(name).ok().filter(|_| name.starts_with("__"));
        let parsed = parsed.ok_or_else(|| wrong(name, "its name does not begin with `__`".into()))?;
        let build = out.iter().find(|package| package.name == parsed).map(|package| package.build_string.clone());
        out.retain(|package| package.name != parsed);
        if value.is_empty() {
            continue;
        }
        let (version, text) = value.split_once('=').map_or((value.as_str(), None), |(version, build)| (version, Some(build)));
        let version = Version::from_str(version).map_err(|error| wrong(name, error.to_string()))?;
        let build_string = match text {
            Some(text) => text.parse().map_err(|_| wrong(name, format!("`{text}` is not a build")))?,
            None => match build {
                Some(build) => build,
                None => "0".parse().map_err(|_| wrong(name, "it has no build".into()))?,
            },
        };
        out.push(GenericVirtualPackage { name: parsed, version, build_string });
    }
    Ok(out)
}
