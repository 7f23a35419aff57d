//! The environment variables of a context's processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use envharness_spec::{Gpu, SecretSource, Spec};

use crate::conda::Activation;
use crate::error::RigError;
use crate::process::{self, Input, RunLimits};
use crate::settings::Settings;

/// Variables of the caller that say how its own Python or environment is set up.
const DROPPED: [&str; 12] = [
    "VIRTUAL_ENV",
    "VIRTUAL_ENV_PROMPT",
    "PYENV_VERSION",
    "PYENV_VIRTUAL_ENV",
    "_OLD_VIRTUAL_PATH",
    "_OLD_VIRTUAL_PS1",
    "PS1",
    "__PYVENV_LAUNCHER__",
    "POETRY_ACTIVE",
    "PIPENV_ACTIVE",
    "PYTEST_CURRENT_TEST",
    "ENVHARNESS_GUEST",
];
/// Families of such variables.
const DROPPED_PREFIXES: [&str; 7] = ["PYTHON", "CONDA_", "_CE_", "MAMBA_", "UV_", "PIP_", "PYENV_"];
/// Members of those families that say nothing about an environment.
const KEPT: [&str; 4] = ["PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONFAULTHANDLER", "PYTHONUTF8"];
/// What hides GPUs, by maker.
const GPU_VARIABLES: [&str; 4] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];

/// A command that gives a secret may ask a vault, but must not hang a run.
const SECRET_TIMEOUT: Duration = Duration::from_secs(60);

/// What a context adds to the environment.
pub(crate) struct Place<'a> {
    pub id: &'a str,
    pub prefix: &'a Path,
    pub bin: &'a Path,
    pub workdir: &'a Path,
    pub guest: &'a Path,
    pub home: &'a Path,
    pub own_tmp: bool,
    pub is_conda: bool,
    pub activation: &'a Activation,
    /// The variables to begin with, where they are not the caller's.
    pub inherited: Option<&'a BTreeMap<String, String>>,
}

