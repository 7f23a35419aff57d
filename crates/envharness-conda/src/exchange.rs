//! Other tools' files: explicit lists, conda-lock and pixi.lock, read as pins and written.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr as _;

use rattler_conda_types::RepoDataRecord;
use rattler_conda_types::package::DistArchiveIdentifier;
use rattler_lock::conda_lock::ExportOptions;
use rattler_lock::{
    CondaPackageData, LockFile, LockedPackage, PackageHashes, PlatformData, PlatformName, PypiDistributionData, PypiPackageData, UrlOrPath,
    Verbatim,
};
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
        if let Some(pip) = line.strip_prefix(PIP_MARK) {
            pins.pip.push(pip_pin(pip));
            continue;
        }
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

/// What `conda-lock` puts before a pip package in an explicit list; conda reads it as a comment.
const PIP_MARK: &str = "# pip ";

/// A pip package of an explicit list, `name @ address#sha256=hash`, as a pin of name, version and hash where the file's name
/// tells the version (PEP 427, PEP 625), else as it is.
fn pip_pin(text: &str) -> String {
    let pinned = || {
        let (name, address) = text.split_once(" @ ")?;
        let (address, hash) = address.split_once("#sha256=")?;
        let file = address.rsplit('/').next()?;
        let version = match file.strip_suffix(".whl") {
            Some(stem) => stem.split('-').nth(1)?,
            None => file.strip_suffix(".tar.gz").or_else(|| file.strip_suffix(".zip"))?.rsplit_once('-')?.1,
        };
        Some(format!("{name}=={} --hash=sha256:{hash}", version.replace("%2B", "+").replace("%21", "!")))
    };
    pinned().unwrap_or_else(|| text.to_owned())
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

/// A file of a pip package.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PipFile {
    /// The normalised name.
    pub name: String,
    /// The version.
    pub version: String,
    /// Where it is, without credentials.
    pub url: String,
    /// The hash in hex.
    pub sha256: Option<String>,
}

/// What a lock has for one platform.
#[derive(Debug, Clone)]
pub struct Listed<'a> {
    /// The platform.
    pub platform: &'a str,
    /// Its conda packages.
    pub packages: Vec<Package>,
    /// Its pip packages.
    pub pip: Vec<PipFile>,
}

/// Writes packages as an explicit list, which conda, mamba and pixi install from. pip packages are comments in it, as
/// `conda-lock` writes them.
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
    for file in &listed.pip {
        let hash = file.sha256.as_ref().map(|hash| format!("#sha256={hash}")).unwrap_or_default();
        out.push_str(&format!("{PIP_MARK}{} @ {}{hash}\n", file.name, file.url));
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
    lock_file(listed, channels, base, mirrors)?.render_to_string().map_err(|error| wrong(chain(&error)))
}

/// Writes packages as `conda-lock.yml` (CEP 37). `source` is the spec's file.
///
/// # Errors
/// As [`write_pixi`].
pub fn write_conda_lock(
    listed: &[Listed<'_>],
    channels: &[String],
    base: &Path,
    mirrors: &BTreeMap<String, String>,
    source: &str,
) -> Result<String, CondaError> {
    let wrong = |reason: String| CondaError::Exchange { place: "conda-lock.yml".into(), reason };
    let local = channels.iter().find(|channel| channel.starts_with("file:") || channel.starts_with(['/', '.']));
    if let Some(channel) = local {
        return Err(wrong(format!("it holds no packages of a channel on a disk, as `{channel}` is")));
    }
    let file = lock_file(listed, channels, base, mirrors)?;
    let environment = file.default_environment().ok_or_else(|| wrong("has no packages".into()))?;
    let options = ExportOptions { sources: vec![source.to_owned()], ..ExportOptions::default() };
    let lock = environment.to_conda_lock(&options).map_err(|error| wrong(chain(&error)))?;
    lock.to_yaml().map_err(|error| wrong(chain(&error)))
}

fn lock_file(listed: &[Listed<'_>], channels: &[String], base: &Path, mirrors: &BTreeMap<String, String>) -> Result<LockFile, CondaError> {
    let wrong = |reason: String| CondaError::Exchange { place: "the lock".into(), reason };
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
        for file in &one.pip {
            let data = PypiPackageData::Distribution(Box::new(distribution(file)?));
            builder.add_pypi_package("default", platform.as_str(), data).map_err(|error| wrong(chain(&error)))?;
        }
    }
    Ok(builder.finish())
}

fn distribution(file: &PipFile) -> Result<PypiDistributionData, CondaError> {
    let wrong = |reason: String| CondaError::Exchange { place: format!("{}=={}", file.name, file.version), reason };
    let url = Url::parse(&file.url).map_err(|error| wrong(error.to_string()))?;
    let hash = file.sha256.as_deref().and_then(rattler_digest::parse_digest_from_hex::<rattler_digest::Sha256>);
    Ok(PypiDistributionData {
        name: file.name.parse().map_err(|error: pep508_rs::InvalidNameError| wrong(error.to_string()))?,
        version: file.version.parse().map_err(|error: pep440_rs::VersionParseError| wrong(error.to_string()))?,
        location: Verbatim::new(UrlOrPath::Url(url)),
        index_url: None,
        hash: hash.map(PackageHashes::Sha256),
        requires_dist: Vec::new(),
        requires_python: None,
    })
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
    fn what_is_written_reads_back_as_the_same_pins() {
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
        let pip = PipFile {
            name: "idna".into(),
            version: "3.7".into(),
            url: "https://files.example/idna-3.7-py3-none-any.whl".into(),
            sha256: Some("cd".repeat(32)),
        };
        let listed = [Listed { platform: "linux-64", packages: vec![package], pip: vec![pip] }];
        let text = write_pixi(&listed, &["https://host.example/forge".into()], Path::new("/"), &BTreeMap::new()).unwrap();
        let pins = read_lock(&text, "linux-64").unwrap();
        assert_eq!(pins.conda, [format!("six[version=\"==1.16.0\", build=\"py_0\", sha256=\"{}\"]", "ab".repeat(32))]);
        assert_eq!(pins.pip, [format!("idna==3.7 --hash=sha256:{}", "cd".repeat(32))]);
        assert_eq!(pins.channels, ["https://host.example/forge"]);
        let explicit = write_explicit(&listed[0], Path::new("/"), &BTreeMap::new()).unwrap();
        assert_eq!(read_explicit(&explicit).unwrap(), pins);
        let channels = ["https://host.example/forge".to_owned()];
        let text = write_conda_lock(&listed, &channels, Path::new("/"), &BTreeMap::new(), "spec.yaml").unwrap();
        assert!(text.contains("spec.yaml") && text.contains("manager: pip"), "{text}");
        assert_eq!(read_lock(&text, "linux-64").unwrap(), pins);
    }
}
