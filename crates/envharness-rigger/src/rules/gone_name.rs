//! `gone-name`: the package is there, and a name in it is not: taken away by a later release, or not yet in this one.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::{Problem, Stage};
use crate::table::{Provided, TABLE, name_of, normal};
use crate::world::minor;

pub(super) struct GoneName;

static FROM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"cannot import name ['\x22]?(\w+)['\x22]? from (?:partially initialized module )?['\x22]?([\w.]+)"));
static ATTRIBUTE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"AttributeError: module ['\x22]([\w.]+)['\x22] has no attribute ['\x22](\w+)"));
static OF_CLASS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"AttributeError: (?:type object )?['\x22](\w+)['\x22](?: object)? has no attribute ['\x22](\w+)"));
/// Methods that are gone, which only their class's name tells: class, method, requirement.
const METHODS: [(&str, &str, &str); 9] = [
    ("DataFrame", "append", "pandas<2"),
    ("Series", "append", "pandas<2"),
    ("DataFrame", "iteritems", "pandas<2"),
    ("Series", "iteritems", "pandas<2"),
    ("DataFrame", "ix", "pandas<1"),
    ("FreeTypeFont", "getsize", "pillow<10"),
    ("ImageDraw", "textsize", "pillow<10"),
    ("Engine", "execute", "sqlalchemy<2"),
    ("Flask", "before_first_request", "flask<2.3"),
];

impl Rule for GoneName {
    fn name(&self) -> &'static str {
        "gone-name"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let text = &problem.text;
        let last = |pattern: &Regex| pattern.captures_iter(text).last().map(|found| (found[1].to_owned(), found[2].to_owned()));
        if let Some((class, name)) = last(&OF_CLASS)
            && let Some((_, _, requirement)) = METHODS.iter().find(|(c, n, _)| *c == class && *n == name)
        {
            let cause = format!("`{class}.{name}` is gone from newer {}", name_of(requirement));
            return Some(Finding::new(self.name(), cause).way(vec![Change::Add((*requirement).to_owned())]));
        }
        let dotted = match (problem.stage, &problem.subject) {
            (Stage::Imports, Some(subject)) if text.contains("AttributeError") && problem.place.is_some() && last(&ATTRIBUTE).is_none() => {
                subject.clone()
            }
            _ => last(&FROM)
                .map(|(name, module)| format!("{module}.{name}"))
                .or_else(|| last(&ATTRIBUTE).map(|(m, n)| format!("{m}.{n}")))?,
        };
        let place = problem.place.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
        if let Some((requirement, why)) = TABLE.gone(&dotted).filter(|(r, _)| name_of(r) != "python") {
            let name = normal(name_of(requirement));
            let pinned = scene.plan.packages.get(&name).is_some_and(|wanted| wanted.requirement.specifiers.contains("=="));
            let change = |text: &str| {
                if pinned || !scene.plan.packages.contains_key(&name) { Change::Limit(text.into()) } else { Change::Add(text.into()) }
            };
            let mut finding = Finding::new(self.name(), format!("`{dotted}`{place} is gone: {why}")).way(vec![change(requirement)]);
            // The older release may want an older Python.
            for python in older_pythons(scene) {
                finding = finding.way(vec![change(requirement), Change::Python(python)]);
            }
            return Some(finding);
        }
        let name = owner(&dotted, scene)?;
        let version = scene.versions.get(&name)?.clone();
        let mut finding = Finding::new(self.name(), format!("{name} {version} has no `{dotted}`{place}"));
        if let Some(changes) = super::older_versions::of_its_time(scene) {
            finding = finding.way(changes);
        }
        for older in older(&name, &version) {
            finding = finding.way(vec![Change::Limit(older)]);
        }
        let pinned = scene.plan.packages.get(&name).is_some_and(|wanted| wanted.requirement.specifiers.contains("=="));
        if pinned {
            finding = finding.way(vec![Change::Limit(format!("{name}>{version}"))]);
        }
        Some(finding)
    }
}

/// The locked distribution that a dotted name belongs to.
fn owner(dotted: &str, scene: Scene<'_>) -> Option<String> {
    let top = dotted.split('.').next().unwrap_or(dotted);
    let known = match TABLE.provider(dotted) {
        Provided::By { requirement, .. } => Some(normal(name_of(&requirement))),
        _ => None,
    };
    let others = TABLE.providers(dotted).into_iter().map(ToOwned::to_owned);
    known.into_iter().chain(others).chain([normal(top)]).find(|name| scene.versions.contains_key(name))
}

/// Bounds that step back one release at a time, the last major one first.
pub(super) fn older(name: &str, version: &str) -> Vec<String> {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let mut out = Vec::new();
    if major > 0 {
        out.push(format!("{name}<{major}"));
    }
    if minor > 0 {
        out.push(format!("{name}<{major}.{minor}"));
    }
    if major > 1 {
        out.push(format!("{name}<{}", major - 1));
    }
    out
}

/// Older Pythons that are there, nearest first.
pub(super) fn older_pythons(scene: Scene<'_>) -> Vec<String> {
    let now = scene.plan.python.as_ref().and_then(|python| minor(&python.value)).unwrap_or(99);
    let mut minors: Vec<u32> = scene.world.pythons.iter().filter_map(|version| minor(version)).filter(|m| *m < now).collect();
    minors.sort_unstable_by(|a, b| b.cmp(a));
    minors.dedup();
    minors.into_iter().map(|minor| format!("3.{minor}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::evidence::Dated;

    #[test]
    fn known_names_have_their_bound() {
        let scene = scene(&["numpy"], &[("numpy", "2.1.0")]);
        let found = scene.ask(&GoneName, &problem(Stage::Check, None, "AttributeError: module 'numpy' has no attribute 'float'.")).unwrap();
        assert_eq!(found.ways[0], [Change::Add("numpy<1.24".into())]);
        assert!(found.cause.contains("`float` is the same"));
        let text = "ImportError: cannot import name 'escape' from 'jinja2' (/x/__init__.py)";
        let found = super::super::scenes::scene(&["flask==1.1.4"], &[("jinja2", "3.1.6")])
            .ask(&GoneName, &problem(Stage::Imports, Some("flask"), text))
            .unwrap();
        assert_eq!(found.ways[0], [Change::Limit("jinja2<3.1".into())]);
    }

    #[test]
    fn unknown_names_step_back_by_the_day_then_by_release() {
        let mut scene = scene(&["mesa"], &[("mesa", "3.3.1")]);
        scene.evidence.dates = vec![Dated { day: "2021-03-01".into(), why: "files".into(), firm: false }];
        let found =
            scene.ask(&GoneName, &problem(Stage::Check, None, "ImportError: cannot import name 'Old' from 'mesa.time' (x)")).unwrap();
        assert_eq!(found.ways[0], [Change::ExcludeNewer(Some("2021-03-01".into())), Change::Python("3.9".into())]);
        assert_eq!(found.ways[1], [Change::Limit("mesa<3".into())]);
    }

    #[test]
    fn methods_are_known_by_their_class() {
        let found = scene(&["pandas"], &[("pandas", "3.1.1")])
            .ask(&GoneName, &problem(Stage::Check, None, "AttributeError: 'DataFrame' object has no attribute 'append'"))
            .unwrap();
        assert_eq!(found.ways, [[Change::Add("pandas<2".into())]]);
    }

    #[test]
    fn steps() {
        assert_eq!(older("a", "3.2.1"), ["a<3", "a<3.2", "a<2"]);
        assert_eq!(older("a", "0.9"), ["a<0.9"]);
    }
}
