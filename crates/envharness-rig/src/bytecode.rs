//! Byte-code, compiled once per package and interpreter and shared by every prefix that has the package.
//!
//! Files are PEP 552 unchecked-hash ones: an interpreter takes them without looking at the source, so the builder alone
//! makes them, from sources whose hash equals the one in the wheel's `RECORD`, or in the conda package's record. A conda
//! prefix has its standard library inside, which is compiled in the same way. The path in byte-code is relative to the
//! prefix, so that the same source has the same byte-code everywhere; an interpreter puts the real one in at import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use envharness_sandbox::{ChildOptions, configure, lower_priority};
use envharness_spec::Digest;
use envharness_store::{Home, seal};
use serde_json::json;

use crate::error::{IoContext as _, RigError};
use crate::guest;
use crate::interpreter::Interpreter;
use crate::prefix::site_packages;

/// How urgently byte-code is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits: all cores.
    Now,
    /// Behind other work: one core, lowest priority.
    Background,
}

/// One installed package and its modules.
struct Installed {
    /// Where its byte-code is kept; named by the hashes of its sources.
    kept: PathBuf,
    /// Source path relative to the prefix, and its hash (url-safe base64).
    modules: Vec<(String, String)>,
}

/// Brings the byte-code of a prefix up to date; returns how many files were added.
///
/// # Errors
/// [`RigError`]; the prefix works without byte-code too.
pub fn compile(home: &Home, key: &str, interpreter: &Interpreter, urgency: Urgency) -> Result<usize, RigError> {
    let prefix = home.prefix(key);
    let packages = installed(home, &prefix, interpreter);
    let (ready, missing): (Vec<&Installed>, Vec<&Installed>) = packages.iter().partition(|p| p.kept.is_dir());
    let mut added = link(home, key, interpreter, &ready)?;
    match urgency {
        Urgency::Now => {
            let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            compile_all(home, &prefix, interpreter, &missing, workers, urgency)?;
            added += link(home, key, interpreter, &missing)?;
        }
        Urgency::Background => {
            for package in missing {
                compile_all(home, &prefix, interpreter, &[package], 1, urgency)?;
                added += link(home, key, interpreter, &[package])?;
            }
        }
    }
    Ok(added)
}

/// Starts the background work in a thread that gives way to all other work and ends with the process.
pub fn spawn(home: &Home, key: &str, interpreter: &Interpreter) {
    let (home, key, interpreter) = (home.clone(), key.to_owned(), interpreter.clone());
    let thread = std::thread::Builder::new().name("envharness-compile".into());
    let started = thread.spawn(move || {
        // On Linux a priority belongs to a thread; 0 names the calling one.
        lower_priority(0);
        // One compiler at a time per prefix; the next create goes on where this one ends.
        let lock = home.lock(&format!("{key}.compile"));
        let Ok(Some(_guard)) = envharness_store::FileLock::try_acquire(&lock, true) else { return };
        if let Err(error) = compile(&home, &key, &interpreter, Urgency::Background) {
            tracing::debug!(%error, "byte-code was not compiled");
        }
    });
    if let Err(error) = started {
        tracing::debug!(%error, "no thread for byte-code");
    }
}

fn installed(home: &Home, prefix: &Path, interpreter: &Interpreter) -> Vec<Installed> {
    let build = Digest::of(format!("relative\n{}\n{}\n{}", interpreter.implementation, interpreter.version, interpreter.build));
    let root = home.bytecode().join(format!("{}-{}", interpreter.cache_tag, &build.hex()[..12]));
    let mut packages = conda_modules(prefix, interpreter);
    let of_conda: BTreeSet<String> = packages.iter().flat_map(|(_, modules)| modules.iter().map(|(path, _)| path.clone())).collect();
    for (name, mut modules) in wheel_modules(&site_packages(prefix, interpreter), &format!("lib/{}/site-packages", interpreter.library)) {
        modules.retain(|(path, _)| !of_conda.contains(path));
        packages.push((name, modules));
    }
    let mut out = Vec::new();
    for (name, mut modules) in packages.into_iter().filter(|(_, modules)| !modules.is_empty()) {
        modules.sort();
        let identity: String = modules.iter().map(|(path, hash)| format!("{path},{hash}\n")).collect();
        out.push(Installed { kept: root.join(format!("{name}-{}", &Digest::of(identity).hex()[..16])), modules });
    }
    out.sort_by(|a, b| a.kept.cmp(&b.kept));
    out
}

