//! From evidence to a plan. Pure: the same evidence on the same machine gives the same plan.

mod date;
mod packages;
mod python;

use serde::Serialize;

use crate::evidence::{Evidence, Need, PythonBound};
use crate::plan::{Plan, Reasoned};
use crate::table::TABLE;
use crate::world::World;

pub(crate) use date::year_of_age;
pub(crate) use packages::provide;
pub use python::Chosen;
pub(crate) use python::{current_python, permits};

/// A plan, and what a person should know of how it came about.
#[derive(Debug, Clone, Serialize)]
pub struct Decision {
    /// The plan.
    pub plan: Plan,
    /// Remarks: refusals, choices between look-alikes, what is optional and left out.
    pub remarks: Vec<String>,
    /// Modules that nothing provides, with what comes nearest.
    pub missing: Vec<Missing>,
}

/// A module that nothing provides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The module.
    pub module: String,
    /// Where it is imported.
    pub place: String,
    /// Why none was taken.
    pub why: String,
}

/// How a person wants it.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The Python.
    pub python: Option<String>,
    /// The day, or `none`.
    pub date: Option<String>,
    /// Further packages.
    pub with: Vec<String>,
}

/// Decides.
///
/// # Errors
/// A sentence for a person, where the evidence contradicts itself.
pub fn decide(evidence: &Evidence, world: &World, wishes: &Wishes) -> Result<Decision, Contradiction> {
    let mut plan = Plan { name: evidence.name.clone(), base: evidence.base.clone(), ..Plan::default() };
    plan.base.pip.clear();
    plan.base.python = None;
    plan.base.exclude_newer = None;
    if let Some(description) = &evidence.base.description {
        plan.description.clone_from(description);
    }
    let mut remarks = Vec::new();
    plan.exclude_newer = date::choose(evidence, world, wishes.date.as_deref());
    let day = plan.exclude_newer.as_ref().map(|day| day.value.clone());
    let missing = packages::choose(evidence, world, &wishes.with, &mut plan, &mut remarks);
    let chosen = python::choose(evidence, world, wishes.python.as_deref(), day.as_deref(), &wheels(&plan))?;
    plan.python = Some(Reasoned { value: chosen.version, reason: chosen.reason });
    if !plan.base.conda.is_empty() {
        plan.backend = "conda packages are asked for".into();
    }
    gpu(evidence, world, &mut remarks);
    for import in evidence.imports.iter().filter(|import| import.need == Need::Optional) {
        let provided = plan.packages.values().any(|wanted| wanted.module.as_deref() == import.module.split('.').next());
        let remark = format!("`{}` ({}) is optional and was left out; `--with` adds it", import.module, import.place);
        if !provided && !remarks.contains(&remark) && !evidence.needed().iter().any(|n| n.module == import.module) {
            remarks.push(remark);
        }
    }
    for place in &evidence.unknown {
        remarks.push(format!("{place} imports a module whose name is made at run time; name it by `--with` if the check misses it"));
    }
    if let Some(path) = evidence.paths.first() {
        let reason = "the task's own modules lie there".to_owned();
        plan.env.insert("PYTHONPATH".into(), Reasoned { value: path.clone(), reason });
    }
    Ok(Decision { plan, remarks, missing })
}

/// Up to which Python the releases that are asked for have wheels.
fn wheels(plan: &Plan) -> Vec<PythonBound> {
    let known = plan.packages.values().filter_map(|wanted| Some((TABLE.newest_python(&wanted.requirement)?, &wanted.requirement)));
    known
        .filter_map(|(python, requirement)| {
            let next = crate::world::minor(python)? + 1;
            let why = format!("{requirement} has wheels up to {python}");
            Some(PythonBound { specifier: format!("<3.{next}"), why, firm: false })
        })
        .collect()
}

fn gpu(evidence: &Evidence, world: &World, remarks: &mut Vec<String>) {
    let Some(place) = evidence.gpu.first() else { return };
    remarks.push(match (world.gpus, &world.cuda) {
        (0, _) => format!("{place} can use a GPU and this machine has none: builds for CPU are enough here, the default ones do for both"),
        (count, Some(cuda)) => format!("{place} uses a GPU; {count} here, and the driver goes up to CUDA {cuda}"),
        (count, None) => format!("{place} uses a GPU; {count} here, and the driver does not say its CUDA"),
    });
}

/// Evidence that cannot be true together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Contradiction {
    /// What stands against what.
    pub what: String,
    /// What may help.
    pub hint: Option<String>,
}

#[cfg(test)]
mod tests;
