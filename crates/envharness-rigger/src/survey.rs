//! What the machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use envharness_rig::{Rig, discover};

use crate::error::RiggerError;
use crate::world::World;

/// Looks at the machine and at the caller's own environment.
pub(crate) fn survey(rig: &Rig) -> Result<World, RiggerError> {
    let found = discover(&rig.settings, &rig.home)?;
    let mut pythons: Vec<String> = Vec::new();
    for (interpreter, _) in &found {
        if !pythons.contains(&interpreter.minor()) {
            pythons.push(interpreter.minor());
        }
    }
    let active = active_python(rig);
    let preferred = active.as_ref().and_then(|path| envharness_rig::query(&rig.home, path).ok()).map(|interpreter| interpreter.minor());
    let (gpus, cuda) = gpus();
    Ok(World {
        pythons,
        preferred,
        installed: active.as_deref().map(installed).unwrap_or_default(),
        gpus,
        cuda,
        memory: memory(),
        today: day_of(envharness_store::now()),
        python_downloads: rig.settings.text("python_downloads") != "never" && !rig.settings.flag("offline"),
    })
}

fn active_python(rig: &Rig) -> Option<PathBuf> {
    let settings = &rig.settings;
    let variable = |name: &str| settings.variable(name).filter(|value| !value.is_empty()).map(|dir| Path::new(dir).join("bin/python"));
    let named = settings.caller_python.clone().or_else(|| variable("VIRTUAL_ENV")).or_else(|| variable("CONDA_PREFIX"));
    named.filter(|path| path.is_file())
}

/// Modules and the distributions that installed metadata names for them; nothing of the environment is imported.
fn installed(python: &Path) -> BTreeMap<String, Vec<String>> {
    const ASK: &str = "
import json, sys
try:
    from importlib.metadata import packages_distributions
    found = {module: sorted(set(names)) for module, names in packages_distributions().items()}
except Exception:
    found = {}
json.dump(found, sys.stdout)
";
    let output = Command::new(python).args(["-I", "-B", "-c", ASK]).output();
    output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
}

fn gpus() -> (u32, Option<String>) {
    let present = std::fs::read_dir("/proc/driver/nvidia/gpus").map(|list| list.count()).unwrap_or(0);
    let present = u32::try_from(present).unwrap_or(0);
    if present == 0 {
        return (0, None);
    }
    let output = Command::new("nvidia-smi").output().ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let cuda = output.as_deref().and_then(|text| text.split("CUDA Version:").nth(1)?.split_whitespace().next().map(ToOwned::to_owned));
    (present, cuda)
}

fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes * 1024)
}

/// The day of a time in seconds, ISO (Howard Hinnant's civil calendar).
pub(crate) fn day_of(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "days since 1970 fit by far")]
    let days = (seconds / 86_400.0).floor() as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(day_of(0.0), "1970-01-01");
        assert_eq!(day_of(951_782_400.0), "2000-02-29");
        assert_eq!(day_of(1_620_000_000.0), "2021-05-03");
    }
}
