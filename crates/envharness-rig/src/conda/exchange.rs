//! conda's files: what other tools wrote as a spec, and a lock as what other tools read.

use envharness_conda::{Listed, Pins, is_explicit, read_explicit, read_lock, write_explicit, write_pixi};
use envharness_spec::{EnvSpecBuilder, Lock, Platform, Spec, SpecError};
use serde_json::json;

use crate::conda::{base_of, channels, package_of};
use crate::error::RigError;
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

    /// A lock's conda packages of this platform as a list of `conda list --explicit`.
    ///
    /// # Errors
    /// [`RigError::Conda`]; [`RigError::Context`] where there are pip packages, which such a list cannot hold.
    pub fn export_explicit(&self, spec: &Spec, lock: &Lock) -> Result<String, RigError> {
        let platform = Platform::current();
        refuse_pip(spec, lock, &platform, "an explicit list")?;
        let packages = lock.conda_packages_for(&platform).map(|(package, source)| package_of(package, source)).collect();
        let listed = Listed { platform: platform.as_str(), packages };
        Ok(write_explicit(&listed, &base_of(spec), &self.settings.mirrors)?)
    }

    /// A lock's conda packages of all its platforms as `pixi.lock`.
    ///
    /// # Errors
    /// As [`Rig::export_explicit`].
    pub fn export_pixi(&self, spec: &Spec, lock: &Lock) -> Result<String, RigError> {
        let mut listed = Vec::new();
        for platform in &lock.platforms {
            refuse_pip(spec, lock, platform, "pixi.lock as it is written here")?;
            let packages = lock.conda_packages_for(platform).map(|(package, source)| package_of(package, source)).collect();
            listed.push(Listed { platform: platform.as_str(), packages });
        }
        Ok(write_pixi(&listed, &channels(&self.settings, spec), &base_of(spec), &self.settings.mirrors)?)
    }
}

fn refuse_pip(spec: &Spec, lock: &Lock, platform: &Platform, what: &str) -> Result<(), RigError> {
    if lock.pip_packages_for(platform).next().is_none() {
        return Ok(());
    }
    let hint = Some("use `--format environment.yml`, which holds both".to_owned());
    Err(RigError::Context { id: spec.name.clone(), reason: format!("has pip packages, which {what} cannot hold"), hint })
}
