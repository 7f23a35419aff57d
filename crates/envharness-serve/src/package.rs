//! An env package: a folder with `openenv.yaml`, an application and dependencies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use envharness_rig::{Rig, discover, load_spec, satisfies};
use envharness_spec::source::parse_yaml;
use envharness_spec::{Digest, Requirement, Spec};
use serde::Deserialize;
use serde_json::json;

use crate::error::ServeError;
use crate::memory::digest_of_sources;

/// A dependency that is put in place of the real `openenv`, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The requirement.
    pub requirement: String,
    /// The reason: which source imports it.
    pub reason: String,
}

/// What the folder says.
#[derive(Debug, Clone)]
pub struct EnvPackage {
    /// The folder.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// The application, `server.app:app`.
    pub app: String,
    /// The port that it asks for.
    pub port: Option<u16>,
    /// The specifier of its Python.
    pub python: Option<String>,
    /// Its dependencies as written, without `openenv`.
    pub dependencies: Vec<String>,
    /// The requirement of the real `openenv`, as written.
    pub openenv: Option<String>,
    /// What is put in its place.
    pub replacements: Vec<Replacement>,
    /// Why the application is run as it is, where it is.
    pub own_routes: Option<String>,
    /// Package names and the folders they stand for.
    pub packages: BTreeMap<String, String>,
    /// The digest of its sources.
    pub sources: Digest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Project {
    name: Option<String>,
    version: Option<String>,
    requires_python: Option<String>,
    dependencies: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pyproject {
    project: Option<Project>,
    tool: Tool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tool {
    setuptools: Setuptools,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Setuptools {
    package_dir: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Analysis {
    imports: BTreeMap<String, String>,
    own_routes: Option<String>,
    unreadable: Vec<String>,
}

/// Modules that the real `openenv` brings and a package may import: module, requirement.
const BROUGHT: [(&str, &str); 12] = [
    ("fastmcp", "fastmcp>=3,<4"),
    ("fastapi", "fastapi"),
    ("starlette", "fastapi"),
    ("uvicorn", "uvicorn"),
    ("requests", "requests"),
    ("httpx", "httpx"),
    ("websockets", "websockets"),
    ("yaml", "pyyaml"),
    ("openai", "openai"),
    ("gradio", "gradio"),
    ("huggingface_hub", "huggingface_hub"),
    ("tomli", "tomli"),
];

impl EnvPackage {
    /// Reads a folder. `reference` keeps the real `openenv`.
    ///
    /// # Errors
    /// [`ServeError::Package`], [`ServeError::Target`], [`ServeError::Rig`].
    pub fn read(rig: &Rig, folder: &Path, reference: bool) -> Result<Self, ServeError> {
        let manifest = manifest(folder)?;
        let pyproject = pyproject(folder)?;
        let app = manifest.get("app").cloned();
        let has_app = folder.join("server/app.py").is_file();
        if manifest.is_empty() && !has_app {
            return Err(ServeError::Target {
                reason: format!("{} is no env package: it has neither openenv.yaml nor server/app.py", folder.display()),
                hint: Some("name `module:name` for an application elsewhere".to_owned()),
            });
        }
        let app = app.unwrap_or_else(|| "server.app:app".to_owned());
        let project = pyproject.project.unwrap_or_default();
        let fallback = folder.file_name().map_or_else(|| "environment".to_owned(), |name| name.to_string_lossy().into_owned());
        let name = manifest.get("name").cloned().or_else(|| project.name.clone()).unwrap_or(fallback.clone());
        let version = manifest.get("version").cloned().or(project.version);
        let written = match project.dependencies {
            Some(dependencies) => dependencies,
            None => requirements(rig, folder)?,
        };
        let (mut dependencies, mut openenv) = (Vec::new(), None);
        for text in written {
            let requirement = Requirement::parse(&text).map_err(|(reason, hint)| ServeError::Package {
                path: folder.join("pyproject.toml").display().to_string(),
                reason: format!("`{text}`: {reason}"),
                hint,
            })?;
            match requirement.name.as_deref() {
                Some("openenv" | "openenv-core") => openenv = Some(text),
                _ => dependencies.push(text),
            }
        }
        let application = app.split_once(':').map_or(app.as_str(), |(module, _)| module).replace('.', "/") + ".py";
        let analysis = analyse(rig, folder, &application)?;
        let own_routes = if reference { Some("--reference asks for it".to_owned()) } else { analysis.own_routes.clone() };
        let replacements = if own_routes.is_some() { Vec::new() } else { replacements(&analysis, &dependencies) };
        if own_routes.is_none() {
            dependencies = dependencies.iter().map(|text| bounded(text)).collect();
        }
        for unreadable in &analysis.unreadable {
            tracing::warn!("a source does not parse: {unreadable}");
        }
        Ok(Self {
            packages: packages(folder, &pyproject.tool.setuptools.package_dir, &fallback),
            port: manifest.get("port").and_then(|port| port.parse().ok()),
            python: project.requires_python,
            sources: digest_of_sources(folder, true),
            folder: folder.to_owned(),
            name,
            version,
            app,
            dependencies,
            openenv,
            replacements,
            own_routes,
        })
    }

    /// The spec of its environment. `with` are further packages.
    ///
    /// # Errors
    /// [`ServeError::Rig`] for what is no requirement.
    pub fn spec(&self, with: &[String]) -> Result<Spec, ServeError> {
        let mut deps = self.dependencies.clone();
        if self.own_routes.is_some() {
            deps.push(self.openenv.clone().unwrap_or_else(|| "openenv==0.10.0".to_owned()));
            deps.push("uvicorn".to_owned());
        }
        deps.extend(self.replacements.iter().map(|replacement| replacement.requirement.clone()));
        deps.extend(with.iter().cloned());
        spec_of(&self.name, self.python.as_deref(), &deps)
    }
}

/// A spec of packages alone.
///
/// # Errors
/// [`ServeError::Rig`].
pub(crate) fn spec_of(name: &str, python: Option<&str>, deps: &[String]) -> Result<Spec, ServeError> {
    let name: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' }).collect();
    let name = name.trim_matches(['-', '.', '_']).chars().take(63).collect::<String>();
    let name = if name.is_empty() { "environment".to_owned() } else { name };
    let mut unique: Vec<&String> = Vec::new();
    for dep in deps {
        if !unique.contains(&dep) {
            unique.push(dep);
        }
    }
    let mut mapping = json!({"name": name, "deps": unique});
    if let Some(python) = python {
        mapping["python"] = json!(python);
    }
    Spec::from_mapping(&mapping.to_string(), &envharness_spec::NoFiles).map_err(|error| ServeError::Rig(error.into()))
}

/// The scalars of `openenv.yaml`.
fn manifest(folder: &Path) -> Result<BTreeMap<String, String>, ServeError> {
    let path = folder.join("openenv.yaml");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(broken(&path, &error.to_string(), None)),
    };
    let root = parse_yaml(&text, &path.display().to_string()).map_err(|error| ServeError::Rig(error.into()))?;
    let keys = ["spec_version", "name", "type", "runtime", "app", "port", "version", "description", "author"];
    let mut found: BTreeMap<String, String> = keys.iter().filter_map(|key| Some(((*key).to_owned(), root.get(key)?.scalar()?))).collect();
    // A manifest without a word we know is a manifest all the same.
    found.entry("type".to_owned()).or_default();
    if let Some(app) = found.get("app").filter(|app| app.split_once(':').is_none()) {
        return Err(broken(&path, &format!("`app: {app}` is not `module:name`"), Some("as in `app: server.app:app`")));
    }
    Ok(found)
}

fn broken(path: &Path, reason: &str, hint: Option<&str>) -> ServeError {
    ServeError::Package { path: path.display().to_string(), reason: reason.to_owned(), hint: hint.map(ToOwned::to_owned) }
}

fn pyproject(folder: &Path) -> Result<Pyproject, ServeError> {
    let path = folder.join("pyproject.toml");
    match fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).map_err(|error| broken(&path, &error.to_string(), None)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Pyproject::default()),
        Err(error) => Err(broken(&path, &error.to_string(), None)),
    }
}

/// The requirements of a folder without dependencies in its `pyproject.toml`.
fn requirements(rig: &Rig, folder: &Path) -> Result<Vec<String>, ServeError> {
    let found = ["server/requirements.txt", "requirements.txt"].iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let Some(path) = found else { return Ok(Vec::new()) };
    let spec = load_spec(&path, &rig.settings)?;
    Ok(spec.pip.iter().map(ToString::to_string).collect())
}

/// The names by which the folder can be imported.
fn packages(folder: &Path, declared: &BTreeMap<String, String>, fallback: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (name, place) in declared {
        if !name.is_empty() && folder.join(place).join("__init__.py").is_file() {
            out.insert(name.clone(), folder.join(place).canonicalize().unwrap_or_else(|_| folder.join(place)).display().to_string());
        }
    }
    if folder.join("__init__.py").is_file() {
        out.entry(fallback.to_owned()).or_insert_with(|| folder.display().to_string());
    }
    out
}

/// Asks a Python for what the sources import.
fn analyse(rig: &Rig, folder: &Path, application: &str) -> Result<Analysis, ServeError> {
    let script = rig.guest()?.join("envharness_guest/serve/analyse.py");
    let found = discover(&rig.settings, &rig.home)?;
    // The newest reads the newest syntax.
    let python = found
        .iter()
        .filter(|(interpreter, _)| satisfies(interpreter, ">=3.8"))
        .max_by_key(|(interpreter, _)| version_key(&interpreter.version));
    let Some((python, _)) = python else {
        return Err(ServeError::Target { reason: "no Python from 3.8 on was found to read the package with".to_owned(), hint: None });
    };
    let ran = Command::new(&python.path).args(["-I", "-S"]).arg(&script).arg(folder).arg(application).output();
    let output = ran.map_err(|error| broken(folder, &format!("its sources cannot be read: {error}"), None))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        broken(folder, &format!("its sources cannot be read: {said}"), None)
    })
}

