//! Sources, read by the syntax tree of a Python that is asked for it; their own modules are followed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use envharness_rig::{Rig, discover, satisfies};
use serde::Deserialize;

use super::shown;
use crate::error::RiggerError;
use crate::evidence::{Dated, Declared, Evidence, Import, Kind, Need, PythonBound, Weight, texts};

/// More sources than a task has.
const MOST_SOURCES: usize = 3_000;
/// Longer than any honest sources take to read.
const MOST_TIME: Duration = Duration::from_secs(120);
/// What tells the reader's process.
const MARK: &str = "ENVHARNESS_RUN";

#[derive(Debug, Deserialize)]
struct Answer {
    standard: BTreeSet<String>,
    files: BTreeMap<PathBuf, Source>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Source {
    imports: Vec<Imported>,
    uses: BTreeMap<String, usize>,
    needs: BTreeMap<String, (String, usize)>,
    gone: BTreeMap<String, (String, usize)>,
    gpu: Vec<usize>,
    date: Option<String>,
    error: Option<String>,
    python2: bool,
    shell: Vec<String>,
    version: Option<String>,
    setup: Option<Setup>,
}

#[derive(Debug, Deserialize)]
struct Imported {
    module: String,
    names: Vec<String>,
    level: usize,
    line: usize,
    kind: String,
    group: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Setup {
    install_requires: Option<Vec<String>>,
    python_requires: Option<String>,
}

/// The folder of the project that a script belongs to: the nearest with the marks of one, else its own.
pub(super) fn project_root(home: &Path) -> PathBuf {
    let marked = |folder: &Path| [".git", "pyproject.toml", "setup.py", "setup.cfg"].iter().any(|mark| folder.join(mark).exists());
    home.ancestors().take(5).find(|folder| folder.parent().is_some() && marked(folder)).unwrap_or(home).to_owned()
}

/// Reads sources and, for a script, the task's own modules that they import.
pub(super) fn follow(rig: &Rig, first: Vec<PathBuf>, evidence: &mut Evidence) -> Result<(), RiggerError> {
    let mut seen: BTreeSet<PathBuf> = first.iter().cloned().collect();
    let mut next = first;
    let mut standard = BTreeSet::new();
    while !next.is_empty() && seen.len() <= MOST_SOURCES {
        let answer = ask(rig, &next)?;
        standard.extend(answer.standard);
        let mut more = Vec::new();
        for (path, source) in answer.files {
            take(&path, source, &standard, evidence, &mut more)?;
        }
        next = more.into_iter().filter(|path| seen.insert(path.clone())).collect();
    }
    Ok(())
}

/// Asks the newest Python, which reads the newest syntax.
fn ask(rig: &Rig, paths: &[PathBuf]) -> Result<Answer, RiggerError> {
    let failed = |reason: String| RiggerError::Target { target: "sources".into(), reason, hint: None };
    let script = rig.guest()?.join("envharness_guest/rigger/read.py");
    let found = discover(&rig.settings, &rig.home)?;
    let key = |version: &str| -> Vec<u32> { version.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    let python = found.iter().filter(|(interpreter, _)| satisfies(interpreter, ">=3.8")).max_by_key(|(i, _)| key(&i.version));
    let Some((python, _)) = python else {
        return Err(RiggerError::Target {
            target: "sources".into(),
            reason: "no Python from 3.8 on was found to read them with".into(),
            hint: Some("install one, and put it on PATH".into()),
        });
    };
    let marker = envharness_store::random_suffix(16);
    let mut child = Command::new(&python.path)
        .args(["-I", "-S", "-B"])
        .arg(&script)
        .env_clear()
        .env(MARK, &marker)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    // A name that is no text cannot be asked for, and must not take the others with it.
    let named: Vec<&str> = paths.iter().filter_map(|path| path.to_str()).collect();
    let question = serde_json::to_vec(&named).unwrap_or_default();
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(&question);
    }
    let ended = Arc::new(AtomicBool::new(false));
    let (seen, marked) = (Arc::clone(&ended), format!("{MARK}={marker}"));
    let (over, wait) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if wait.recv_timeout(MOST_TIME) == Err(mpsc::RecvTimeoutError::Timeout) {
            seen.store(true, Ordering::Relaxed);
            envharness_rig::end_marked(&marked);
        }
    });
    let output = child.wait_with_output().map_err(|error| failed(format!("cannot be read: {error}")))?;
    drop(over);
    let _ = watch.join();
    if ended.load(Ordering::Relaxed) {
        return Err(failed(format!("took longer than {} s to read", MOST_TIME.as_secs())));
    }
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        failed(format!("cannot be read: {}", said.lines().last().unwrap_or("no answer")))
    })
}