/// The environment of a process: the caller's without its own Python's traces, then the context's, then the spec's.
pub(crate) fn of_process(settings: &Settings, spec: &Spec, place: &Place<'_>) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> = place
        .inherited
        .unwrap_or_else(|| settings.variables())
        .iter()
        .filter(|(name, _)| {
            let family = DROPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !KEPT.contains(&name.as_str());
            !family && !DROPPED.contains(&name.as_str()) && !spec.secrets.contains_key(*name)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let own = place.activation.path.iter().fold(String::new(), |own, folder| format!("{own}{folder}:"));
    out.insert("PATH".into(), own + &path(settings, place));
    let prefix = place.prefix.display().to_string();
    for name in &place.activation.unset {
        out.remove(name);
    }
    if place.is_conda {
        // As `conda activate PATH` sets it; uv takes another name for a base environment and refuses to install there.
        out.insert("CONDA_DEFAULT_ENV".into(), prefix.clone());
        out.insert("CONDA_SHLVL".into(), "1".into());
    }
    out.extend(place.activation.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    if !prefix.is_empty() {
        out.insert(if place.is_conda { "CONDA_PREFIX" } else { "VIRTUAL_ENV" }.into(), prefix);
    }
    for (name, value) in [
        ("PYTHONNOUSERSITE", "1".to_owned()),
        ("ENVHARNESS_CONTEXT", place.id.to_owned()),
        ("ENVHARNESS_WORKDIR", place.workdir.display().to_string()),
        ("ENVHARNESS_GUEST", place.guest.display().to_string()),
        ("ENVHARNESS_HOME", place.home.display().to_string()),
        ("ENVHARNESS_SPEC_DIGEST", spec.digest().to_string()),
        ("ENVHARNESS_SPEC_NAME", spec.name.clone()),
    ] {
        out.insert(name.into(), value);
    }
    if spec.resources.gpu == Some(Gpu::None) {
        out.extend(GPU_VARIABLES.map(|name| (name.to_owned(), String::new())));
    }
    if place.own_tmp {
        // A folder of the host's /tmp would not be there; programs then take /tmp itself.
        for name in ["TMPDIR", "TMP", "TEMP"] {
            if out.get(name).is_some_and(|value| value.starts_with("/tmp")) {
                out.remove(name);
            }
        }
    }
    if spec.writable {
        // The shared byte-code is never compared with its sources, and here sources may change.
        out.insert("PYTHONPYCACHEPREFIX".into(), place.workdir.with_file_name("pycache").display().to_string());
    }
    out.extend(spec.env_vars.iter().map(|(name, value)| (name.clone(), value.clone())));
    out
}

/// The context's programs first, then the caller's, without those of the caller's own environment.
fn path(settings: &Settings, place: &Place<'_>) -> String {
    if let Some(inherited) = place.inherited {
        let rest = inherited.get("PATH").map_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", String::as_str);
        return if place.bin.as_os_str().is_empty() { rest.to_owned() } else { format!("{}:{rest}", place.bin.display()) };
    }
    let bin = place.bin;
    let own: Vec<String> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| settings.variable(name)).map(|dir| format!("{dir}/bin")).collect();
    let rest = settings.variable("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let rest = rest.split(':').filter(|dir| !own.iter().any(|mine| mine == dir) && !dir.ends_with("/.pyenv/shims") && !dir.is_empty());
    std::iter::once(bin.display().to_string()).chain(rest.map(str::to_owned)).collect::<Vec<_>>().join(":")
}

/// Takes the secrets of a spec for one process.
///
/// # Errors
/// [`RigError::Secret`] names the variable, never a value.
pub(crate) fn secrets(settings: &Settings, spec: &Spec, interrupted: &dyn Fn() -> bool) -> Result<BTreeMap<String, String>, RigError> {
    let mut out = BTreeMap::new();
    for (name, source) in &spec.secrets {
        let missing = |reason: String| RigError::Secret { name: name.clone(), reason };
        let value = match source {
            SecretSource::Env(variable) => {
                settings.variable(variable).map(str::to_owned).ok_or_else(|| missing(format!("the variable {variable} is not set")))?
            }
            SecretSource::Command(command) => {
                let (program, args) = command.split_first().ok_or_else(|| missing("its command is empty".into()))?;
                let marker = format!("ENVHARNESS_RUN={}", envharness_store::random_suffix(16));
                let limits = RunLimits { timeout: Some(SECRET_TIMEOUT), no_output: None };
                let mut process = Command::new(program);
                process.args(args).env("ENVHARNESS_RUN", marker.trim_start_matches("ENVHARNESS_RUN="));
                let output = process::run(&mut process, &marker, None, Input::Closed, limits, &mut |_, _| {}, interrupted, &mut |_| {})
                    .map_err(|e| missing(e.to_string()))?;
                if output.exit_code != 0 {
                    return Err(missing(format!("`{program}` ended with exit code {}", output.exit_code)));
                }
                String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned()
            }
        };
        out.insert(name.clone(), value);
    }
    Ok(out)
}

/// Replaces the values of secrets by stars.
pub(crate) fn mask(text: &str, secrets: &BTreeMap<String, String>) -> String {
    let mut out = text.to_owned();
    for value in secrets.values().filter(|value| value.len() >= 4) {
        if out.contains(value.as_str()) {
            out = out.replace(value.as_str(), "****");
        }
    }
    out
}

/// How many GPUs the machine has: device nodes of the NVIDIA and AMD drivers.
pub(crate) fn gpus_present() -> u32 {
    let count = |folder: &str, prefix: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|n| n.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))).count()
    };
    let nvidia = count("/dev", "nvidia");
    u32::try_from(if nvidia > 0 { nvidia } else { count("/dev/dri", "renderD") }).unwrap_or(u32::MAX)
}
