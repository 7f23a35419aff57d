//! From a lock with an image to what a context's container stands on.

use std::path::{Path, PathBuf};

use envharness_spec::{Lock, Platform, Spec};

use super::image::{inside_of, of_lock};
use super::resolve::wanted;
use super::{ContainerPlace, ImagePython, Waiting, connect, facts, kind_of};
use crate::conda::{self, Activation};
use crate::deadline::Deadline;
use crate::error::RigError;
use crate::event::Reporter;
use crate::interpreter::{self, Interpreter};
use crate::prefix::{Base, Builder, site_packages};
use crate::rig::{Rig, Synced};

impl Rig {
    /// The image of a lock in its engine, and the prefix of its packages, which the container sees at its own path.
    pub(crate) fn sync_container(&self, spec: &Spec, lock: Lock, deadline: Deadline, reporter: &dyn Reporter) -> Result<Synced, RigError> {
        let engine = connect(&self.settings, &self.home, kind_of(spec))?;
        let short = Waiting::short(&self.settings, deadline, reporter);
        let long = Waiting::long(&self.settings, deadline, reporter);
        let locked = lock.image.clone().ok_or_else(|| RigError::Context {
            id: spec.name.clone(),
            reason: "has a lock without an image".into(),
            hint: Some("run `envharness lock`".into()),
        })?;
        let packages = lock.packages_for(&Platform::current()).next().is_some();
        if packages && engine.address().socket().is_none() {
            let what = format!("packages in a container of an engine elsewhere ({})", engine.address().url);
            return Err(RigError::NotAvailable(what));
        }
        let image = of_lock(&engine, &locked, self.settings.flag("offline"), &short, &long)?;
        let about = facts(&self.home, &engine, &short)?;
        let place = ContainerPlace::of(&engine, &about, &image);
        let inside = inside_of(&self.home, &engine, &image.id, &wanted(spec), &short)?;
        let builder = Builder { settings: &self.settings, home: &self.home, reporter, deadline };
        let synced = if !packages {
            Synced {
                key: String::new(),
                path: PathBuf::new(),
                python: inside.python.as_ref().map(|python| python.path.clone()).unwrap_or_default(),
                site_packages: PathBuf::new(),
                interpreter: nothing(),
                activation: Activation::default(),
                inside: Some(inside.python.unwrap_or_else(nothing)),
                container: None,
                hold: None,
                lock,
            }
        } else if lock.conda_packages_for(&Platform::current()).next().is_some() {
            let hold = builder.obtain(&lock, spec, Base::Inside)?;
            self.synced(lock, None, hold)?
        } else {
            let missing = || RigError::Context {
                id: locked.name.clone(),
                reason: "has no Python that its packages could stand on".into(),
                hint: Some("run `envharness lock`".into()),
            };
            let python = inside.python.ok_or_else(missing)?;
            let host = self.installer(spec, &python)?;
            let base = ImagePython { inside: python.clone(), host: host.clone(), libc: inside.libc };
            let hold = builder.obtain(&lock, spec, Base::Image(&base))?;
            let site = site_packages(&hold.path, &python);
            Synced {
                key: hold.key.clone(),
                path: hold.path.clone(),
                python: conda::python_of(&hold.path),
                site_packages: site,
                interpreter: host,
                activation: Activation::default(),
                inside: Some(python),
                container: None,
                hold: Some(hold),
                lock,
            }
        };
        Ok(Synced { container: Some(place), ..synced })
    }

    /// An interpreter of this machine that installs for an image's.
    fn installer(&self, spec: &Spec, python: &Interpreter) -> Result<Interpreter, RigError> {
        let unnamed = Spec { python: None, ..spec.clone() };
        interpreter::for_lock(&self.settings, &self.home, &unnamed, &python.version)
    }
}

/// The Python of an image that has none.
fn nothing() -> Interpreter {
    let empty = String::new;
    Interpreter {
        path: Path::new("").into(),
        version: empty(),
        implementation: empty(),
        soabi: empty(),
        platform: empty(),
        build: empty(),
        prefix: Path::new("").into(),
        cache_tag: empty(),
        library: empty(),
    }
}
