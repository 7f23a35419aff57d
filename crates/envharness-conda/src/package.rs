//! A package as a lock keeps it, and its way to and from a repodata record.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr as _;

use rattler_conda_types::package::{DistArchiveIdentifier, DistArchiveType};
use rattler_conda_types::{NoArchType, PackageName, PackageRecord, RepoDataRecord, VersionWithSource};
use rattler_digest::{Md5, Sha256, parse_digest_from_hex};

use crate::channel::Channels;
use crate::error::CondaError;

/// A conda package, exact. Addresses are not a part of it: `channel`, `subdir` and `file` make them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Package {
    /// The normalised name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The build string.
    pub build: String,
    /// The build number.
    pub build_number: u64,
    /// The channel's name, or its address without credentials.
    pub channel: String,
    /// The folder of the channel, `linux-64` or `noarch`.
    pub subdir: String,
    /// The archive's file name.
    pub file: String,
    /// The archive's size in bytes.
    pub size: Option<u64>,
    /// The archive's SHA-256, in hexadecimal.
    pub sha256: Option<String>,
    /// The archive's MD5, in hexadecimal; old channels have no other.
    pub md5: Option<String>,
    /// `python` or `generic` for a package of all platforms.
    pub noarch: Option<String>,
    /// Match specs of what it needs.
    pub depends: Vec<String>,
    /// Match specs that others must answer when they are there.
    pub constrains: Vec<String>,
    /// What it is on PyPI: normalised names.
    pub pypi: Vec<String>,
    /// Where an interpreter keeps its packages, when it says so.
    pub site_packages: Option<String>,
}

impl Package {
    /// Whether other packages' modules may be a part of it: it needs Python.
    pub fn is_python(&self) -> bool {
        self.noarch.as_deref() == Some("python")
            || self.depends.iter().any(|spec| matches!(spec.split([' ', '=', '<', '>', '!', '~']).next(), Some("python" | "python_abi")))
    }

    pub(crate) fn of_record(record: &RepoDataRecord, channels: &Channels) -> Self {
        let package = &record.package_record;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let purls = package.purls.iter().flatten().filter(|purl| *purl.package_type() == "pypi");
        let mut pypi: Vec<String> = purls.filter_map(|purl| normalized(purl.name())).collect();
        let mut out = Self {
            name: package.name.as_normalized().to_owned(),
            version: package.version.to_string(),
            build: package.build.to_string(),
            build_number: package.build_number,
            channel: channels.name_of(record.channel.as_deref().unwrap_or_default()),
            subdir: package.subdir.clone(),
            file: record.identifier.to_file_name(),
            size: package.size,
            sha256: package.sha256.map(|hash| hex(&hash)),
            md5: package.md5.map(|hash| hex(&hash)).filter(|_| package.sha256.is_none()),
            noarch: if package.noarch.is_python() { Some("python".into()) } else { package.noarch.is_generic().then(|| "generic".into()) },
            depends: package.depends.clone(),
            constrains: package.constrains.clone(),
            pypi: Vec::new(),
            site_packages: package.python_site_packages_path.clone(),
        };
        if pypi.is_empty() && package.purls.is_none() && out.is_python() {
            // Without a word of the channel the names are taken to be the same, as most are.
            pypi.extend(normalized(&out.name));
        }
        out.pypi = pypi;
        out
    }

