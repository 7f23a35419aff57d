//! Python interpreters: finding them, asking them what they are, choosing one.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr as _;

use envharness_spec::Spec;
use envharness_store::Home;
use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};

use crate::error::RigError;
use crate::settings::Settings;
use crate::source_tree;

/// What an interpreter says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// The real path, links resolved.
    pub path: PathBuf,
    /// The full version.
    pub version: String,
    /// `cpython`, `pypy`.
    pub implementation: String,
    /// The tag of its native modules.
    pub soabi: String,
    /// The platform, as `sysconfig` names it.
    pub platform: String,
    /// The build, as `sys.version` has it.
    pub build: String,
    /// Its own prefix.
    pub prefix: PathBuf,
    /// The tag of its byte-code files.
    pub cache_tag: String,
    /// The folder name of its standard library, `python3.11`.
    pub library: String,
}

impl Interpreter {
    /// Major and minor, `3.11`.
    pub fn minor(&self) -> String {
        self.version.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    /// From an answer to [`QUERY`].
    pub(crate) fn told(path: &Path, answer: &[u8]) -> Option<Self> {
        let fields: Vec<&str> = std::str::from_utf8(answer).ok()?.split('\0').collect();
        let [version, implementation, soabi, platform, build, prefix, cache_tag, library]: [&str; 8] = fields.try_into().ok()?;
        let own = ToOwned::to_owned;
        Some(Self {
            path: path.to_owned(),
            version: own(version),
            implementation: own(implementation),
            soabi: own(soabi),
            platform: own(platform),
            build: own(build),
            prefix: PathBuf::from(prefix),
            cache_tag: own(cache_tag),
            library: own(library),
        })
    }

    fn parsed(&self) -> Option<Version> {
        Version::from_str(&self.version).ok()
    }
}

/// An interpreter and why it was taken.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The interpreter.
    pub interpreter: Interpreter,
    /// The reason, for a person.
    pub reason: String,
}

/// Built-in modules alone, where they know it: a prefix without byte-code would compile whatever else this imported.
pub(crate) const QUERY: &str = "
import _imp, posix, sys
system, _, _, _, machine = posix.uname()
if sys.platform == 'linux':
    platform = '%s-%s' % (system.lower(), machine)
else:
    import sysconfig
    platform = sysconfig.get_platform()
soabi = _imp.extension_suffixes()[0]
soabi = soabi[1:soabi.rindex('.')] if soabi.count('.') > 1 else ''
fields = [
    sys.version.split()[0], sys.implementation.name, soabi, platform, sys.version, sys.base_prefix,
    sys.implementation.cache_tag or '', 'python%d.%d' % sys.version_info[:2],
]
posix.write(1, '\\0'.join(fields).encode('utf-8', 'surrogateescape'))
";

/// Asks an interpreter what it is; the answer is remembered until the file changes.
///
/// # Errors
/// [`RigError::BadPython`].
pub fn query(home: &Home, path: &Path) -> Result<Interpreter, RigError> {
    let bad = |reason: String| RigError::BadPython { path: path.display().to_string(), reason };
    let real = path.canonicalize().map_err(|error| bad(error.to_string()))?;
    let metadata = fs::metadata(&real).map_err(|error| bad(error.to_string()))?;
    let stamp = format!("1 {} {} {}.{}", metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec());
    if let Some(known) = home.known_interpreter(&real, &stamp)?
        && let Ok(interpreter) = serde_json::from_str(&known)
    {
        return Ok(interpreter);
    }
    let interpreter = ask(&real, path)?;
    home.remember_interpreter(&real, &stamp, &serde_json::to_string(&interpreter).unwrap_or_default())?;
    Ok(interpreter)
}

/// Asks an interpreter what it is, and remembers nothing.
///
/// # Errors
/// [`RigError::BadPython`].
pub(crate) fn ask(real: &Path, path: &Path) -> Result<Interpreter, RigError> {
    let bad = |reason: String| RigError::BadPython { path: path.display().to_string(), reason };
    if is_script(real) {
        return Err(bad("it is a script, not an interpreter".into()));
    }
    let output = Command::new(real)
        // No byte-code: a conda prefix has its standard library inside, and must stay as it was published.
        .args(["-I", "-S", "-B", "-c", QUERY])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| bad(error.to_string()))?;
    Interpreter::told(real, &output.stdout).ok_or_else(|| {
        let text = String::from_utf8_lossy(&output.stderr);
        bad(text.lines().last().unwrap_or("it gives no answer").to_owned())
    })
}

