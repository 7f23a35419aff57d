//! A folder: its sources, and every file that says what they need.

use std::path::{Path, PathBuf};

use envharness_rig::Rig;
use walkdir::WalkDir;

use super::{dates, shown, sources, take_spec};
use crate::error::RiggerError;
use crate::evidence::{Evidence, Kind, Need, PythonBound, texts};

/// Folders that hold no code of the task.
const SKIPPED: [&str; 17] = [
    "__pycache__",
    "node_modules",
    "build",
    "dist",
    "venv",
    "env",
    "site-packages",
    "egg-info",
    "wandb",
    "runs",
    "logs",
    "data",
    "docs",
    "doc",
    "third_party",
    "vendor",
    "checkpoints",
];
/// Folders whose imports the task itself can do without.
const ASIDE: [&str; 7] = ["tests", "test", "testing", "benchmarks", "examples", "notebooks", "scripts"];
/// The largest file beside the sources that is read.
const MOST_TEXT: u64 = 512 * 1024;

/// Reads a folder.
pub(super) fn read(rig: &Rig, folder: &Path) -> Result<Evidence, RiggerError> {
    let root = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_env_package = root.join("openenv.yaml").is_file() || (root.join("server/app.py").is_file() && root.join("models.py").is_file());
    let mut evidence = Evidence::new(if is_env_package { Kind::EnvPackage } else { Kind::Folder }, &name, root.clone());
    let found = python_files(&root);
    if found.is_empty() && !declares_anything(&root) {
        return Err(RiggerError::Target {
            target: folder.display().to_string(),
            reason: "the folder holds neither Python nor a file of requirements".into(),
            hint: Some("name the folder of the sources".into()),
        });
    }
    sources::follow(rig, found, &mut evidence)?;
    for import in &mut evidence.imports {
        let top = import.place.split('/').next().unwrap_or_default();
        if ASIDE.contains(&top) && import.need != Need::Optional && root.join(top).is_dir() && has_own_code(&root) {
            import.need = Need::Optional;
        }
    }
    let own: Vec<String> = evidence.imports.iter().filter(|i| i.need != Need::Optional).map(|i| top_of(&i.module)).collect();
    evidence.uses.retain(|dotted, place| {
        own.contains(&top_of(dotted)) && !(ASIDE.iter().any(|aside| place.starts_with(&format!("{aside}/"))) && has_own_code(&root))
    });
    declarations(rig, &root, &mut evidence, true);
    if is_env_package {
        openenv(&root, &mut evidence);
    }
    dates(&root, &mut evidence);
    Ok(evidence)
}

fn top_of(dotted: &str) -> String {
    dotted.split('.').next().unwrap_or(dotted).to_owned()
}

/// Whether there is Python beside tests and examples.
fn has_own_code(root: &Path) -> bool {
    let is_own = |path: &PathBuf| {
        let relative = path.strip_prefix(root).unwrap_or(path);
        let top = relative.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
        !ASIDE.contains(&top.as_str()) && top != "setup.py" && top != "conftest.py"
    };
    python_files(root).iter().any(is_own)
}

fn declares_anything(root: &Path) -> bool {
    ["requirements.txt", "pyproject.toml", "environment.yml", "setup.py", "Pipfile", "openenv.yaml"]
        .iter()
        .any(|name| root.join(name).is_file())
}

fn python_files(root: &Path) -> Vec<PathBuf> {
    let keep = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        let hidden = entry.depth() > 0 && name.starts_with('.');
        let skipped = entry.file_type().is_dir() && entry.depth() > 0 && (SKIPPED.contains(&name.as_ref()) || name.ends_with(".egg-info"));
        let environment = entry.file_type().is_dir() && entry.path().join("pyvenv.cfg").is_file();
        !(hidden || skipped || environment)
    };
    // Links are not followed: they may lead out of the folder.
    let entries = WalkDir::new(root).follow_links(false).max_depth(12).sort_by_file_name().into_iter().filter_entry(keep).flatten();
    let is_source = |path: &Path| path.extension().is_some_and(|extension| extension == "py" || extension == "ipynb");
    entries.filter(|entry| entry.file_type().is_file() && is_source(entry.path())).map(walkdir::DirEntry::into_path).take(3_000).collect()
}

