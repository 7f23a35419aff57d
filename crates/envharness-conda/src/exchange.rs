//! Other tools' files: explicit lists, conda-lock and pixi.lock, read as pins and written.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr as _;

use rattler_conda_types::RepoDataRecord;
use rattler_conda_types::package::DistArchiveIdentifier;
use rattler_lock::{CondaPackageData, LockFile, LockedPackage, PlatformData, PlatformName, PypiPackageData};
use url::Url;

use crate::channel::Channels;
use crate::error::{CondaError, chain, without_credentials};
use crate::package::Package;
use crate::virtual_packages::subdir;

/// What a file pins, as a spec would write it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pins {
    /// Channels without credentials, in order.
    pub channels: Vec<String>,
    /// Match specs with version, build and hash.
    pub conda: Vec<String>,
    /// Requirement lines with hashes.
    pub pip: Vec<String>,
}

/// Whether a text is a list of `conda list --explicit`.
pub fn is_explicit(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "@EXPLICIT")
}

/// Reads an explicit list.
///
/// # Errors
/// [`CondaError::Exchange`] with the line.
pub fn read_explicit(text: &str) -> Result<Pins, CondaError> {
    let mut pins = Pins::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == "@EXPLICIT" {
            continue;
        }
        let wrong = |reason: &str| CondaError::Exchange { place: format!("line {}", number + 1), reason: reason.to_owned() };
        let (address, hash) = line.split_once('#').map_or((line, None), |(address, hash)| (address, Some(hash)));
        let url = Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
        let (channel, _, file) = split(&url).ok_or_else(|| wrong("is not the address of a package in a channel"))?;
        let file = DistArchiveIdentifier::try_from_filename(&file).ok_or_else(|| wrong("names no conda package"))?;
        let hash = hash.map(|hash| hash.strip_prefix("sha256:").unwrap_or(hash));
        let hash = match hash {
            Some(hash) if hash.len() == 64 => Some(("sha256", hash)),
            Some(hash) if hash.len() == 32 => Some(("md5", hash)),
            Some(_) => return Err(wrong("its hash is neither a SHA-256 nor an MD5")),
            None => None,
        };
        pins.add(&channel, &file.identifier.name, &file.identifier.version, &file.identifier.build_string, hash);
    }
    Ok(pins)
}

/// Reads `pixi.lock` (every version) or the `conda-lock.yml` it grew from, for one platform of the environment `default`.
///
/// # Errors
/// [`CondaError::Exchange`].
pub fn read_lock(text: &str, platform: &str) -> Result<Pins, CondaError> {
    let wrong = |reason: String| CondaError::Exchange { place: "the lock".into(), reason };
    let lock = LockFile::from_str_with_base_directory(text, None).map_err(|error| wrong(chain(&error)))?;
    let wanted = subdir(platform)?;
    let environment = lock.default_environment().or_else(|| lock.environments().next().map(|(_, environment)| environment));
    let environment = environment.ok_or_else(|| wrong("has no environment".into()))?;
    let here = environment.platforms().find(|platform| platform.subdir() == wanted);
    let here = here.ok_or_else(|| wrong(format!("is not for {wanted}")))?;
    let mut pins = Pins::default();
    for channel in environment.channels() {
        pins.channel(&channel.url);
    }
    for package in environment.packages(here).into_iter().flatten() {
        match package {
            LockedPackage::Conda(CondaPackageData::Binary(data)) => {
                let record = &data.package_record;
                let hash = record.sha256.map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
                let channel = data.channel.as_ref().map(|channel| channel.as_str().to_owned()).unwrap_or_default();
                let (name, version) = (record.name.as_normalized(), record.version.to_string());
                pins.add(&channel, name, &version, record.build.as_ref(), hash.as_deref().map(|hash| ("sha256", hash)));
            }
            LockedPackage::Conda(CondaPackageData::Source(_)) => {
                return Err(wrong(format!("builds `{}` from source, which is not supported", package.name())));
            }
            LockedPackage::Pypi(PypiPackageData::Distribution(data)) => {
                let hash = data.hash.as_ref().and_then(|hash| hash.sha256());
                let hash = hash.map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
                let hash = hash.map(|hash| format!(" --hash=sha256:{hash}")).unwrap_or_default();
                pins.pip.push(format!("{}=={}{hash}", data.name, data.version));
            }
            LockedPackage::Pypi(PypiPackageData::Source(data)) => pins.pip.push(data.location.inner().to_string()),
        }
    }
    Ok(pins)
}

impl Pins {
    fn channel(&mut self, address: &str) {
        let address = without_credentials(address.trim_end_matches('/'));
        if !address.is_empty() && !self.channels.contains(&address) {
            self.channels.push(address);
        }
    }

    fn add(&mut self, channel: &str, name: &str, version: &str, build: &str, hash: Option<(&str, &str)>) {
        self.channel(channel);
        let hash = hash.map(|(kind, hash)| format!(", {kind}=\"{hash}\"")).unwrap_or_default();
        self.conda.push(format!("{name}[version=\"=={version}\", build=\"{build}\"{hash}]"));
    }
}

