//! `extra-missing`: a package asks for another that only some of its users need, and says so itself.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::{Problem, Stage};
use crate::table::{TABLE, normal};

pub(super) struct ExtraMissing;

static PANDAS: LazyLock<Regex> = LazyLock::new(|| pattern(r"Missing optional dependency ['\x22]([\w.-]+)['\x22]"));
static PIP: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:python -m )?pip3? install ['\x22`]?([A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?)"));
static NEEDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:requires|needs) (?:the )?['\x22`]?([A-Za-z][\w.-]+)['\x22`]? (?:package|library|module)? ?to be installed")
});

impl Rule for ExtraMissing {
    fn name(&self) -> &'static str {
        "extra-missing"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let raised = ["ImportError", "ModuleNotFoundError", "DependencyNotInstalled", "OptionalDependency", "Missing optional"];
        if problem.stage < Stage::Imports || !raised.iter().any(|name| problem.text.contains(name)) {
            return None;
        }
        // Only what the exception itself says: a package's other output advises much.
        let said: Vec<&str> = problem.text.lines().rev().take_while(|line| !line.starts_with("  File ")).collect();
        let said: String = said.into_iter().rev().collect::<Vec<_>>().join("\n");
        let found =
            [&PANDAS, &PIP, &NEEDS].iter().find_map(|pattern| pattern.captures_iter(&said).last().map(|found| found[1].to_owned()))?;
        let found = found.trim_end_matches(['.', '-']).to_owned();
        let name = normal(crate::table::name_of(&found));
        let name_or_honest = TABLE.squats_on(&name).map_or(found.clone(), |(_, honest)| honest);
        let bare = !found.contains('[');
        if bare && (scene.versions.contains_key(&name) || scene.versions.contains_key(&normal(&name_or_honest))) {
            return None;
        }
        if bare && TABLE.look_alike(&name).is_some() {
            return None;
        }
        Some(Finding::new(self.name(), format!("a package asks for {name_or_honest}")).way(vec![Change::Add(name_or_honest)]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn what_a_package_asks_for_is_added() {
        let ask = |text: &str| scene(&["pandas"], &[("pandas", "2.2")]).ask(&ExtraMissing, &problem(Stage::Check, None, text));
        let text = "ImportError: Missing optional dependency 'openpyxl'.  Use pip or conda to install openpyxl.";
        assert_eq!(ask(text).unwrap().ways, [[Change::Add("openpyxl".into())]]);
        let text = "gymnasium.error.DependencyNotInstalled: pygame is not installed, run `pip install \"gymnasium[classic-control]\"`";
        assert_eq!(ask(text).unwrap().ways, [[Change::Add("gymnasium[classic-control]".into())]]);
        assert!(ask("RuntimeError: run pip install x").is_none());
        assert!(ask("ImportError: Missing optional dependency 'pandas'").is_none());
    }
}
