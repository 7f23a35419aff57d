//! Specs from files.

use std::fs;
use std::path::{Path, PathBuf};

use envharness_spec::{Files, Format, Node, Spec, SpecError, Value, source};

use crate::error::RigError;
use crate::settings::Settings;

/// Reads included files relative to a folder.
pub struct DiskFiles {
    /// The folder.
    pub base: PathBuf,
}

impl Files for DiskFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        let path = self.base.join(path);
        let bytes = fs::read(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
        String::from_utf8(bytes).map_err(|_| format!("`{}` is not UTF-8", path.display()))
    }
}

/// Names that a folder's own spec may have, the likeliest first.
const PROJECT_SPECS: [&str; 8] = [
    "task_spec.yaml",
    "task_spec.yml",
    "task_spec.toml",
    "task_spec.json",
    "environment.yml",
    "pylock.toml",
    "pyproject.toml",
    "requirements.txt",
];

/// The spec of the project's folder: `spec:` of the settings, else a file with one of the usual names.
///
/// # Errors
/// [`SpecError`] when there is none.
pub fn find_project_spec(settings: &Settings) -> Result<PathBuf, RigError> {
    let set = settings.text("spec");
    if !set.is_empty() {
        return Ok(settings.project.join(set));
    }
    PROJECT_SPECS.iter().map(|name| settings.project.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        let error = SpecError::new(&settings.project.display().to_string(), "holds no spec");
        error.hint(format!("name one, or set `spec:` in envharness.yaml; looked for {}", PROJECT_SPECS.join(", "))).into()
    })
}

/// Reads a spec file of any known format.
///
/// # Errors
/// [`RigError::Spec`] with file, line and key; [`RigError::Io`].
pub fn load_spec(path: &Path, settings: &Settings) -> Result<Spec, RigError> {
    let name = path.display().to_string();
    if path.is_dir() {
        let inside = PROJECT_SPECS.iter().map(|name| path.join(name)).find(|path| path.is_file());
        return match inside {
            Some(file) => load_spec(&file, settings),
            None => Err(SpecError::new(&name, "is a folder without a spec").hint("name the file").into()),
        };
    }
    if fs::metadata(path).is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_fifo(&m.file_type())) {
        return Err(SpecError::new(&name, "is a pipe, not a file").into());
    }
    let bytes = fs::read(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            let near = nearby(path).map_or_else(|| "check the path".to_owned(), |near| format!("did you mean `{}`?", near.display()));
            RigError::Spec(SpecError::new(&name, "there is no such file").hint(near))
        }
        _ => RigError::Io { action: "read", path: path.to_owned(), source },
    })?;
    let text = decode(&bytes).map_err(|message| SpecError::new(&name, message).hint("save the file as UTF-8"))?;
    if let Some(mut spec) = crate::conda::read(&text, &name)? {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        spec.base = Some(std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned()));
        spec.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        return Ok(with_defaults(spec, settings));
    }
    let format = Format::of_file(&name).ok_or_else(|| {
        SpecError::new(&name, "its format is not known by its name")
            .hint("use .yaml, .toml, .json, .txt, .py, pyproject.toml, pylock.toml or pixi.lock")
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let base = std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned());
    let files = DiskFiles { base: base.clone() };
    let mut spec = if path.file_name().is_some_and(|name| name == "envharness.yaml") {
        from_settings_file(&text, &name, &files)?
    } else {
        Spec::parse_with(&text, format, &name, &files)?
    };
    spec.base = Some(base);
    spec.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    Ok(with_defaults(spec, settings))
}

/// `spec:` in envharness.yaml as a mapping.
fn from_settings_file(text: &str, name: &str, files: &DiskFiles) -> Result<Spec, RigError> {
    let root: Node = source::parse_yaml(text, name)?;
    match root.get("spec") {
        Some(Node { value: Value::Map(_), .. }) => {
            let json = envharness_spec::import::to_json(root.get("spec").unwrap_or(&root)).to_string();
            Ok(Spec::from_mapping(&json, files)?)
        }
        _ => Err(SpecError::new(name, "holds settings and no spec").hint("add a `spec:` mapping, or name a spec file").into()),
    }
}

/// Fills what the spec leaves to the settings.
pub(crate) fn with_defaults(mut spec: Spec, settings: &Settings) -> Spec {
    let resources = &mut spec.resources;
    resources.cpus = resources.cpus.or_else(|| settings.text("limits.cpus").parse().ok());
    resources.memory = resources.memory.or_else(|| settings.bytes("limits.memory"));
    resources.pids = resources.pids.or_else(|| settings.text("limits.pids").parse().ok());
    spec
}

fn decode(bytes: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) => Err("is UTF-16, not UTF-8".into()),
        Err(error) => Err(format!("is not UTF-8: a wrong byte at {}", error.valid_up_to())),
    }
}

fn nearby(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names: Vec<String> = fs::read_dir(parent).ok()?.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    let wanted = path.file_name()?.to_str()?;
    envharness_spec::nearest(wanted, names.iter().map(String::as_str)).map(|near| path.with_file_name(near))
}