fn take(
    path: &Path,
    source: Source,
    standard: &BTreeSet<String>,
    evidence: &mut Evidence,
    more: &mut Vec<PathBuf>,
) -> Result<(), RiggerError> {
    let file = shown(path, &evidence.root);
    let is_target = evidence.file.as_deref() == Some(path);
    if let Some(error) = &source.error {
        if source.python2 && is_target {
            return Err(RiggerError::Target {
                target: file,
                reason: format!("it is written for Python 2 ({error}), which cannot be rigged"),
                hint: Some("translate it first, as with `2to3 -w`".into()),
            });
        }
        if is_target {
            let hint = "a newer Python may read it; `python -m py_compile` says where it breaks".to_owned();
            return Err(RiggerError::Target { target: file, reason: error.clone(), hint: Some(hint) });
        }
        evidence.notes.push(format!("{file} was left out: {error}"));
        return Ok(());
    }
    evidence.sources.push(file.clone());
    if let Some(setup) = source.setup {
        for text in setup.install_requires.unwrap_or_default() {
            evidence.declared.push(Declared { text, place: file.clone(), weight: Weight::Declared });
        }
        if let Some(specifier) = setup.python_requires {
            evidence.pythons.push(PythonBound { specifier, why: format!("{file} asks for it"), firm: true });
        }
        // What a setup script imports is for its build.
        return Ok(());
    }
    for (minor, (what, line)) in source.needs {
        let why = format!("{file}:{line} uses {what}");
        evidence.pythons.push(PythonBound { specifier: format!(">=3.{minor}"), why, firm: true });
    }
    for (minor, (what, line)) in source.gone {
        let why = format!("{file}:{line} uses {what}, which 3.{minor} took away");
        evidence.pythons.push(PythonBound { specifier: format!("<3.{minor}"), why, firm: true });
    }
    if let Some(version) = source.version {
        let minor = version.split('.').take(2).collect::<Vec<_>>().join(".");
        evidence.pythons.push(PythonBound { specifier: format!("=={minor}.*"), why: format!("{file} was run with it"), firm: false });
    }
    if let Some(day) = source.date {
        evidence.dates.push(Dated { why: format!("{file} is dated {day}"), day, firm: false });
    }
    evidence.gpu.extend(source.gpu.first().map(|line| format!("{file}:{line}")));
    texts::shell_lines(&source.shell, &file, evidence);
    let imported: Vec<Import> = source.imports.into_iter().filter_map(|i| import(i, path, &file, standard, evidence, more)).collect();
    let of_these =
        |dotted: &str| imported.iter().any(|i| i.need != Need::Optional && dotted.split('.').next() == i.module.split('.').next());
    for (dotted, line) in source.uses {
        if of_these(&dotted) {
            evidence.uses.entry(dotted).or_insert_with(|| format!("{file}:{line}"));
        }
    }
    evidence.imports.extend(imported);
    Ok(())
}

/// An import of another's package; the task's own modules go to `more`.
fn import(
    imported: Imported,
    path: &Path,
    file: &str,
    standard: &BTreeSet<String>,
    evidence: &mut Evidence,
    more: &mut Vec<PathBuf>,
) -> Option<Import> {
    let Imported { module, names, level, line, kind, group } = imported;
    let follows = evidence.kind != Kind::Folder && evidence.kind != Kind::EnvPackage;
    let home = path.parent().unwrap_or(Path::new("/"));
    if level > 0 {
        let base = home.ancestors().nth(level - 1).unwrap_or(home);
        if follows {
            more.extend(files_of(base, &module, &names));
        }
        return None;
    }
    let place = format!("{file}:{line}");
    if module.is_empty() {
        evidence.unknown.push(place);
        return None;
    }
    let top = module.split('.').next().unwrap_or(&module);
    let group = group.map(|number| format!("{file}:{number}"));
    if standard.contains(top) || top == "__main__" {
        // A group with a member in the standard library needs none of the others.
        if let Some(group) = group {
            evidence.notes.push(format!("standard:{group}"));
        }
        return None;
    }
    let root = evidence.root.clone();
    let project = [home.to_owned(), root.clone(), root.join("src")];
    if let Some(base) = project.iter().find(|base| is_own(base, top)) {
        if follows {
            more.extend(files_of(base, &module, &names));
            let start = evidence.file.as_deref().and_then(Path::parent);
            if start.is_some_and(|start| start != base.as_path()) {
                let relative = shown(base, &root);
                let relative = if relative.is_empty() { ".".to_owned() } else { relative };
                if !evidence.paths.contains(&relative) {
                    evidence.paths.push(relative);
                }
            }
        }
        return None;
    }
    if kind == "typing" {
        return None;
    }
    let need = match kind.as_str() {
        "required" => Need::Required,
        "lazy" => Need::Lazy,
        "dynamic" => Need::Dynamic,
        _ => Need::Optional,
    };
    Some(Import { module, names, place, need, group })
}

/// Whether a folder holds a module of the task's own.
fn is_own(base: &Path, top: &str) -> bool {
    let package = base.join(top);
    base.join(format!("{top}.py")).is_file()
        || package.join("__init__.py").is_file()
        || (package.is_dir()
            && std::fs::read_dir(&package).is_ok_and(|list| list.flatten().any(|e| e.path().extension().is_some_and(|x| x == "py"))))
}

/// The files of a module and of those of its names that are modules; never outside the base.
fn files_of(base: &Path, module: &str, names: &[String]) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut place = base.to_owned();
    for part in module.split('.').filter(|part| !part.is_empty()) {
        place.push(part);
        out.push(place.join("__init__.py"));
        out.push(place.with_extension("py"));
    }
    for name in names {
        out.push(place.join(format!("{name}.py")));
        out.push(place.join(name).join("__init__.py"));
    }
    let real = base.canonicalize().unwrap_or_else(|_| base.to_owned());
    out.retain(|path| path.is_file() && path.canonicalize().is_ok_and(|path| path.starts_with(&real)));
    out
}
