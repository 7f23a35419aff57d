//! From a spec to a lock with conda packages: conda first, then pip on top.

use std::time::Instant;

use envharness_conda::{CondaError, Package, Priority, Solution, SolveRequest, name_of};
use envharness_spec::{Backend, ChannelPriority, Lock, LockedPackage, LockedPython, Platform, Spec, lock::Inputs};

use crate::conda::install::stopped;
use crate::conda::{base_of, channels, locked_of, open, package_of};
use crate::error::RigError;
use crate::event::Event;
use crate::interpreter::{self, Choice};
use crate::resolve::{Provided, Resolver, Upgrade, merge};

/// A way to ask for Python, and why.
struct Wanted {
    spec: Option<String>,
    reason: String,
}

impl Resolver<'_> {
    /// Resolves a spec with conda for the platforms; packages of an earlier lock are kept where they still fit.
    ///
    /// # Errors
    /// [`RigError::Conda`] and [`RigError::Unsolvable`] explain.
    pub(crate) fn resolve_conda(
        &self,
        spec: &Spec,
        platforms: &[Platform],
        old: Option<&Lock>,
        upgrade: &Upgrade,
        why: &str,
    ) -> Result<Lock, RigError> {
        let started = Instant::now();
        self.reporter.event(&Event::Backend { backend: Backend::Conda.to_string(), reason: why.to_owned() });
        let current = Platform::current();
        let (solution, python) = self.solve_with_python(spec, &current, old, upgrade)?;
        let (version, implementation) = python_in(&solution, spec)?;
        let minor: String = version.split('.').take(2).collect::<Vec<_>>().join(".");
        let mut packages: Vec<LockedPackage> = Vec::new();
        let mut pip_packages = 0;
        for platform in platforms {
            let solved = if *platform == current {
                solution.clone()
            } else {
                // One lock has one Python.
                self.solve(spec, platform, Some(format!("python {minor}.*")), old, upgrade)?
            };
            let provided = Provided::of(&solved.packages, &version);
            let locked = with_askers(solved.packages, spec)?;
            if !spec.pip.is_empty() {
                let interpreter = self.any_interpreter(&minor)?;
                let choice = Choice { interpreter, reason: python.clone() };
                let resolved = self.resolve_platform(spec, &choice, platform, old, upgrade, Some(&provided));
                let resolved = resolved.map_err(|error| both_sides(error, &provided, &locked, spec))?;
                pip_packages += resolved.len();
                merge(&mut packages, resolved.into_iter().map(|one| one.package), platform);
            }
            merge(&mut packages, locked.into_iter(), platform);
        }
        for package in packages.iter_mut().filter(|package| package.platforms.len() == platforms.len()) {
            package.platforms.clear();
        }
        let mut platforms = platforms.to_vec();
        platforms.sort();
        let lock = Lock {
            spec: spec.digest(),
            backend: Backend::Conda,
            python: LockedPython { version, implementation, reason: python },
            platforms,
            inputs: Inputs::of(spec),
            image: None,
            packages,
        };
        tracing::debug!(pip_packages, "conda and pip resolved");
        self.reporter.event(&Event::Resolved { packages: lock.packages.len(), elapsed: started.elapsed() });
        // Through the text form, so that a lock just made equals the same lock read back.
        Lock::parse(&lock.to_string()).map_err(|source| RigError::LockFile { path: "<new lock>".into(), source })
    }

    /// The first way to ask for Python that solves.
    fn solve_with_python(
        &self,
        spec: &Spec,
        platform: &Platform,
        old: Option<&Lock>,
        upgrade: &Upgrade,
    ) -> Result<(Solution, String), RigError> {
        let mut first = None;
        for wanted in self.wanted_pythons(spec, old)? {
            match self.solve(spec, platform, wanted.spec, old, upgrade) {
                Ok(solution) => return Ok((solution, wanted.reason)),
                Err(RigError::Conda(error)) if matches!(*error, CondaError::Unsolvable { .. } | CondaError::NoPackage { .. }) => {
                    first.get_or_insert(RigError::Conda(error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(first.unwrap_or(RigError::NoPython { wanted: spec.python.clone().unwrap_or_default(), found: Vec::new() }))
    }

    fn wanted_pythons(&self, spec: &Spec, old: Option<&Lock>) -> Result<Vec<Wanted>, RigError> {
        let listed = spec.conda.iter().any(|text| name_of(text).is_ok_and(|name| name == "python"));
        if let Some(text) = &spec.python {
            if listed {
                let reason = "is asked for twice: as `python` and among the conda packages".to_owned();
                return Err(RigError::Context { id: "python".into(), reason, hint: Some("keep one of the two".into()) });
            }
            if interpreter::path_of(spec).is_some() {
                let reason = "names a path, and with the backend `conda` Python comes from a channel".to_owned();
                return Err(RigError::Context { id: "python".into(), reason, hint: Some("write a version, or `backend: venv`".into()) });
            }
            return Ok(vec![Wanted { spec: Some(python_spec(text)), reason: format!("the spec asks for {text}") }]);
        }
        if listed {
            return Ok(vec![Wanted { spec: None, reason: "the spec's conda packages ask for it".into() }]);
        }
        let mut out = Vec::new();
        if let Some(old) = old.filter(|old| old.backend == Backend::Conda) {
            out.push(Wanted { spec: Some(format!("python {}.*", old.python.minor())), reason: old.python.reason.clone() });
        }
        let caller = self.settings.caller_python.as_ref().and_then(|path| interpreter::query(self.home, path).ok());
        let found = match caller {
            Some(caller) => Some((caller.minor(), "as the caller's")),
            None => interpreter::discover(self.settings, self.home)?.first().map(|(found, place)| (found.minor(), *place)),
        };
        if let Some((minor, place)) = found {
            let place = if place == "as the caller's" { place.to_owned() } else { format!("as that from {place}") };
            out.push(Wanted { spec: Some(format!("python {minor}.*")), reason: place });
        }
        out.push(Wanted { spec: Some("python".into()), reason: "the newest that resolves".into() });
        Ok(out)
    }

    fn solve(
        &self,
        spec: &Spec,
        platform: &Platform,
        python: Option<String>,
        old: Option<&Lock>,
        upgrade: &Upgrade,
    ) -> Result<Solution, RigError> {
        let kept = |name: &String| !upgrade.all && !upgrade.packages.contains(name);
        let locked: Vec<Package> = old
            .into_iter()
            .flat_map(|old| old.conda_packages_for(platform))
            .filter(|(package, _)| kept(&package.name))
            .map(|(package, source)| package_of(package, source))
            .collect();
        let request = SolveRequest {
            channels: channels(self.settings, spec),
            base: base_of(spec),
            specs: spec.conda.iter().cloned().chain(python).collect(),
            constraints: Vec::new(),
            platform: platform.conda_name().to_owned(),
            virtual_packages: spec.virtual_packages.clone(),
            locked,
            priority: match spec.channel_priority {
                ChannelPriority::Strict => Priority::Strict,
                ChannelPriority::Flexible => Priority::Flexible,
                ChannelPriority::Disabled => Priority::Disabled,
            },
            exclude_newer: spec.exclude_newer.clone(),
        };
        let stop = || self.reporter.interrupted() || self.deadline.check("resolving", String::new).is_err();
        let solved = open(self.settings, self.home)?.solve(&request, &stop);
        solved.map_err(|error| stopped(error, self.reporter, self.deadline, "resolving"))
    }

    /// An interpreter for uv to run with; what it resolves for is said apart.
    pub(crate) fn any_interpreter(&self, minor: &str) -> Result<interpreter::Interpreter, RigError> {
        let found = interpreter::discover(self.settings, self.home)?;
        let same = found.iter().find(|(one, _)| one.minor() == minor).or_else(|| found.first());
        same.map(|(one, _)| one.clone()).ok_or_else(|| RigError::NoPython { wanted: minor.to_owned(), found: Vec::new() })
    }
}

/// `python:` of a spec as a match spec: `3.11` means any 3.11.
fn python_spec(text: &str) -> String {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.matches('.').count() {
        _ if !plain => format!("python {text}"),
        0 | 1 => format!("python {text}.*"),
        _ => format!("python =={text}"),
    }
}

/// The Python of a solution.
fn python_in(solution: &Solution, spec: &Spec) -> Result<(String, String), RigError> {
    let python = solution.packages.iter().find(|package| package.name == "python");
    let python =
        python.ok_or_else(|| RigError::NoPython { wanted: spec.python.clone().unwrap_or("3.8 and newer".into()), found: Vec::new() })?;
    let implementation = if python.build.contains("pypy") { "pypy" } else { "cpython" };
    Ok((python.version.clone(), implementation.to_owned()))
}

/// Packages as a lock keeps them, each with who asks for it.
fn with_askers(packages: Vec<Package>, spec: &Spec) -> Result<Vec<LockedPackage>, RigError> {
    let asked: Vec<String> = spec.conda.iter().filter_map(|text| name_of(text).ok()).collect();
    let needs: Vec<(String, Vec<String>)> = packages
        .iter()
        .map(|package| (package.name.clone(), package.depends.iter().filter_map(|text| name_of(text).ok()).collect()))
        .collect();
    let mut out = Vec::with_capacity(packages.len());
    for package in packages {
        let mut via: Vec<String> = needs.iter().filter(|(_, needs)| needs.contains(&package.name)).map(|(name, _)| name.clone()).collect();
        if asked.contains(&package.name) || package.name == "python" {
            via.push(format!("<{}>", spec.name));
        }
        via.sort();
        via.dedup();
        out.push(locked_of(package, via)?);
    }
    Ok(out)
}

/// Adds conda's side to uv's explanation of a collision.
fn both_sides(error: RigError, provided: &Provided, conda: &[LockedPackage], spec: &Spec) -> RigError {
    let RigError::Unsolvable { name, python, mut explanation, hint } = error else { return error };
    let text = explanation.join(" ");
    let mut clash = None;
    for (pypi, version, conda_name) in &provided.packages {
        let named = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).any(|word| word == pypi);
        let Some(package) = conda.iter().find(|package| package.name == *conda_name).filter(|_| named) else { continue };
        let askers = if package.via.is_empty() { format!("<{}>", spec.name) } else { package.via.join(", ") };
        explanation.push(format!("conda provides `{pypi}` {version}, asked for by {askers}; pip packages have to fit it"));
        clash.get_or_insert(pypi.clone());
    }
    let hint = match clash {
        Some(pypi) => Some(format!("ask conda for a `{pypi}` that both sides take, or move the pip package to `dependencies.conda`")),
        None => hint,
    };
    RigError::Unsolvable { name, python, explanation, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_means_the_same_as_with_venv() {
        assert_eq!(python_spec("3.11"), "python 3.11.*");
        assert_eq!(python_spec("3.11.7"), "python ==3.11.7");
        assert_eq!(python_spec(">=3.9,<3.12"), "python >=3.9,<3.12");
    }
}