/// Everything beside the sources that says what they need. `whole` reads what tells of the project as a whole, too.
pub(super) fn declarations(rig: &Rig, folder: &Path, evidence: &mut Evidence, whole: bool) {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let specs = names.iter().filter(|name| is_requirements(name)).map(|name| folder.join(name)).collect::<Vec<_>>();
    let deeper =
        ["requirements/base.txt", "requirements/main.txt", "requirements/default.txt", "requirements/prod.txt", "server/requirements.txt"];
    for path in specs.into_iter().chain(deeper.iter().map(|name| folder.join(name)).filter(|path| path.is_file())) {
        take_spec(rig, &path, evidence, true);
    }
    let conda = ["environment.yml", "environment.yaml", "conda.yaml", "conda.yml"];
    if let Some(path) = conda.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        take_spec(rig, &path, evidence, true);
    }
    for name in &names {
        let path = folder.join(name);
        let Some(text) = text_of(&path) else { continue };
        let file = shown(&path, &evidence.root);
        match name.as_str() {
            "pyproject.toml" => {
                texts::other_tools(&text, &file, evidence);
                if text.contains("[project]") && text.contains("dependencies") && !text.contains("[tool.poetry.dependencies]") {
                    take_spec(rig, &path, evidence, true);
                } else if let Some(specifier) = requires_python(&text) {
                    evidence.pythons.push(PythonBound { specifier, why: format!("{file} asks for it"), firm: true });
                }
            }
            "Pipfile" => texts::other_tools(&text, &file, evidence),
            "setup.cfg" => texts::setup_cfg(&text, &file, evidence),
            "setup.py" if !whole => {
                let _ = sources::follow(rig, vec![path.clone()], evidence);
            }
            "runtime.txt" | ".python-version" => {
                let version: String = text.trim().trim_start_matches("python-").split('.').take(2).collect::<Vec<_>>().join(".");
                if crate::world::minor(&version).is_some() {
                    evidence.pythons.push(PythonBound { specifier: format!("=={version}.*"), why: format!("{file} has it"), firm: false });
                }
            }
            ".travis.yml" | ".gitlab-ci.yml" | "tox.ini" | "Makefile" if whole => texts::recipe(&text, &file, evidence),
            _ if name.starts_with("Dockerfile") => texts::dockerfile(&text, &file, evidence),
            _ if name.to_lowercase().starts_with("readme") => texts::readme(&text, &file, evidence),
            _ => {}
        }
    }
    let workflows = std::fs::read_dir(folder.join(".github/workflows")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut workflows: Vec<PathBuf> = workflows.filter(|_| whole).collect();
    workflows.sort();
    for path in workflows {
        if let Some(text) = text_of(&path) {
            texts::recipe(&text, &shown(&path, &evidence.root), evidence);
        }
    }
}

/// `requirements.txt` and its kin, those of development and documentation left out.
fn is_requirements(name: &str) -> bool {
    let lower = name.to_lowercase();
    let kin = lower.starts_with("requirements") && (lower.ends_with(".txt") || lower.ends_with(".in"));
    let aside = ["dev", "test", "doc", "lint", "ci", "build", "style"].iter().any(|word| lower.contains(word));
    // The sources of a compiled file say less than it does.
    kin && !aside && !lower.ends_with(".in")
}

fn requires_python(text: &str) -> Option<String> {
    let table = text.parse::<toml::Table>().ok()?;
    table.get("project")?.get("requires-python")?.as_str().map(ToOwned::to_owned)
}

fn text_of(path: &Path) -> Option<String> {
    let metadata = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if metadata.len() > MOST_TEXT { None } else { std::fs::read_to_string(path).ok() }
}

/// An env package imports `openenv`, which the guest answers for; what every model of it needs is asked for in its place.
fn openenv(root: &Path, evidence: &mut Evidence) {
    let file = root.join("openenv.yaml");
    let manifest = text_of(&file).and_then(|text| envharness_spec::source::parse_yaml(&text, "openenv.yaml").ok());
    let application = manifest.as_ref().and_then(|manifest| manifest.get("app")?.scalar());
    evidence.application = Some(application.filter(|text| text.contains(':')).unwrap_or_else(|| "server.app:app".to_owned()));
    if let Some(name) = manifest.as_ref().and_then(|manifest| manifest.get("name")?.scalar()) {
        evidence.name = crate::evidence::spec_name(&name);
    }
    let place = "openenv.yaml, whose models are pydantic's,".to_owned();
    let need = Need::Required;
    evidence.imports.push(crate::evidence::Import { module: "pydantic".into(), names: Vec::new(), place, need, group: None });
    let answered = ["openenv", "openenv_core"];
    evidence.imports.retain(|import| !answered.contains(&top_of(&import.module).as_str()));
    evidence.uses.retain(|dotted, _| !answered.contains(&top_of(dotted).as_str()));
    evidence.declared.retain(|declared| {
        let name = crate::table::normal(crate::table::name_of(&declared.text));
        name != "openenv" && name != "openenv-core"
    });
    // A package imports itself by the name of its folder.
    let own = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    evidence.imports.retain(|import| top_of(&import.module) != own);
    evidence.uses.retain(|dotted, _| top_of(dotted) != own);
}