/// pyenv's shims and wrappers are shell scripts: what they would start depends on the folder.
fn is_script(path: &Path) -> bool {
    let mut magic = [0_u8; 2];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"#!"
}

/// Where interpreters may be: path and where it was found, the likeliest first.
fn candidates(settings: &Settings, home: &Home) -> Vec<(PathBuf, &'static str)> {
    let variable = |name: &str| settings.variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = variable("HOME").unwrap_or_default();
    let mut out: Vec<(PathBuf, &'static str)> = Vec::new();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        out.extend(variable(name).map(|dir| (dir.join("bin/python"), "the active environment")));
    }
    let pyenv = variable("PYENV_ROOT").unwrap_or_else(|| user.join(".pyenv"));
    let path: Vec<PathBuf> = settings.variable("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    let mut installed: Vec<PathBuf> = list(&pyenv.join("versions"));
    if path.iter().any(|dir| *dir == pyenv.join("shims")) {
        // What the shims would start, without starting them.
        let chosen = variable("PYENV_VERSION").or_else(|| fs::read_to_string(pyenv.join("version")).ok().map(PathBuf::from));
        let chosen = chosen.map(|text| text.to_string_lossy().split([':', '\n']).next().unwrap_or_default().trim().to_owned());
        out.extend(chosen.filter(|v| !v.is_empty()).map(|v| (pyenv.join("versions").join(v).join("bin/python"), "pyenv's choice")));
    }
    for dir in &path {
        let mut found: Vec<PathBuf> = list(dir).into_iter().filter(|file| is_python_name(file)).collect();
        found.sort_by_key(|file| file.as_os_str().len());
        out.extend(found.into_iter().map(|file| (file, "PATH")));
    }
    installed.sort();
    out.extend(installed.into_iter().rev().map(|dir| (dir.join("bin/python"), "pyenv")));
    for base in [".conda/envs", "miniconda3/envs", "anaconda3/envs", "miniforge3/envs", "mambaforge/envs", ".local/share/mamba/envs"] {
        out.extend(list(&user.join(base)).into_iter().map(|dir| (dir.join("bin/python"), "conda")));
    }
    for base in ["miniconda3", "anaconda3", "miniforge3", "mambaforge"] {
        out.push((user.join(base).join("bin/python"), "conda"));
    }
    for base in [home.root().join("pythons"), user.join(".local/share/uv/python")] {
        out.extend(list(&base).into_iter().map(|dir| (dir.join("bin/python"), "uv")));
    }
    out
}

fn list(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn is_python_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let Some(rest) = name.strip_prefix("python") else { return false };
    rest.is_empty() || rest.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Every interpreter on the machine from 3.8 on, each once, the likeliest first.
///
/// # Errors
/// [`RigError::Store`]; an interpreter that does not work is left out.
pub fn discover(settings: &Settings, home: &Home) -> Result<Vec<(Interpreter, &'static str)>, RigError> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for (path, place) in candidates(settings, home) {
        let Ok(real) = path.canonicalize() else { continue };
        if !real.is_file() || !seen.insert(real.clone()) {
            continue;
        }
        match query(home, &real) {
            Ok(interpreter) if supported(&interpreter) => out.push((interpreter, place)),
            Ok(_) | Err(RigError::BadPython { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(out)
}

fn supported(interpreter: &Interpreter) -> bool {
    interpreter.parsed().is_some_and(|version| version >= Version::new([3, 8]) && version < Version::new([4]))
}

/// Whether an interpreter answers `python:`: a version (`3.9` means any 3.9) or a specifier.
pub fn satisfies(interpreter: &Interpreter, wanted: &str) -> bool {
    let Some(version) = interpreter.parsed() else { return false };
    if let Ok(exact) = Version::from_str(wanted) {
        return version.release().starts_with(exact.release());
    }
    VersionSpecifiers::from_str(wanted).is_ok_and(|set| set.contains(&version))
}

/// The path that a spec gives for its Python: an interpreter's, or that of an environment's folder.
pub(crate) fn path_of(spec: &Spec) -> Option<PathBuf> {
    let text = spec.python.as_deref().filter(|text| text.contains('/') || text.starts_with(['.', '~']))?;
    let path = source_tree::absolute(text, &spec.base.clone().unwrap_or_default());
    Some(if path.is_dir() { path.join("bin/python") } else { path })
}

/// The interpreters to try for a spec, in order, with the reason for each.
///
/// # Errors
/// [`RigError::NoPython`] lists what was found; [`RigError::BadPython`] for a path that is none.
pub fn choices(settings: &Settings, home: &Home, spec: &Spec) -> Result<Vec<Choice>, RigError> {
    if let Some(path) = path_of(spec) {
        return Ok(vec![Choice { interpreter: query(home, &path)?, reason: "the spec names its path".into() }]);
    }
    let wanted = spec.python.as_deref();
    let caller = settings.caller_python.as_ref().and_then(|path| query(home, path).ok()).filter(supported);
    let found = discover(settings, home)?;
    let mut out: Vec<Choice> = Vec::new();
    let mut push = |interpreter: &Interpreter, reason: String| {
        if !out.iter().any(|choice| choice.interpreter.path == interpreter.path) {
            out.push(Choice { interpreter: interpreter.clone(), reason });
        }
    };
    let fits = |interpreter: &Interpreter| wanted.is_none_or(|wanted| satisfies(interpreter, wanted));
    let because = wanted.map_or_else(String::new, |wanted| format!(", and the spec asks for {wanted}"));
    if let Some(caller) = caller.as_ref().filter(|i| fits(i)) {
        push(caller, format!("the caller's{because}"));
    } else if let Some((first, place)) = found.first().filter(|(i, _)| fits(i)) {
        push(first, format!("from {place}{because}"));
    }
    let mut rest: Vec<&(Interpreter, &str)> = found.iter().filter(|(i, _)| fits(i)).collect();
    rest.sort_by_key(|(i, _)| std::cmp::Reverse(i.parsed()));
    for (interpreter, place) in rest {
        push(
            interpreter,
            wanted.map_or_else(|| format!("the newest that resolves, from {place}"), |w| format!("the spec asks for {w}; from {place}")),
        );
    }
    if out.is_empty() {
        let describe = |(i, place): &(Interpreter, &str)| format!("Python {} at {} ({place})", i.version, i.path.display());
        let found = found.iter().map(describe).collect();
        return Err(RigError::NoPython { wanted: wanted.unwrap_or("3.8 and newer").to_owned(), found });
    }
    Ok(out)
}

/// The interpreter for a lock: the very version, else another of the same minor version.
///
/// # Errors
/// [`RigError::NoPython`].
pub fn for_lock(settings: &Settings, home: &Home, spec: &Spec, version: &str) -> Result<Interpreter, RigError> {
    let same_minor = |interpreter: &Interpreter| version.split('.').take(2).eq(interpreter.version.split('.').take(2));
    if let Some(named) = path_of(spec).map(|path| query(home, &path)).transpose()?
        && same_minor(&named)
    {
        return Ok(named);
    }
    let caller = settings.caller_python.as_ref().and_then(|path| query(home, path).ok());
    if let Some(caller) = caller.as_ref().filter(|caller| caller.version == version) {
        return Ok(caller.clone());
    }
    let found = discover(settings, home)?;
    if let Some((exact, _)) = found.iter().find(|(i, _)| i.version == version) {
        return Ok(exact.clone());
    }
    let same = caller.into_iter().chain(found.iter().map(|(i, _)| i.clone())).find(same_minor);
    same.ok_or_else(|| RigError::NoPython {
        wanted: version.to_owned(),
        found: found.iter().map(|(i, place)| format!("Python {} at {} ({place})", i.version, i.path.display())).collect(),
    })
}
