//! `module-missing`: a module that is not there: not asked for, named otherwise, or moved to another package.

use super::{Finding, Rule, Scene};
use crate::decide::provide;
use crate::evidence::texts::pattern;
use crate::plan::{Change, Origin};
use crate::problem::Problem;
use crate::table::{TABLE, name_of, normal};

pub(super) struct ModuleMissing;

static NAMED: std::sync::LazyLock<regex::Regex> =
    std::sync::LazyLock::new(|| pattern(r#"(?:ModuleNotFoundError|ImportError): No module named ['"]?([\w.]+)"#));

impl Rule for ModuleMissing {
    fn name(&self) -> &'static str {
        "module-missing"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let found = NAMED.captures_iter(&problem.text).last()?;
        let module = found[1].to_owned();
        let top = module.split('.').next().unwrap_or(&module);
        let wanted = problem.place.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
        if let Some((requirement, why)) = TABLE.gone(&module).filter(|(r, _)| name_of(r) != "python") {
            let mut finding =
                Finding::new(self.name(), format!("`{module}`{wanted} is gone: {why}")).way(vec![Change::Add(requirement.to_owned())]);
            if let Some(moved) = TABLE.moved(&module) {
                finding = finding.offer(format!("or import `{}` instead: {}", moved.module, moved.change));
            }
            return Some(finding);
        }
        let (requirement, reason, origin) = match provide(&module, scene.world) {
            Ok(found) => found,
            Err(why) => return Some(Finding::new(self.name(), format!("`{module}`{wanted} is missing: {why}"))),
        };
        let name = normal(name_of(&requirement));
        let mut finding = Finding::new(self.name(), format!("no module `{module}`{wanted}"));
        if module.contains('.') && (scene.plan.packages.contains_key(&name) || scene.versions.contains_key(&name)) {
            // The package is there and this part of it is not: another release has it.
            let version = scene.versions.get(&name).map_or("this version", String::as_str);
            finding.cause = format!("{name} {version} has no `{module}`{wanted}");
            for older in super::gone_name::older(&name, version) {
                finding = finding.way(vec![Change::Limit(older)]);
            }
        } else if origin == Origin::OwnName {
            // That a distribution has the name says nothing of what is in it; nobody has proved it.
            finding.cause = format!("{}, and no distribution is known to provide it", finding.cause);
            finding = finding.offer(format!("if `{requirement}` on the index is it, give `--with {requirement}`"));
        } else {
            finding.cause = format!("{}; {top} comes from {requirement}{reason}", finding.cause);
            finding = finding.way(vec![Change::Add(requirement)]);
        }
        if let Some(moved) = TABLE.moved(&module) {
            finding = finding.offer(format!("`{module}` lives on as `{}` ({}): {}", moved.module, moved.distribution, moved.change));
        }
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    fn asked(requirements: &[&str], versions: &[(&str, &str)], text: &str) -> Finding {
        scene(requirements, versions).ask(&ModuleMissing, &problem(Stage::Check, None, text)).unwrap()
    }

    #[test]
    fn what_is_missing_is_added_by_its_distribution() {
        let found = asked(&[], &[], "ModuleNotFoundError: No module named 'yaml'");
        assert_eq!(found.ways, [[Change::Add("pyyaml".into())]]);
        let found = asked(&["setuptools"], &[("setuptools", "84.0.0")], "ModuleNotFoundError: No module named 'pkg_resources'");
        assert_eq!(found.ways, [[Change::Add("setuptools<81".into())]]);
        let found = asked(&[], &[], "ModuleNotFoundError: No module named 'nunpy'");
        assert!(found.ways.is_empty() && found.cause.contains("numpy"));
    }

    #[test]
    fn what_moved_is_offered_and_not_done() {
        let found = asked(&[], &[], "ModuleNotFoundError: No module named 'gym'");
        assert_eq!(found.ways, [[Change::Add("gym".into())]]);
        assert!(found.offer.unwrap().contains("gymnasium"));
    }

    #[test]
    fn a_part_that_is_missing_is_looked_for_in_older_releases() {
        let found = asked(&["celery"], &[("celery", "5.4.0")], "ModuleNotFoundError: No module named 'celery.task'");
        assert_eq!(found.ways[0], [Change::Limit("celery<5".into())]);
    }
}
