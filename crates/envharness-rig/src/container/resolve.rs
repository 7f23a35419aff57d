//! From a spec with an image to a lock.

use envharness_engine::{Engine, Kind};
use envharness_spec::{Digest, Lock, LockedImage, LockedPackage, LockedPython, Platform, Spec, lock::Inputs};

use super::image::{Inside, inside_of, pull};
use super::{Waiting, build, connect, kind_of};
use crate::error::RigError;
use crate::event::Event;
use crate::interpreter::{self, Choice, Interpreter};
use crate::resolve::{Provided, Resolver, Upgrade, merge};

impl Resolver<'_> {
    /// Resolves a spec whose processes run in a container: for the image's own Python, version and C library.
    pub(crate) fn resolve_container(
        &self,
        spec: &Spec,
        platforms: &[Platform],
        old: Option<&Lock>,
        upgrade: &Upgrade,
    ) -> Result<Lock, RigError> {
        let started = std::time::Instant::now();
        let engine = connect(self.settings, self.home, kind_of(spec))?;
        let short = Waiting::short(self.settings, self.deadline, self.reporter);
        let (mut image, reason) = self.image(&engine, spec, old, upgrade, &short)?;
        self.reporter.event(&Event::Backend { backend: engine.kind().to_string(), reason });
        let inside = inside_of(self.home, &engine, &image.id, &wanted(spec), &short)?;
        image.libc.clone_from(&inside.libc);
        let backend = spec.chosen_backend();
        let mut lock = if spec.conda.is_empty() {
            self.resolve_on_image(spec, &mut image, &inside, platforms, old, upgrade)?
        } else {
            let mut solved = spec.clone();
            if let Some(version) = inside.libc.strip_prefix("glibc ") {
                solved.virtual_packages.entry("__glibc".into()).or_insert_with(|| version.to_owned());
            }
            let lock = self.resolve_conda(&solved, platforms, old, upgrade, "the spec has conda packages")?;
            Lock { spec: spec.digest(), inputs: Inputs::of(spec), ..lock }
        };
        lock.backend = backend;
        lock.image = Some(image);
        if spec.conda.is_empty() {
            self.reporter.event(&Event::Resolved { packages: lock.packages.len(), elapsed: started.elapsed() });
        }
        // Through the text form, so that a lock just made equals the same lock read back.
        Lock::parse(&lock.to_string()).map_err(|source| RigError::LockFile { path: "<new lock>".into(), source })
    }

    /// The image that a spec names, or the one its Dockerfile makes, and why it was taken.
    fn image(
        &self,
        engine: &Engine,
        spec: &Spec,
        old: Option<&Lock>,
        upgrade: &Upgrade,
        short: &Waiting<'_>,
    ) -> Result<(LockedImage, String), RigError> {
        let long = Waiting::long(self.settings, self.deadline, self.reporter);
        if let Some(dockerfile) = &spec.dockerfile {
            return Ok((build::from_dockerfile(engine, self.home, spec, dockerfile, &long)?, format!("built by `{dockerfile}`")));
        }
        let (name, reason) = match &spec.image {
            Some(name) => (name.clone(), "the spec names an image".to_owned()),
            None => (default_image(self.settings.text("container_image"), spec), "the spec asks for it".to_owned()),
        };
        let kept = old.and_then(|old| old.image.clone()).filter(|kept| kept.name == name && !upgrade.all);
        if let Some(kept) = kept
            && engine.image(&kept.id, short)?.is_some()
        {
            return Ok((kept, reason));
        }
        let mut there = engine.image(&name, short)?;
        let local = there.as_ref().is_some_and(|there| there.repo_digests.is_empty());
        if (there.is_none() || upgrade.all && !local) && !self.settings.flag("offline") {
            match (pull(engine, &name, None, &long), &there) {
                (Err(error), Some(_)) if !matches!(error, RigError::Interrupted) => {
                    let message = format!("`{name}` was not pulled anew: {error}");
                    self.reporter.event(&Event::Warning { message, hint: Some("the one that is there is taken".into()) });
                }
                (pulled, _) => pulled?,
            }
            there = engine.image(&name, short)?;
        }
        let kind: Kind = engine.kind();
        let facts = there.ok_or(envharness_engine::EngineError::NoImage { kind, name: name.clone(), pull: None })?;
        let pull = facts.repo_digests.first().cloned();
        Ok((LockedImage { name, id: facts.id, pull, ..LockedImage::default() }, reason))
    }

    /// pip packages over the image's own Python.
    fn resolve_on_image(
        &self,
        spec: &Spec,
        image: &mut LockedImage,
        inside: &Inside,
        platforms: &[Platform],
        old: Option<&Lock>,
        upgrade: &Upgrade,
    ) -> Result<Lock, RigError> {
        let python = usable(spec, image, inside)?;
        let mut packages: Vec<LockedPackage> = Vec::new();
        let reason = format!("the one of the image {}", image.name);
        if let Some(python) = python {
            image.python = python.path.display().to_string();
            let choice = Choice { interpreter: self.any_interpreter(&python.minor())?, reason: reason.clone() };
            let provided = Provided { python: python.version.clone(), platform: super::uv_platform(&image.libc), ..Provided::default() };
            for platform in platforms {
                let resolved = self.resolve_platform(spec, &choice, platform, old, upgrade, Some(&provided))?;
                merge(&mut packages, resolved.into_iter().map(|one| one.package), platform);
            }
        }
        for package in packages.iter_mut().filter(|package| package.platforms.len() == platforms.len()) {
            package.platforms.clear();
        }
        let mut platforms = platforms.to_vec();
        platforms.sort();
        let told = |pick: fn(&Interpreter) -> &String| python.map(|python| pick(python).clone()).unwrap_or_default();
        Ok(Lock {
            spec: spec.digest(),
            backend: spec.chosen_backend(),
            python: LockedPython { version: told(|p| &p.version), implementation: told(|p| &p.implementation), reason },
            platforms,
            inputs: Inputs::of(spec),
            image: None,
            packages,
        })
    }
}

