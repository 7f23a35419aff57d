//! conda's files: what other tools wrote as a spec, and a lock as what other tools read.

use envharness_conda::{Listed, Pins, PipFile, is_explicit, read_explicit, read_lock, write_conda_lock, write_explicit, write_pixi};
use envharness_spec::{EnvSpecBuilder, Lock, LockedSource, Platform, Spec, SpecError};
use serde_json::json;

use crate::conda::{base_of, channels, package_of};
use crate::error::RigError;
use crate::event::Reporter;
use crate::rig::Rig;

/// A spec from an explicit list, `conda-lock.yml` or `pixi.lock`; `None` for another kind of file.
pub(crate) fn read(text: &str, file: &str) -> Result<Option<Spec>, RigError> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let lock = name == "pixi.lock" || name.ends_with("conda-lock.yml") || name.ends_with("conda-lock.yaml");
    let pins = if lock {
        read_lock(text, Platform::current().as_str())
    } else if name.ends_with(".txt") && is_explicit(text) {
        read_explicit(text)
    } else {
        return Ok(None);
    };
    let Pins { channels, conda, pip } = pins.map_err(|error| SpecError::new(file, error.to_string()))?;
    let stem: String = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let spec = EnvSpecBuilder::default().name(&stem).set("backend", json!("conda")).set("channels", json!(channels));
    Ok(Some(spec.set("conda", json!(conda)).set("pip", json!(pip)).build()?))
}

impl Rig {
    /// The conda channels that a spec is solved with.
    pub fn channels(&self, spec: &Spec) -> Vec<String> {
        channels(&self.settings, spec)
    }

    /// A lock's packages of this platform as a list of `conda list --explicit`; pip packages are comments in it, as
    /// `conda-lock` writes them.
    ///
    /// # Errors
    /// [`RigError::Conda`]; [`RigError::Context`] for a pip package from a folder or from git, which such files cannot hold;
    /// as [`Rig::export_pylock`].
    pub fn export_explicit(&self, spec: &Spec, lock: &Lock, reporter: &dyn Reporter) -> Result<String, RigError> {
        let platform = Platform::current();
        let listed = self.listed(spec, lock, &platform, reporter)?;
        Ok(write_explicit(&listed, &base_of(spec), &self.settings.mirrors)?)
    }

    /// A lock's packages of all its platforms as `pixi.lock`.
    ///
    /// # Errors
    /// As [`Rig::export_explicit`].
    pub fn export_pixi(&self, spec: &Spec, lock: &Lock, reporter: &dyn Reporter) -> Result<String, RigError> {
        let listed = self.all_listed(spec, lock, reporter)?;
        Ok(write_pixi(&listed, &channels(&self.settings, spec), &base_of(spec), &self.settings.mirrors)?)
    }

    /// A lock's packages of all its platforms as `conda-lock.yml`.
    ///
    /// # Errors
    /// As [`Rig::export_explicit`].
    pub fn export_conda_lock(&self, spec: &Spec, lock: &Lock, reporter: &dyn Reporter) -> Result<String, RigError> {
        let listed = self.all_listed(spec, lock, reporter)?;
        let file = spec.file.as_ref().and_then(|file| file.file_name()).map_or_else(|| spec.name.clone(), |f| f.to_string_lossy().into());
        Ok(write_conda_lock(&listed, &channels(&self.settings, spec), &base_of(spec), &self.settings.mirrors, &file)?)
    }

    fn all_listed<'a>(&self, spec: &Spec, lock: &'a Lock, reporter: &dyn Reporter) -> Result<Vec<Listed<'a>>, RigError> {
        lock.platforms.iter().map(|platform| self.listed(spec, lock, platform, reporter)).collect()
    }

    fn listed<'a>(&self, spec: &Spec, lock: &Lock, platform: &'a Platform, reporter: &dyn Reporter) -> Result<Listed<'a>, RigError> {
        let packages = lock.conda_packages_for(platform).map(|(package, source)| package_of(package, source)).collect();
        let pip = self.pip_files(spec, lock, platform, reporter)?;
        Ok(Listed { platform: platform.as_str(), packages, pip })
    }

    /// The files of a lock's pip packages. A lock has no addresses of an index: it is asked for them.
    fn pip_files(&self, spec: &Spec, lock: &Lock, platform: &Platform, reporter: &dyn Reporter) -> Result<Vec<PipFile>, RigError> {
        let mut addresses = None;
        let mut out = Vec::new();
        for package in lock.pip_packages_for(platform) {
            let refused = |reason: &str| {
                let hint = Some("use `--format environment.yml`, or publish it on an index".to_owned());
                RigError::Context { id: package.name.clone(), reason: reason.to_owned(), hint }
            };
            let (url, sha256) = match &package.source {
                LockedSource::Url(url) => (url.clone(), package.files.first().map(|file| file.sha256.hex().to_owned())),
                LockedSource::Index(_) => {
                    if addresses.is_none() {
                        addresses = Some(self.pip_addresses(spec, lock, platform, reporter)?);
                    }
                    // The files of a lock of several platforms are of all of them; the index gave those of this one.
                    let locked = |hash: &String| package.files.iter().any(|file| file.sha256.hex() == hash);
                    let known = addresses.iter().flatten().find(|(hash, _)| locked(hash));
                    let (hash, url) = known.ok_or_else(|| refused("has no address on its index"))?;
                    (url.clone(), Some(hash.clone()))
                }
                _ => return Err(refused("comes from a folder or from git, which such a file cannot hold")),
            };
            out.push(PipFile { name: package.name.clone(), version: package.version.clone().unwrap_or_default(), url, sha256 });
        }
        Ok(out)
    }
}