/// A package's name, and its modules with their hashes.
type Modules = (String, Vec<(String, String)>);

/// The modules of wheels, by their `RECORD`s.
fn wheel_modules(site: &Path, base: &str) -> Vec<Modules> {
    let entries = fs::read_dir(site).into_iter().flatten().flatten();
    let mut out = Vec::new();
    for folder in entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "dist-info")) {
        let Ok(record) = fs::read_to_string(folder.join("RECORD")) else { continue };
        let modules = record.lines().filter_map(|line| {
            let mut parts = line.rsplitn(3, ',');
            let (_, hash, path) = (parts.next()?, parts.next()?, parts.next()?);
            let module = path.ends_with(".py") && !path.starts_with(['/', '.', '"']);
            Some((format!("{base}/{path}"), hash.strip_prefix("sha256=")?.to_owned())).filter(|_| module)
        });
        out.push((folder.file_stem().unwrap_or_default().to_string_lossy().into_owned(), modules.collect()));
    }
    out
}

/// The modules of conda packages, by `conda-meta`. Files in which the prefix was replaced are left out: each prefix has
/// its own, and the byte-code is shared.
fn conda_modules(prefix: &Path, interpreter: &Interpreter) -> Vec<Modules> {
    let library = format!("lib/{}/", interpreter.library);
    let entries = fs::read_dir(prefix.join("conda-meta")).into_iter().flatten().flatten();
    let mut out = Vec::new();
    for file in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let Some(record) = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok()) else {
            continue;
        };
        let paths = record["paths_data"]["paths"].as_array().cloned().unwrap_or_default();
        let modules = paths.iter().filter_map(|item| {
            let path = item["_path"].as_str().filter(|path| path.starts_with(&library) && path.ends_with(".py"))?;
            let hash = item["sha256"].as_str().filter(|_| item["sha256_in_prefix"].is_null())?;
            Some((path.to_owned(), base64_of(hash)?))
        });
        out.push((file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), modules.collect()));
    }
    out
}

/// A hexadecimal hash as `RECORD` writes it.
fn base64_of(hex: &str) -> Option<String> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|i| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()).collect::<Option<_>>()?;
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let group = u32::from(three[0]) << 16 | u32::from(*three.get(1).unwrap_or(&0)) << 8 | u32::from(*three.get(2).unwrap_or(&0));
        for place in 0..=three.len() {
            out.push(char::from(LETTERS[(group >> (18 - 6 * place)) as usize & 63]));
        }
    }
    Some(out)
}

/// `numpy/core/x.py` -> `numpy/core/__pycache__/x.cpython-311.pyc`.
fn cached_name(module: &str, tag: &str) -> String {
    let (folder, file) = module.rsplit_once('/').unwrap_or(("", module));
    let stem = file.strip_suffix(".py").unwrap_or(file);
    let slash = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{slash}__pycache__/{stem}.{tag}.pyc")
}

fn link(home: &Home, key: &str, interpreter: &Interpreter, packages: &[&Installed]) -> Result<usize, RigError> {
    let prefix = home.prefix(key);
    let mut additions = Vec::new();
    for package in packages {
        for (module, _) in &package.modules {
            let name = cached_name(module, &interpreter.cache_tag);
            let source = package.kept.join(&name);
            if source.exists() && !prefix.join(&name).exists() {
                additions.push((name, source));
            }
        }
    }
    if additions.is_empty() { Ok(0) } else { Ok(home.amend_prefix(key, &additions)?) }
}

fn compile_all(
    home: &Home,
    prefix: &Path,
    interpreter: &Interpreter,
    packages: &[&Installed],
    workers: usize,
    urgency: Urgency,
) -> Result<(), RigError> {
    if packages.is_empty() {
        return Ok(());
    }
    let folder = home.temporary("compile")?;
    // Modules are dealt out by size, so that workers end together.
    let mut jobs: Vec<(u64, String)> = Vec::new();
    let mut staged: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for (number, package) in packages.iter().enumerate() {
        let target = folder.path().join(number.to_string());
        fs::create_dir_all(&target).on("create", &target)?;
        for (module, hash) in &package.modules {
            let source = prefix.join(module);
            let size = fs::metadata(&source).map_or(0, |m| m.len());
            let line = json!([source, target.join(cached_name(module, &interpreter.cache_tag)), hash, module]);
            jobs.push((size, line.to_string()));
        }
        staged.insert(target, package.kept.clone());
    }
    run(home, interpreter, jobs, workers, urgency)?;
    // One flush for all: a name must not outlive its content over a power cut.
    home.sync()?;
    for (from, to) in staged {
        seal(&from).on("seal", &from)?;
        let parent = to.parent().unwrap_or(&to);
        fs::create_dir_all(parent).on("create", parent)?;
        unseal(&from);
        match fs::rename(&from, &to) {
            Ok(()) => {}
            Err(_) if to.is_dir() => {}
            Err(error) => return Err(error).on("keep", &to),
        }
    }
    Ok(())
}

