//! The lock: a spec resolved, as byte-stable TOML with small diffs.
//!
//! Packages from an index carry the index's *name*; addresses are made at install from the configured index, so that
//! neither a mirror nor a credential lands in a lock.

mod compare;
mod v1;

use std::collections::BTreeMap;
use std::fmt;

use crate::digest::Digest;
use crate::spec::{Backend, ChannelPriority, Spec};

/// The newest lock format that is written; older ones stay readable.
pub const LOCK_VERSION: u32 = 1;

/// A resolved spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The digest of the spec it was made from.
    pub spec: Digest,
    /// The backend that was chosen.
    pub backend: Backend,
    /// The Python it was resolved for.
    pub python: LockedPython,
    /// The platforms it was resolved for.
    pub platforms: Vec<Platform>,
    /// What the resolution was asked for, so that a stale lock can say what changed.
    pub inputs: Inputs,
    /// The image of a container.
    pub image: Option<LockedImage>,
    /// The packages, sorted by name.
    pub packages: Vec<LockedPackage>,
}

/// The image that a lock stands on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockedImage {
    /// Its name in the spec, or the one its build was given.
    pub name: String,
    /// What it is: the digest of its configuration, `sha256:...`.
    pub id: String,
    /// Its name with the digest of a registry, for who has to pull it.
    pub pull: Option<String>,
    /// Its C library, `glibc 2.36` or `musl 1.2`; empty when it has none that is known.
    pub libc: String,
    /// The path of its Python; empty when it has none, or when the packages bring their own.
    pub python: String,
    /// The digest of the folder it was built from.
    pub context: Option<Digest>,
}

/// The Python of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedPython {
    /// The full version, `3.11.7`.
    pub version: String,
    /// `cpython` or `pypy`.
    pub implementation: String,
    /// Why this one, for a person.
    pub reason: String,
}

impl LockedPython {
    /// Major and minor, `3.11`.
    pub fn minor(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }
}

/// A platform in `system-machine` form, such as `linux-x86_64`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform(String);

impl Platform {
    /// The platforms that can be named, with uv's word for each.
    const KNOWN: [(&'static str, &'static str); 5] = [
        ("linux-x86_64", "x86_64-unknown-linux-gnu"),
        ("linux-aarch64", "aarch64-unknown-linux-gnu"),
        ("macos-x86_64", "x86_64-apple-darwin"),
        ("macos-aarch64", "aarch64-apple-darwin"),
        ("windows-x86_64", "x86_64-pc-windows-msvc"),
    ];

    /// Reads a platform's name; conda's words (`linux-64`, `osx-arm64`) are known too.
    pub fn parse(text: &str) -> Option<Self> {
        let name = match text {
            "linux-64" => "linux-x86_64",
            "osx-64" => "macos-x86_64",
            "osx-arm64" => "macos-aarch64",
            "win-64" => "windows-x86_64",
            other => other,
        };
        Self::KNOWN.iter().any(|(known, _)| *known == name).then(|| Self(name.to_owned()))
    }

    /// The platform this program runs on.
    pub fn current() -> Self {
        Self(format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH))
    }

    /// Every name that [`Platform::parse`] takes.
    pub fn names() -> Vec<&'static str> {
        Self::KNOWN.iter().map(|(name, _)| *name).collect()
    }

    /// conda's word, `linux-64`.
    pub fn conda_name(&self) -> &str {
        match self.0.as_str() {
            "linux-x86_64" => "linux-64",
            "macos-x86_64" => "osx-64",
            "macos-aarch64" => "osx-arm64",
            "windows-x86_64" => "win-64",
            other => other,
        }
    }

    /// uv's `--python-platform` word; `None` for one that uv has no word for.
    pub fn uv_name(&self) -> Option<&'static str> {
        Self::KNOWN.iter().find(|(name, _)| *name == self.0).map(|(_, uv)| *uv)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a resolution was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inputs {
    /// The digest of all inputs.
    pub digest: Option<Digest>,
    /// Each input with its values, such as `pip` with its requirements.
    pub lists: BTreeMap<String, Vec<String>>,
}

impl Inputs {
    /// The inputs of a spec. Index addresses are left out: only their names are kept.
    pub fn of(spec: &Spec) -> Self {
        let mut lists = BTreeMap::new();
        let mut put = |key: &str, values: Vec<String>| {
            if !values.is_empty() {
                lists.insert(key.to_owned(), values);
            }
        };
        put("python", spec.python.iter().cloned().collect());
        put("backend", if spec.backend == Backend::Auto { vec![] } else { vec![spec.backend.to_string()] });
        put("pip", spec.pip.iter().map(ToString::to_string).collect());
        put("constraints", spec.constraints.iter().map(ToString::to_string).collect());
        put("image", spec.image.iter().cloned().collect());
        put("dockerfile", spec.dockerfile.iter().cloned().collect());
        put("conda", spec.conda.clone());
        put("channels", spec.channels.clone());
        put("virtual_packages", spec.virtual_packages.iter().map(|(name, version)| format!("{name}={version}")).collect());
        put(
            "channel_priority",
            if spec.channel_priority == ChannelPriority::Strict { vec![] } else { vec![spec.channel_priority.to_string()] },
        );
        put("link_scripts", if spec.link_scripts { vec!["true".into()] } else { vec![] });
        put("indexes", spec.indexes.iter().map(|i| i.name.clone()).collect());
        put("exclude_newer", spec.exclude_newer.iter().cloned().collect());
        put("no_build", if spec.no_build { vec!["true".into()] } else { vec![] });
        put("prerelease", if spec.prerelease { vec!["true".into()] } else { vec![] });
        Self { digest: Some(spec.resolution_digest()), lists }
    }
}