fn version_key(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)).collect()
}

/// A dependency of the package's own within the bounds that the real `openenv` would have put on it.
fn bounded(text: &str) -> String {
    const BOUNDS: [(&str, &str); 2] = [("fastmcp", ">=3,<4"), ("pydantic", ">=2")];
    let Ok(requirement) = Requirement::parse(text) else { return text.to_owned() };
    let bound = BOUNDS.iter().find(|(name, _)| requirement.name.as_deref() == Some(name));
    let Some((_, bound)) = bound.filter(|_| !text.contains('@')) else { return text.to_owned() };
    let (front, marker) = text.split_once(';').map_or((text, String::new()), |(front, marker)| (front, format!(";{marker}")));
    let comma = if requirement.version_specifiers().is_empty() { "" } else { "," };
    let front = front.trim().trim_end_matches(')').replace('(', "");
    format!("{front}{comma}{bound}{marker}")
}

/// What stands in for the real `openenv`, by what the sources import.
fn replacements(analysis: &Analysis, dependencies: &[String]) -> Vec<Replacement> {
    let declared: Vec<String> = dependencies.iter().filter_map(|text| Requirement::parse(text).ok()?.name).collect();
    let has = |name: &str| declared.iter().any(|declared| declared == name);
    let mut out = Vec::new();
    if !has("pydantic") {
        out.push(Replacement {
            requirement: "pydantic>=2".to_owned(),
            reason: "the models of every environment are pydantic's".to_owned(),
        });
    }
    for (module, requirement) in BROUGHT {
        let name = requirement.split(['>', '<', '=']).next().unwrap_or(requirement);
        let inside = |imported: &str| imported == module || imported.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'));
        let direct = analysis.imports.iter().find(|(imported, _)| inside(imported));
        // The tool server's base class needs it, whoever imports it.
        let by_base =
            (module == "fastmcp").then(|| analysis.imports.iter().find(|(imported, _)| imported.ends_with("mcp_environment"))).flatten();
        let Some((imported, place)) = direct.or(by_base) else { continue };
        if !has(name) && !out.iter().any(|r: &Replacement| r.requirement == requirement) {
            out.push(Replacement { requirement: requirement.to_owned(), reason: format!("{place} imports {imported}") });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_keep_the_bounds_of_the_real_openenv() {
        assert_eq!(bounded("fastmcp"), "fastmcp>=3,<4");
        assert_eq!(bounded("fastmcp>=2.0"), "fastmcp>=2.0,>=3,<4");
        assert_eq!(bounded("pydantic[email]>2.1; python_version > '3.8'"), "pydantic[email]>2.1,>=2; python_version > '3.8'");
        assert_eq!(bounded("numpy"), "numpy");
    }
}
