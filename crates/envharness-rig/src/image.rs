//! A prefix for an image: installed as if it lay at a fixed path, and never part of the store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use envharness_spec::{Backend, Lock, LockedSource, Platform, Spec};
use envharness_store::{Home, Temporary};
use serde_json::Value;

use crate::bytecode;
use crate::conda;
use crate::error::{IoContext as _, RigError};
use crate::event::{Event, Reporter};
use crate::interpreter::{self, Interpreter};
use crate::prefix::{Builder, replace, stand_on};
use crate::rig::Rig;
use crate::settings::Source;

/// What is staged.
#[derive(Debug, Clone, Copy)]
pub struct StageRequest<'a> {
    /// The path that it will have in the image.
    pub target: &'a str,
    /// The image's own Python, for a lock whose packages stand on one.
    pub python: Option<&'a str>,
}

/// A package and its files, relative to the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedPackage {
    /// Its name.
    pub name: String,
    /// Its files.
    pub files: Vec<String>,
}

/// A prefix that lies ready for an image; it goes away with its value.
pub struct Staged {
    /// Its folder.
    pub path: PathBuf,
    /// Its packages.
    pub packages: Vec<StagedPackage>,
    /// The folder of its modules, `lib/python3.11`.
    pub library: String,
    /// The variables that its processes want.
    pub variables: Vec<(String, String)>,
    /// Folders for PATH, the first first.
    pub folders: Vec<String>,
    target: String,
    interpreter: Interpreter,
    home: Home,
    folder: Temporary,
}

impl Rig {
    /// Installs a lock as if it lay at a path of an image.
    ///
    /// # Errors
    /// [`RigError`]; nothing is left behind.
    pub fn stage(&self, spec: &Spec, lock: &Lock, request: StageRequest<'_>, reporter: &dyn Reporter) -> Result<Staged, RigError> {
        refuse_editable(lock)?;
        let mut settings = self.settings.clone();
        // Links into this machine's downloads mean nothing elsewhere.
        if settings.text("link_mode") == "symlink" {
            settings.values.insert("link_mode".into(), ("copy".into(), Source::Default));
        }
        let deadline = self.deadline(spec, None);
        let builder = Builder { settings: &settings, home: &self.home, reporter, deadline };
        let folder = self.home.temporary("image")?;
        let path = folder.path().join("prefix");
        let started = std::time::Instant::now();
        let count = lock.packages_for(&Platform::current()).count();
        reporter.event(&Event::Building { packages: count });
        let target = request.target.to_owned();
        let interpreter = if lock.backend == Backend::Conda {
            builder.build_conda(Path::new(&target), lock, spec, folder.path(), false)?;
            let own = conda::python_of(&path);
            let real = own.canonicalize().on("find", &own)?;
            interpreter::ask(&real, &own)?
        } else {
            let interpreter = interpreter::for_lock(&settings, &self.home, spec, &lock.python.version)?;
            builder.build_venv(&interpreter, lock, spec, folder.path(), false)?;
            stand_on(&path, request.python.unwrap_or("/usr/local/bin/python3"))?;
            interpreter
        };
        let mut staged = Staged {
            path: path.clone(),
            packages: Vec::new(),
            library: format!("lib/{}", interpreter.library),
            variables: Vec::new(),
            folders: vec![format!("{}/bin", request.target)],
            target,
            interpreter,
            home: self.home.clone(),
            folder,
        };
        if lock.backend == Backend::Conda {
            staged.activate(conda::compute(&settings, &path)?);
            staged.variables.push(("CONDA_PREFIX".into(), request.target.into()));
            staged.conda_packages()?;
        } else {
            staged.variables.push(("VIRTUAL_ENV".into(), request.target.into()));
        }
        staged.wheels()?;
        // The guest is no part of an image, so that nobody need look for it at every start.
        let guest = path.join(&staged.library).join("site-packages/_envharness_guest.pth");
        fs::remove_file(&guest).on("remove", &guest)?;
        reporter.event(&Event::Built { packages: count, elapsed: started.elapsed() });
        Ok(staged)
    }
}

/// A package whose source is used where it lies cannot be elsewhere.
fn refuse_editable(lock: &Lock) -> Result<(), RigError> {
    let editable = lock.packages.iter().find(|package| matches!(package.source, LockedSource::Path { editable: true, .. }));
    match editable {
        None => Ok(()),
        Some(package) => {
            let hint = Some("leave `-e` away in the spec, so that it is installed".to_owned());
            Err(RigError::Context { id: package.name.clone(), reason: "is editable, and an image cannot hold it".into(), hint })
        }
    }
}

