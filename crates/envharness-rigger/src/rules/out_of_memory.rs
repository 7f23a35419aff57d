//! `out-of-memory`: the limit of memory, or the machine's own, was too small.

use super::{Finding, Rule, Scene};
use crate::plan::Change;
use crate::problem::{Problem, Stage};

pub(super) struct OutOfMemory;

const SIGNS: [&str; 5] =
    ["MemoryError", "std::bad_alloc", "Cannot allocate memory", "DefaultCPUAllocator: can't allocate memory", "Out of memory"];

impl Rule for OutOfMemory {
    fn name(&self) -> &'static str {
        "out-of-memory"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let killed = problem.stage == Stage::Check && problem.exit_code == Some(137);
        if problem.stage < Stage::Imports || !(killed || SIGNS.iter().any(|sign| problem.text.contains(sign))) {
            return None;
        }
        let machine = scene.world.memory;
        let Some(limit) = scene.plan.spec().resources.memory else {
            let cause = format!("the machine's {} of memory were not enough", envharness_spec::human_bytes(machine));
            return Some(Finding::new(self.name(), cause).offer("make the task smaller (batch, workers), or run it on a larger machine"));
        };
        let finding = Finding::new(self.name(), format!("the limit of {} of memory was not enough", envharness_spec::human_bytes(limit)));
        let doubled = limit.saturating_mul(2);
        let allowed = machine / 10 * 9;
        Some(if limit >= allowed {
            finding.offer("the limit is nearly all that the machine has: make the task smaller, or run it on a larger machine")
        } else {
            finding.way(vec![Change::Memory(Some(envharness_spec::format_bytes(doubled.min(allowed))))])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn the_limit_is_raised_while_the_machine_allows() {
        let mut scene = scene(&[], &[]);
        scene.world.memory = 8 << 30;
        let found = scene.ask(&OutOfMemory, &problem(Stage::Check, None, "MemoryError")).unwrap();
        assert!(found.ways.is_empty() && found.offer.is_some());
        scene.plan.base.resources.memory = Some(1 << 30);
        let found = scene.ask(&OutOfMemory, &problem(Stage::Check, None, "MemoryError")).unwrap();
        let [way] = &found.ways[..] else { panic!("{found:?}") };
        let Change::Memory(Some(size)) = &way[0] else { panic!("{way:?}") };
        assert_eq!(envharness_spec::parse_bytes(size), Some(2 << 30));
        scene.plan.base.resources.memory = Some(8 << 30);
        assert!(scene.ask(&OutOfMemory, &problem(Stage::Check, None, "MemoryError")).unwrap().ways.is_empty());
    }
}
