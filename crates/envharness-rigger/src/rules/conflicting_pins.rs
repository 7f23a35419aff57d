//! `conflicting-pins`: pins that cannot hold together, or that no file answers any more.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::{Problem, Stage};

pub(super) struct ConflictingPins;

static WOULD_WORK: LazyLock<Regex> = LazyLock::new(|| pattern(r"what would work: `([^`]+)` could be `([^`]+)`"));
static DEAD: LazyLock<Regex> = LazyLock::new(|| pattern(r"there is no version of ([\w.-]+?)(\[[^\]]*\])?==?([\w.]+)"));
static UNKNOWN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"([\w.-]+) was not found in the (?:package registry|provided package locations|cache)"));

impl Rule for ConflictingPins {
    fn name(&self) -> &'static str {
        "conflicting-pins"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        if problem.stage != Stage::Lock || !problem.text.contains("no versions satisfy") {
            return None;
        }
        let text = &problem.text;
        if let Some(found) = UNKNOWN.captures(text) {
            let name = crate::table::normal(&found[1]);
            let nearest = crate::table::TABLE.nearest(&name);
            let near = if nearest.is_empty() { String::new() } else { format!("; nearest: {}", nearest.join(", ")) };
            let mut finding = Finding::new(self.name(), format!("the index has no `{name}`{near}"));
            if scene.plan.packages.contains_key(&name) && !needed(&name, scene) {
                finding = finding.way(vec![Change::Remove(name)]);
            }
            return Some(finding.offer("name the distribution that is meant, or the index that has it"));
        }
        let mut finding = Finding::new(self.name(), "the pins cannot hold together");
        if let Some(found) = DEAD.captures(text) {
            let (name, version) = (found[1].to_owned(), found[3].to_owned());
            finding.cause = format!("no file answers {name}=={version} any more");
            for bound in near(&name, &version) {
                finding = finding.way(vec![Change::Limit(bound)]);
            }
        }
        for found in WOULD_WORK.captures_iter(text) {
            // What other requirements leave open is written down as a bound, so that it can move with them.
            let (pin, other) = (&found[1], &found[2]);
            // A bound that a rule has set is not let go again: it was there for a reason.
            if pin.contains('<') && !pin.contains(['=', '>']) {
                continue;
            }
            let (name, version) = other.split_once("==").unwrap_or((other, ""));
            finding.cause = format!("`{pin}` goes with nothing else that is asked for");
            finding = finding.way(vec![Change::Limit(format!("{name}=={version}"))]);
        }
        if let Some(day) = scene.plan.exclude_newer.as_ref() {
            finding.cause = format!("{}, of what was there on {}", finding.cause, day.value);
            finding = finding.way(vec![Change::ExcludeNewer(None)]);
        }
        // Every exact pin becomes a bound from below.
        let loosened: Vec<Change> = scene
            .plan
            .packages
            .iter()
            .filter_map(|(name, wanted)| {
                let version = wanted.requirement.specifiers.strip_prefix("==")?;
                (!version.contains([',', '*'])).then(|| Change::Limit(format!("{name}>={version}")))
            })
            .collect();
        if !loosened.is_empty() {
            finding = finding.way(loosened);
        }
        Some(finding)
    }
}

fn needed(name: &str, scene: Scene<'_>) -> bool {
    scene.evidence.needed().iter().any(|import| crate::table::normal(import.module.split('.').next().unwrap_or("")) == name)
}

/// The same patch line, then the same minor line, then anything newer, then anything older.
fn near(name: &str, version: &str) -> Vec<String> {
    let parts: Vec<&str> = version.split('.').collect();
    let mut out = Vec::new();
    if parts.len() > 2 {
        out.push(format!("{name}=={}.{}.*", parts[0], parts[1]));
    }
    if parts.len() > 1 {
        out.push(format!("{name}=={}.*", parts[0]));
    }
    out.push(format!("{name}>={version}"));
    out.push(format!("{name}<{version}"));
    out
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn a_dead_pin_goes_to_its_neighbour() {
        let text = "no versions satisfy `x` on Python 3.11.7\nBecause there is no version of numpy==1.21.99 and you require numpy==1.21.99, your requirements are unsatisfiable.";
        let found = scene(&["numpy==1.21.99"], &[]).ask(&ConflictingPins, &problem(Stage::Lock, None, text)).unwrap();
        assert_eq!(found.ways[0], [Change::Limit("numpy==1.21.*".into())]);
    }

    #[test]
    fn what_would_work_is_tried_before_all_pins_are_loosened() {
        let text = "no versions satisfy `x` on Python 3.11.7\nBecause a depends on b\nwhat would work: `gymnasium==0.29.1` could be `gymnasium==0.26.3`";
        let scene = scene(&["gymnasium==0.29.1", "ray==2.5.1"], &[]);
        let found = scene.ask(&ConflictingPins, &problem(Stage::Lock, None, text)).unwrap();
        assert_eq!(found.ways[0], [Change::Limit("gymnasium==0.26.3".into())]);
        assert_eq!(found.ways[1], [Change::Limit("gymnasium>=0.29.1".into()), Change::Limit("ray>=2.5.1".into())]);
    }

    #[test]
    fn a_name_that_the_index_lacks() {
        let text = "no versions satisfy `x` on Python 3.11\nBecause nunpy was not found in the package registry and you require nunpy";
        let found = scene(&["nunpy"], &[]).ask(&ConflictingPins, &problem(Stage::Lock, None, text)).unwrap();
        assert!(found.cause.contains("numpy") && found.ways == [[Change::Remove("nunpy".into())]]);
    }
}
