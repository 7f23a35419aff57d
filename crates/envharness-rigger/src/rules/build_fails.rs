//! `build-fails`: a source archive does not build, where a wheel of it, of another release, or for another Python exists.

use std::sync::LazyLock;

use regex::Regex;

use super::gone_name::older_pythons;
use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::{Problem, Stage};

pub(super) struct BuildFails;

static BUILT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[Ff]ailed to (?:build|download and build) `?([A-Za-z0-9._-]+?)(?:==([\w.]+))?`?(?:\s|$)"));

/// The package that did not build.
pub(super) fn built(text: &str) -> Option<String> {
    BUILT.captures(text).map(|found| crate::table::normal(&found[1]))
}

impl Rule for BuildFails {
    fn name(&self) -> &'static str {
        "build-fails"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let says = ["Failed to build", "Failed to download and build", "build backend", "failed to build"]
            .iter()
            .any(|sign| problem.text.contains(sign));
        if problem.stage > Stage::Install || !says {
            return None;
        }
        let package = built(&problem.text);
        let what = package.as_deref().map_or_else(|| "a source archive".to_owned(), |name| format!("`{name}`"));
        let mut finding = Finding::new(self.name(), format!("{what} does not build here from its source archive"));
        if scene.plan.no_build.is_none() {
            finding = finding.way(vec![Change::NoBuild(true)]);
        }
        for way in ways(package.as_deref(), scene) {
            finding = finding.way(way);
        }
        Some(finding)
    }
}

/// Another Python, and then the pin let go.
pub(super) fn ways(package: Option<&str>, scene: Scene<'_>) -> Vec<Vec<Change>> {
    let mut out: Vec<Vec<Change>> = older_pythons(scene).into_iter().map(|python| vec![Change::Python(python)]).collect();
    let wanted = package.and_then(|name| scene.plan.packages.get(name)).filter(|wanted| wanted.requirement.specifiers.contains("=="));
    if let Some((name, wanted)) = package.zip(wanted) {
        let version = wanted.requirement.specifiers.trim_start_matches('=').to_owned();
        out.push(vec![Change::Limit(format!("{name}>={version}")), Change::NoBuild(true)]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn a_wheel_then_another_python_then_another_release() {
        let text = "uv failed to resolve `x`\n  × Failed to build `scipy==1.7.3`\n  ├─▶ The build backend returned an error";
        let found = scene(&["scipy==1.7.3"], &[]).ask(&BuildFails, &problem(Stage::Lock, None, text)).unwrap();
        assert_eq!(found.ways[0], [Change::NoBuild(true)]);
        assert_eq!(found.ways[1], [Change::Python("3.11".into())]);
        assert_eq!(found.ways.last().unwrap(), &[Change::Limit("scipy>=1.7.3".into()), Change::NoBuild(true)]);
        assert_eq!(built(text).as_deref(), Some("scipy"));
    }
}
