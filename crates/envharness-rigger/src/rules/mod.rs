//! Named rules: each knows one kind of failure, its cause, and what mends it or what a person should do.
//!
//! A rule proposes; the [gate](crate::gate) decides whether a proposal is taken. One file a rule, each with its test.

mod binary_break;
mod build_fails;
mod compiler_missing;
mod conflicting_pins;
mod cuda_too_new;
mod data_missing;
mod display_missing;
mod extra_missing;
mod gone_name;
mod gpu_absent;
mod module_missing;
mod network_needed;
mod older_versions;
mod out_of_memory;
mod system_library;
mod wrong_python;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::evidence::Evidence;
use crate::plan::{Change, Plan};
use crate::problem::Problem;
use crate::world::World;

/// What a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The plan that failed.
    pub plan: &'a Plan,
    /// Versions that were locked, by name.
    pub versions: &'a BTreeMap<String, String>,
    /// What the task says.
    pub evidence: &'a Evidence,
    /// The machine.
    pub world: &'a World,
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// The cause, for a person.
    pub cause: String,
    /// Ways to mend it, the likeliest first.
    pub ways: Vec<Vec<Change>>,
    /// What only a person should do: offered, not done.
    pub offer: Option<String>,
}

impl Finding {
    fn new(rule: &'static str, cause: impl Into<String>) -> Self {
        Self { rule, cause: cause.into(), ways: Vec::new(), offer: None }
    }

    fn way(mut self, changes: Vec<Change>) -> Self {
        self.ways.push(changes);
        self
    }

    fn offer(mut self, text: impl Into<String>) -> Self {
        self.offer = Some(text.into());
        self
    }
}

/// A rule.
pub trait Rule: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What it makes of a failure; `None` where it does not know it.
    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding>;
}

/// The rules, those that know more exactly first.
pub static RULES: [&dyn Rule; 16] = [
    &gpu_absent::GpuAbsent,
    &cuda_too_new::CudaTooNew,
    &system_library::SystemLibrary,
    &binary_break::BinaryBreak,
    &display_missing::DisplayMissing,
    &wrong_python::WrongPython,
    &extra_missing::ExtraMissing,
    &gone_name::GoneName,
    &module_missing::ModuleMissing,
    &conflicting_pins::ConflictingPins,
    &compiler_missing::CompilerMissing,
    &build_fails::BuildFails,
    &out_of_memory::OutOfMemory,
    &network_needed::NetworkNeeded,
    &data_missing::DataMissing,
    &older_versions::OlderVersions,
];

/// The first rule that knows a failure.
pub fn diagnose(problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
    RULES.iter().find_map(|rule| rule.find(problem, scene))
}

#[cfg(test)]
mod scenes;
