//! `older-versions`: an old task fails in a way that no other rule knows: what was current when it was written is tried.

use super::{Finding, Rule, Scene};
use crate::decide::{current_python, year_of_age};
use crate::plan::Change;
use crate::problem::{Problem, Stage};

pub(super) struct OlderVersions;

/// By then most packages had wheels for Python 3.8.
const OLDEST: &str = "2020-12-01";

impl Rule for OlderVersions {
    fn name(&self) -> &'static str {
        "older-versions"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        if problem.stage < Stage::Imports {
            return None;
        }
        let changes = of_its_time(scene)?;
        let Some(Change::ExcludeNewer(Some(day))) = changes.first() else { return None };
        let cause = format!("nothing known explains it, and the task is old: versions of {day}");
        Some(Finding::new(self.name(), cause).way(changes))
    }
}

/// The day of an old task and the Python of that time; `None` where it has no day, or that day is taken already.
pub(super) fn of_its_time(scene: Scene<'_>) -> Option<Vec<Change>> {
    if scene.plan.exclude_newer.is_some() {
        return None;
    }
    let day = scene.evidence.dates.iter().map(|date| date.day.as_str()).max()?;
    // Of what is older still, the oldest that the supported Pythons can have is tried.
    let day = day.max(OLDEST);
    if year_of_age(day, &scene.world.today) < 1.0 {
        return None;
    }
    let mut changes = vec![Change::ExcludeNewer(Some(day.to_owned()))];
    changes.extend(current_python(day, scene.evidence, scene.world).map(Change::Python));
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::evidence::Dated;

    #[test]
    fn an_old_task_gets_what_was_current() {
        let mut scene = scene(&["jinja2"], &[("jinja2", "3.1.6")]);
        let failure = problem(Stage::Check, None, "KeyError: 'users'");
        assert!(scene.ask(&OlderVersions, &failure).is_none());
        scene.evidence.dates = vec![Dated { day: "2021-01-31".into(), why: "files".into(), firm: false }];
        let found = scene.ask(&OlderVersions, &failure).unwrap();
        assert_eq!(found.ways, [[Change::ExcludeNewer(Some("2021-01-31".into())), Change::Python("3.8".into())]]);
        assert!(scene.ask(&OlderVersions, &problem(Stage::Lock, None, "x")).is_none());
    }
}