/// One package of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedPackage {
    /// The normalised name.
    pub name: String,
    /// The exact version; a local source may have none.
    pub version: Option<String>,
    /// Where it comes from.
    pub source: LockedSource,
    /// The platforms it is for; empty for all of the lock's.
    pub platforms: Vec<Platform>,
    /// Who asks for it: package names, and the spec's own name in angle brackets.
    pub via: Vec<String>,
    /// The artifacts that may be installed.
    pub files: Vec<LockedFile>,
}

/// What a lock keeps of a conda package beside name, version and its one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CondaSource {
    /// The channel's name, or its address without credentials.
    pub channel: String,
    /// The folder of the channel, `linux-64` or `noarch`.
    pub subdir: String,
    /// The build string.
    pub build: String,
    /// The build number.
    pub build_number: u64,
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

/// Where a package comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockedSource {
    /// A conda channel.
    Conda(Box<CondaSource>),
    /// An index, by name.
    Index(String),
    /// An archive at an address.
    Url(String),
    /// A commit.
    Git {
        /// The repository.
        url: String,
        /// The full commit id.
        commit: String,
        /// A folder inside it.
        subdirectory: Option<String>,
    },
    /// A local folder or archive.
    Path {
        /// As the spec wrote it.
        path: String,
        /// The digest of its content, so that a changed source makes a new prefix.
        digest: Digest,
        /// Whether the source itself is used.
        editable: bool,
    },
    /// Found in an adopted environment (`backend: host`).
    Host,
}

/// One artifact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockedFile {
    /// The file's name.
    pub name: String,
    /// The size in bytes, where the index says it.
    pub size: Option<u64>,
    /// The hash.
    pub sha256: Digest,
}

/// A lock file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// Not a lock, or broken.
    Invalid {
        /// What is wrong.
        message: String,
        /// The line, from 1.
        line: Option<usize>,
    },
    /// Written by a newer program.
    Newer(u32),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { message, line: Some(line) } => write!(f, "line {line}: {message}"),
            Self::Invalid { message, line: None } => f.write_str(message),
            Self::Newer(version) => {
                write!(f, "the lock has format {version}, and this program reads up to {LOCK_VERSION}")
            }
        }
    }
}

impl std::error::Error for LockError {}

impl LockError {
    /// What to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "restore the file, or remove it and run `envharness lock`",
            Self::Newer(_) => "update envharness, or remove the file and run `envharness lock`",
        }
    }
}

impl Lock {
    /// Reads a lock of any known format.
    ///
    /// # Errors
    /// [`LockError`] for text that is no lock, and for one of a newer format.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        v1::parse(text)
    }

    /// The digest over all that was resolved; the spec's name, description and limits do not enter it.
    pub fn digest(&self) -> Digest {
        let neutral = Self {
            spec: Digest::of(""),
            python: LockedPython { reason: String::new(), ..self.python.clone() },
            inputs: Inputs::default(),
            ..self.clone()
        };
        Digest::of(neutral.to_string())
    }

    /// The packages of one platform.
    pub fn packages_for<'a>(&'a self, platform: &'a Platform) -> impl Iterator<Item = &'a LockedPackage> {
        self.packages.iter().filter(move |p| p.platforms.is_empty() || p.platforms.contains(platform))
    }

    /// The conda packages of one platform.
    pub fn conda_packages_for<'a>(&'a self, platform: &'a Platform) -> impl Iterator<Item = (&'a LockedPackage, &'a CondaSource)> {
        self.packages_for(platform).filter_map(|package| match &package.source {
            LockedSource::Conda(source) => Some((package, &**source)),
            _ => None,
        })
    }

    /// The packages of one platform that come from anywhere but a conda channel.
    pub fn pip_packages_for<'a>(&'a self, platform: &'a Platform) -> impl Iterator<Item = &'a LockedPackage> {
        self.packages_for(platform).filter(|package| !matches!(package.source, LockedSource::Conda(_)))
    }

    /// A package by name, on any platform.
    pub fn package(&self, name: &str) -> Option<&LockedPackage> {
        self.packages.iter().find(|p| p.name == name)
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&v1::print(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conda_package_is_what_it_prints_and_never_a_pip_one() {
        let conda = CondaSource {
            channel: "conda-forge".into(),
            subdir: "noarch".into(),
            build: "pyhd_0".into(),
            build_number: 3,
            noarch: Some("python".into()),
            depends: vec!["python >=3.8".into()],
            constrains: vec!["other <2".into()],
            pypi: vec!["six".into()],
            site_packages: None,
        };
        let file = LockedFile { name: "six-1.16.0-pyhd_0.conda".into(), size: Some(7), sha256: Digest::of("six") };
        let package = LockedPackage {
            name: "six".into(),
            version: Some("1.16.0".into()),
            source: LockedSource::Conda(Box::new(conda)),
            platforms: Vec::new(),
            via: vec!["<demo>".into()],
            files: vec![file],
        };
        let platform = Platform::parse("linux-64").expect("a known platform");
        let lock = Lock {
            spec: Digest::of("spec"),
            backend: Backend::Conda,
            python: LockedPython { version: "3.11.7".into(), implementation: "cpython".into(), reason: "asked for".into() },
            platforms: vec![platform.clone()],
            inputs: Inputs { digest: Some(Digest::of("inputs")), lists: BTreeMap::new() },
            image: None,
            packages: vec![package],
        };
        let again = Lock::parse(&lock.to_string()).expect("its own text");
        assert_eq!(again, lock);
        assert_eq!(lock.conda_packages_for(&platform).count(), 1);
        assert!(!lock.to_requirements(&platform).contains("six"));
    }
}