/// Has workers compile: jobs with their sizes, as `compile.py` reads them.
fn run(home: &Home, interpreter: &Interpreter, mut jobs: Vec<(u64, String)>, workers: usize, urgency: Urgency) -> Result<(), RigError> {
    jobs.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.cmp(other)));
    let script = guest::ensure(home)?.join("envharness_guest/compile.py");
    let mut children = Vec::new();
    for worker in 0..workers.min(jobs.len()) {
        let lines: String = jobs.iter().skip(worker).step_by(workers).map(|(_, line)| format!("{line}\n")).collect();
        let mut command = Command::new(&interpreter.path);
        // Isolated mode would not read the seed, which decides the order of sets in byte-code.
        command.args(["-s", "-S", "-B", "-W", "ignore", "-c", START]).arg(&script).env_clear().env("PYTHONHASHSEED", "0");
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        configure(&mut command, &ChildOptions { new_session: true, die_with_parent: true, ..ChildOptions::default() });
        let mut child = command.spawn().on("start", &interpreter.path)?;
        if urgency == Urgency::Background {
            lower_priority(child.id());
        }
        // The jobs are read before any is done, so writing them never waits for the compiler.
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(lines.as_bytes());
        }
        children.push(child);
    }
    for mut child in children {
        let status = child.wait().on("wait for", &interpreter.path)?;
        if !status.success() {
            return Err(RigError::Program { program: "python", action: "compile byte-code".into(), output: String::new() });
        }
    }
    Ok(())
}

/// Runs a script without its folder, or the current one, on the path.
const START: &str = "import sys; del sys.path[0]; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))";

/// The byte-code of modules of a prefix that is no part of the store: what is kept, what can be, and, in `scratch`, that of
/// modules which no record has. Modules and the names of their byte-code are relative to the prefix.
///
/// # Errors
/// [`RigError`].
pub(crate) fn for_image(
    home: &Home,
    prefix: &Path,
    interpreter: &Interpreter,
    modules: &[String],
    scratch: &Path,
) -> Result<BTreeMap<String, PathBuf>, RigError> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted: BTreeSet<&String> = modules.iter().collect();
    let mut packages = installed(home, prefix, interpreter);
    packages.retain(|package| package.modules.iter().any(|(module, _)| wanted.contains(module)));
    let missing: Vec<&Installed> = packages.iter().filter(|package| !package.kept.is_dir()).collect();
    compile_all(home, prefix, interpreter, &missing, workers, Urgency::Now)?;
    let recorded: BTreeMap<&String, &Path> =
        packages.iter().flat_map(|package| package.modules.iter().map(|(module, _)| (module, package.kept.as_path()))).collect();
    let mut jobs = Vec::new();
    let mut out = BTreeMap::new();
    for module in modules {
        let name = cached_name(module, &interpreter.cache_tag);
        let path = match recorded.get(module) {
            Some(kept) => kept.join(&name),
            None => {
                let source = prefix.join(module);
                let data = fs::read(&source).on("read", &source)?;
                let target = scratch.join(&name);
                let line = json!([source, target, base64_of(Digest::of(&data).hex()), module]);
                jobs.push((data.len() as u64, line.to_string()));
                target
            }
        };
        out.insert(name, path);
    }
    run(home, interpreter, jobs, workers, Urgency::Now)?;
    // What does not compile, such as a template, has none.
    out.retain(|_, path| path.is_file());
    Ok(out)
}

/// A folder that is moved must be writable itself.
fn unseal(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_as_record_has_it() {
        let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(base64_of(hex).as_deref(), Some("47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"));
        assert_eq!(base64_of("zz"), None);
    }
}