/// The image's Python, when it answers the spec; none is no fault while nothing asks for one.
fn usable<'a>(spec: &Spec, image: &LockedImage, inside: &'a Inside) -> Result<Option<&'a Interpreter>, RigError> {
    let refused = |reason: String, hint: &str| Err(RigError::Context { id: image.name.clone(), reason, hint: Some(hint.to_owned()) });
    let another = "take an image that has it, or name Python among the conda packages, which bring their own";
    match (&inside.python, &spec.python) {
        (Some(python), Some(wanted)) if !interpreter::satisfies(python, wanted) => {
            refused(format!("has Python {}, and the spec asks for {wanted}", python.version), another)
        }
        (None, Some(wanted)) => refused(format!("has no Python, and the spec asks for {wanted}"), another),
        (None, None) if !spec.pip.is_empty() => refused("has no Python for the pip packages of the spec".into(), another),
        (python, _) => Ok(python.as_ref()),
    }
}

/// The name of the interpreter to try first.
pub(crate) fn wanted(spec: &Spec) -> String {
    let plain = |text: &&String| text.split('.').count() >= 2 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let minor = |text: &String| format!("python{}", text.split('.').take(2).collect::<Vec<_>>().join("."));
    spec.python.as_ref().filter(plain).map(minor).unwrap_or_default()
}

/// The image of a spec that names none: a small one with its Python, or a plain system for conda packages.
fn default_image(setting: &str, spec: &Spec) -> String {
    if !setting.is_empty() {
        return setting.to_owned();
    }
    if !spec.conda.is_empty() {
        return "debian:stable-slim".into();
    }
    let version = wanted(spec).trim_start_matches("python").to_owned();
    if version.is_empty() { "python:3-slim".into() } else { format!("python:{version}-slim") }
}

/// The digest of what an image is built from.
pub(crate) fn context_digest(tar: &[u8], dockerfile: &str) -> Digest {
    Digest::of([dockerfile.as_bytes(), b"\n", tar].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_without_an_image_gets_a_small_one_with_its_python() {
        let spec = |text: &str| Spec::from_mapping(text, &envharness_spec::NoFiles).expect("a spec");
        let image = |text: &str| default_image("", &spec(text));
        assert_eq!(image(r#"{"name": "a", "backend": "docker", "python": "3.11.4"}"#), "python:3.11-slim");
        assert_eq!(image(r#"{"name": "a", "backend": "docker", "python": ">=3.9"}"#), "python:3-slim");
        assert_eq!(image(r#"{"name": "a", "backend": "docker", "conda": ["numpy"]}"#), "debian:stable-slim");
        assert_eq!(default_image("golden:1", &spec(r#"{"name": "a", "backend": "docker"}"#)), "golden:1");
    }
}