    pub(crate) fn to_record(
        &self,
        channels: &Channels,
        base: &Path,
        mirrors: &BTreeMap<String, String>,
    ) -> Result<RepoDataRecord, CondaError> {
        let wrong = |reason: String| CondaError::Record { package: self.file.clone(), reason };
        let name = PackageName::from_str(&self.name).map_err(|error| wrong(format!("has a bad name: {error}")))?;
        let version = VersionWithSource::from_str(&self.version).map_err(|error| wrong(format!("has a bad version: {error}")))?;
        let build = self.build.parse().map_err(|_| wrong(format!("has the bad build `{}`", self.build)))?;
        let identifier = DistArchiveIdentifier::try_from_filename(&self.file)
            .filter(|id| matches!(id.archive_type, DistArchiveType::Conda(_)) && !self.file.contains(['/', '\\']))
            .ok_or_else(|| wrong("has a file name that is no conda package's".into()))?;
        let (root, url) = channels.url(&self.channel, &format!("{}/{}", self.subdir, self.file), base, mirrors)?;
        let mut record = PackageRecord::new(name, version, build);
        record.build_number = self.build_number;
        record.subdir.clone_from(&self.subdir);
        record.size = self.size;
        if let Some(text) = &self.sha256 {
            record.sha256 = Some(parse_digest_from_hex::<Sha256>(text).ok_or_else(|| wrong("has a bad sha256".into()))?);
        }
        if let Some(text) = &self.md5 {
            record.md5 = Some(parse_digest_from_hex::<Md5>(text).ok_or_else(|| wrong("has a bad md5".into()))?);
        }
        if record.sha256.is_none() && record.md5.is_none() {
            return Err(wrong("has no hash".into()));
        }
        record.noarch = match self.noarch.as_deref() {
            Some("python") => NoArchType::python(),
            Some(_) => NoArchType::generic(),
            None => NoArchType::none(),
        };
        record.depends.clone_from(&self.depends);
        record.constrains.clone_from(&self.constrains);
        record.python_site_packages_path.clone_from(&self.site_packages);
        Ok(RepoDataRecord { package_record: record, identifier, url, channel: Some(root.to_string()) })
    }
}

/// A name as PyPI normalises it; `None` for what is no name (PEP 508), since a channel may say anything.
fn normalized(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if matches!(c, '-' | '_' | '.') { '-' } else { c.to_ascii_lowercase() };
        if c != '-' || !out.ends_with('-') {
            out.push(c);
        }
    }
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let valid = out.chars().all(|c| inside(c) || c == '-') && out.starts_with(inside) && out.ends_with(inside);
    valid.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        Package {
            name: "numpy".into(),
            version: "2.0.2".into(),
            build: "py311_0".into(),
            channel: "conda-forge".into(),
            subdir: "linux-64".into(),
            file: "numpy-2.0.2-py311_0.conda".into(),
            sha256: Some("ab".repeat(32)),
            depends: vec!["python 3.11.*".into()],
            pypi: vec!["numpy".into()],
            ..Package::default()
        }
    }

    #[test]
    fn a_record_and_back_is_the_same_package() {
        let mirrors = BTreeMap::new();
        let channels = Channels::parse(&["conda-forge".into()], Path::new("/"), &mirrors).unwrap();
        let record = package().to_record(&channels, Path::new("/"), &mirrors).unwrap();
        assert!(record.url.as_str().ends_with("/conda-forge/linux-64/numpy-2.0.2-py311_0.conda"));
        assert_eq!(Package::of_record(&record, &channels), package());
    }

    #[test]
    fn what_a_channel_calls_a_name_on_pypi_is_one_or_nothing() {
        assert_eq!(normalized("Foo.Bar__baz").as_deref(), Some("foo-bar-baz"));
        for bad in ["", "/tmp/evil", "../evil", "a/b", "a\"\nb", "-a", "a-", "a b", "\u{e9}"] {
            assert_eq!(normalized(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_would_leave_the_folder_or_is_not_hashed_is_refused() {
        let mirrors = BTreeMap::new();
        let channels = Channels::parse(&["conda-forge".into()], Path::new("/"), &mirrors).unwrap();
        for bad in [
            Package { file: "../../etc/numpy-2.0.2-py311_0.conda".into(), ..package() },
            Package { sha256: None, ..package() },
            Package { sha256: Some("xyz".into()), ..package() },
            Package { name: "../numpy".into(), ..package() },
        ] {
            assert!(bad.to_record(&channels, Path::new("/"), &mirrors).is_err(), "{bad:?}");
        }
    }
}