impl Staged {
    /// Takes over what activation scripts set; paths are those of the image.
    fn activate(&mut self, activation: conda::Activation) {
        let here = self.path.display().to_string();
        let moved = |text: String| text.replace(&here, &self.target);
        let set: Vec<(String, String)> = activation.set.into_iter().map(|(name, value)| (name, moved(value))).collect();
        let folders: Vec<String> = activation.path.into_iter().map(moved).collect();
        self.variables.extend(set);
        self.folders.splice(0..0, folders);
    }

    /// The files of conda packages by their records, which are rid of what is this machine's alone.
    fn conda_packages(&mut self) -> Result<(), RigError> {
        let folder = self.path.join("conda-meta");
        let mut paths: Vec<PathBuf> = fs::read_dir(&folder).on("list", &folder)?.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
            let text = fs::read_to_string(path).on("read", path)?;
            let Ok(mut record) = serde_json::from_str::<Value>(&text) else { continue };
            let listed = record["paths_data"]["paths"].as_array().cloned().unwrap_or_default();
            let mut files: Vec<String> = listed.iter().filter_map(|item| item["_path"].as_str()).map(str::to_owned).collect();
            files.extend(record["files"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push(format!("conda-meta/{name}"));
            files.sort();
            files.dedup();
            if let Some(fields) = record.as_object_mut() {
                for own in ["extracted_package_dir", "package_tarball_full_path", "link", "requested_spec", "requested_specs"] {
                    fields.remove(own);
                }
            }
            record.sort_all_objects();
            replace(path, &format!("{record:#}\n"))?;
            let package = record["name"].as_str().map_or_else(|| name.into_owned(), str::to_owned);
            self.packages.push(StagedPackage { name: package, files });
        }
        // When and by what it was installed says nothing about the image.
        let _ = fs::remove_file(folder.join("history"));
        Ok(())
    }

    /// The files of wheels by their `RECORD`s. A conda package's own are conda's.
    fn wheels(&mut self) -> Result<(), RigError> {
        let of_conda: std::collections::HashSet<&String> = self.packages.iter().flat_map(|package| &package.files).collect();
        let site = format!("{}/site-packages", self.library);
        let folder = self.path.join(&site);
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(stem) = name.strip_suffix(".dist-info") else { continue };
            let Ok(record) = fs::read_to_string(path.join("RECORD")) else { continue };
            if of_conda.contains(&format!("{site}/{name}/RECORD")) {
                continue;
            }
            let project = stem.rsplit_once('-').map_or(stem, |(project, _)| project).to_lowercase().replace('_', "-");
            found.push(StagedPackage { name: project, files: record.lines().filter_map(|line| path_of_record(line, &site)).collect() });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        self.packages.extend(found);
        Ok(())
    }

    /// What decides byte-code beside its source.
    pub fn bytecode_identity(&self) -> String {
        let Interpreter { implementation, version, build, cache_tag, .. } = &self.interpreter;
        format!("{cache_tag} {implementation} {version} {build}")
    }

    /// Compiles modules, which are relative to the prefix, as unchecked-hash files. Gives the compiled file of each name.
    ///
    /// # Errors
    /// [`RigError::Program`] when the interpreter fails.
    pub fn compile(&self, modules: &[String]) -> Result<BTreeMap<String, PathBuf>, RigError> {
        bytecode::for_image(&self.home, &self.path, &self.interpreter, modules, &self.folder.path().join("compiled"))
    }
}

/// The path in a line of `RECORD`, relative to the prefix.
fn path_of_record(line: &str, site: &str) -> Option<String> {
    let path = if let Some(quoted) = line.strip_prefix('"') {
        quoted.split_once("\",")?.0.replace("\"\"", "\"")
    } else {
        line.rsplitn(3, ',').nth(2)?.to_owned()
    };
    let mut parts: Vec<&str> = site.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_record_are_paths_of_the_prefix() {
        let site = "lib/python3.11/site-packages";
        let path = |line: &str| path_of_record(line, site);
        assert_eq!(path("six.py,sha256=abc,34").as_deref(), Some("lib/python3.11/site-packages/six.py"));
        assert_eq!(path("../../../bin/tool,sha256=abc,34").as_deref(), Some("bin/tool"));
        assert_eq!(path("\"a,b.py\",sha256=abc,34").as_deref(), Some("lib/python3.11/site-packages/a,b.py"));
        assert_eq!(path("six-1.dist-info/RECORD,,").as_deref(), Some("lib/python3.11/site-packages/six-1.dist-info/RECORD"));
        assert_eq!(path("../../../../../etc/passwd,,"), None);
    }
}