/// The channel, the platform's folder and the file of a package's address.
fn split(url: &Url) -> Option<(String, String, String)> {
    let (rest, file) = url.as_str().rsplit_once('/')?;
    let (channel, folder) = rest.rsplit_once('/')?;
    Some((channel.to_owned(), folder.to_owned(), file.to_owned()))
}

/// Packages of one platform with the channels they come from.
#[derive(Debug, Clone)]
pub struct Listed<'a> {
    /// The platform.
    pub platform: &'a str,
    /// Its packages.
    pub packages: Vec<Package>,
}

/// Writes packages as an explicit list, which conda, mamba and pixi install from.
///
/// # Errors
/// [`CondaError::Record`], [`CondaError::Channel`].
pub fn write_explicit(listed: &Listed<'_>, base: &Path, mirrors: &BTreeMap<String, String>) -> Result<String, CondaError> {
    let mut out = format!("# platform: {}\n@EXPLICIT\n", subdir(listed.platform)?);
    for record in records(listed, base, mirrors)? {
        let hash = record.package_record.sha256.map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        out.push_str(&without_credentials(record.url.as_str()));
        out.push_str(&hash.map(|hash| format!("#sha256:{hash}")).unwrap_or_default());
        out.push('\n');
    }
    Ok(out)
}

/// Writes packages as `pixi.lock`, in the newest version that rattler knows.
///
/// # Errors
/// [`CondaError::Record`], [`CondaError::Channel`], [`CondaError::Exchange`].
pub fn write_pixi(
    listed: &[Listed<'_>],
    channels: &[String],
    base: &Path,
    mirrors: &BTreeMap<String, String>,
) -> Result<String, CondaError> {
    let wrong = |reason: String| CondaError::Exchange { place: "pixi.lock".into(), reason };
    let mut builder = LockFile::builder();
    for one in listed {
        let platform = subdir(one.platform)?;
        let name = PlatformName::from_str(platform.as_str()).map_err(|error| wrong(error.to_string()))?;
        let data = PlatformData { name, subdir: platform, virtual_packages: Vec::new() };
        builder = builder.add_platform(data).map_err(|error| wrong(chain(&error)))?;
    }
    let known = Channels::parse(channels, base, mirrors)?;
    let addresses: Vec<String> = known.all().map(|channel| without_credentials(channel.base_url.as_str())).collect();
    builder.set_channels("default", addresses);
    for one in listed {
        let platform = subdir(one.platform)?;
        for record in records(one, base, mirrors)? {
            let data = CondaPackageData::from(record);
            builder.add_conda_package("default", platform.as_str(), data).map_err(|error| wrong(chain(&error)))?;
        }
    }
    builder.finish().render_to_string().map_err(|error| wrong(chain(&error)))
}

fn records(listed: &Listed<'_>, base: &Path, mirrors: &BTreeMap<String, String>) -> Result<Vec<RepoDataRecord>, CondaError> {
    let names: Vec<String> = listed.packages.iter().map(|package| package.channel.clone()).collect();
    let channels = Channels::parse(&names, base, mirrors)?;
    listed.packages.iter().map(|package| package.to_record(&channels, base, mirrors)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_list_is_pins_with_hashes_and_no_credentials() {
        let text = format!("# x\n@EXPLICIT\nhttps://me:pw@host.example/forge/linux-64/six-1.16.0-py_0.conda#sha256:{}\n", "ab".repeat(32));
        let pins = read_explicit(&text).unwrap();
        assert_eq!(pins.channels, ["https://host.example/forge"]);
        assert_eq!(pins.conda, [format!("six[version=\"==1.16.0\", build=\"py_0\", sha256=\"{}\"]", "ab".repeat(32))]);
        assert_eq!(crate::name_of(&pins.conda[0]).unwrap(), "six");
        assert!(read_explicit("@EXPLICIT\nnot an address\n").is_err());
    }

    #[test]
    fn what_is_written_as_pixi_lock_reads_back_as_the_same_pins() {
        let package = Package {
            name: "six".into(),
            version: "1.16.0".into(),
            build: "py_0".into(),
            channel: "https://host.example/forge".into(),
            subdir: "noarch".into(),
            file: "six-1.16.0-py_0.conda".into(),
            sha256: Some("ab".repeat(32)),
            noarch: Some("python".into()),
            ..Package::default()
        };
        let listed = [Listed { platform: "linux-64", packages: vec![package] }];
        let text = write_pixi(&listed, &["https://host.example/forge".into()], Path::new("/"), &BTreeMap::new()).unwrap();
        let pins = read_lock(&text, "linux-64").unwrap();
        assert_eq!(pins.conda, [format!("six[version=\"==1.16.0\", build=\"py_0\", sha256=\"{}\"]", "ab".repeat(32))]);
        assert_eq!(pins.channels, ["https://host.example/forge"]);
        let explicit = write_explicit(&listed[0], Path::new("/"), &BTreeMap::new()).unwrap();
        assert_eq!(read_explicit(&explicit).unwrap().conda, pins.conda);
    }
}
