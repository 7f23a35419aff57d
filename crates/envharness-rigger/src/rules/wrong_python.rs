//! `wrong-python`: the Python is too new or too old for the task or for its packages.

use std::sync::LazyLock;

use regex::Regex;

use super::gone_name::older_pythons;
use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::{Problem, Stage};
use crate::world::minor;

pub(super) struct WrongPython;

static LOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"No module named '(distutils|imp|asyncore|asynchat|smtpd|cgi|cgitb|telnetlib|pipes|imghdr|crypt|nntplib|audioop|lib2to3|parser|formatter)",
    )
});
static LOST_NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"cannot import name '(\w+)' from '(collections|asyncio|inspect|fractions|base64|unittest|typing|importlib)'|module '(collections|inspect|asyncio|pkgutil|time|ast|configparser|fractions|unittest)' has no attribute '(\w+)'",
    )
});
/// From which minor version on something is not there.
const LOST_IN: [(&str, u32); 25] = [
    ("distutils", 12),
    ("imp", 12),
    ("asyncore", 12),
    ("asynchat", 12),
    ("smtpd", 12),
    ("cgi", 13),
    ("cgitb", 13),
    ("telnetlib", 13),
    ("pipes", 13),
    ("imghdr", 13),
    ("crypt", 13),
    ("nntplib", 13),
    ("audioop", 13),
    ("lib2to3", 13),
    ("parser", 10),
    ("formatter", 10),
    ("ImpImporter", 12),
    ("getargspec", 11),
    ("coroutine", 11),
    ("SafeConfigParser", 12),
    ("gcd", 9),
    ("encodestring", 9),
    ("clock", 8),
    ("makeSuite", 13),
    ("find_loader", 12),
];
/// What newer Pythons brought: a sign and the minor version.
const NEW_IN: [(&str, u32); 9] = [
    ("No module named 'tomllib'", 11),
    ("No module named 'zoneinfo'", 9),
    ("name 'ExceptionGroup' is not defined", 11),
    ("unsupported operand type(s) for |: 'type'", 10),
    ("'type' object is not subscriptable", 9),
    ("cannot import name 'Self' from 'typing'", 11),
    ("cannot import name 'StrEnum' from 'enum'", 11),
    ("cannot import name 'ParamSpec' from 'typing'", 10),
    ("cannot import name 'override' from 'typing'", 12),
];

impl Rule for WrongPython {
    fn name(&self) -> &'static str {
        "wrong-python"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let now = scene.plan.python.as_ref().and_then(|python| minor(&python.value))?;
        let text = &problem.text;
        if problem.stage >= Stage::Imports {
            if let Some((sign, since)) = NEW_IN.iter().find(|(sign, since)| text.contains(sign) && now < *since) {
                let cause = format!("Python 3.{now} is too old: {sign}");
                return Some(newer(self.name(), cause, *since, scene));
            }
        } else if let Some(since) = wanted_newer(text).filter(|since| *since > now) {
            return Some(newer(self.name(), format!("a package needs Python 3.{since} or newer"), since, scene));
        }
        let lost = lost(text).filter(|(_, minor)| now >= *minor);
        if let Some((what, minor_without)) = lost {
            let cause = format!("Python 3.{now} has no `{what}` any more: 3.{minor_without} took it away");
            let mut finding = Finding::new(self.name(), cause);
            for python in older_pythons(scene).into_iter().filter(|v| minor(v).is_some_and(|m| m < minor_without)) {
                finding = finding.way(vec![Change::Python(python)]);
            }
            if finding.ways.is_empty() {
                finding =
                    finding.offer(format!("no Python from before 3.{minor_without} is here: install one, or translate what the task uses"));
            }
            // setuptools brings a distutils of its own, while packages import it first.
            if what == "distutils" {
                finding = finding.way(vec![Change::Add("setuptools<81".into())]);
            }
            return Some(finding);
        }
        let blamed = problem.stage <= Stage::Install
            && [
                "no wheels with a matching Python",
                "ABI tag",
                "Requires-Python",
                "does not satisfy Python",
                "depends on Python",
                "Python version",
            ]
            .iter()
            .any(|sign| text.contains(sign));
        if !blamed {
            return None;
        }
        let mut finding = Finding::new(self.name(), format!("what is asked for does not go with Python 3.{now}"));
        for python in older_pythons(scene) {
            finding = finding.way(vec![Change::Python(python)]);
        }
        Some(finding)
    }
}

fn newer(rule: &'static str, cause: String, since: u32, scene: Scene<'_>) -> Finding {
    let mut finding = Finding::new(rule, cause);
    let mut minors: Vec<u32> = scene.world.pythons.iter().filter_map(|version| minor(version)).filter(|m| *m >= since).collect();
    minors.sort_unstable();
    minors.dedup();
    for number in minors {
        finding = finding.way(vec![Change::Python(format!("3.{number}"))]);
    }
    if finding.ways.is_empty() {
        finding = finding.offer(format!("install Python 3.{since} or newer"));
    }
    finding
}

fn lost(text: &str) -> Option<(String, u32)> {
    let module = LOST.captures(text).map(|found| found[1].to_owned());
    let named = LOST_NAME.captures(text).map(|found| {
        let part = |index: usize| found.get(index).map(|m| m.as_str().to_owned());
        (part(2).or_else(|| part(3)).unwrap_or_default(), part(1).or_else(|| part(4)).unwrap_or_default())
    });
    match (module, named) {
        (Some(module), _) => LOST_IN.iter().find(|(name, _)| *name == module).map(|(name, minor)| ((*name).to_owned(), *minor)),
        (None, Some((module, name))) => {
            let known = LOST_IN.iter().find(|(known, _)| *known == name).map(|(_, minor)| *minor);
            let abstract_class = (module == "collections").then_some(10);
            known.or(abstract_class).map(|minor| (format!("{module}.{name}"), minor))
        }
        (None, None) => None,
    }
}

/// `depends on Python>=3.10` of a resolver that explains itself.
fn wanted_newer(text: &str) -> Option<u32> {
    static NEEDS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:depends on|requires|Requires-Python:?) Python\s*>=\s*3\.(\d+)"));
    NEEDS.captures_iter(text).filter_map(|found| found[1].parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn too_new() {
        let found = scene(&[], &[])
            .ask(&WrongPython, &problem(Stage::Imports, Some("x"), "ModuleNotFoundError: No module named 'distutils'"))
            .unwrap();
        assert_eq!(found.ways[0], [Change::Python("3.11".into())]);
        let text = "ImportError: cannot import name 'Mapping' from 'collections' (/x)";
        let found = scene(&[], &[]).ask(&WrongPython, &problem(Stage::Check, None, text)).unwrap();
        assert_eq!(found.ways[0], [Change::Python("3.9".into())]);
        let text = "AttributeError: module 'time' has no attribute 'clock'";
        let found = scene(&[], &[]).ask(&WrongPython, &problem(Stage::Check, None, text)).unwrap();
        assert!(found.ways.is_empty() && found.offer.unwrap().contains("3.8"));
        let text = "Because numpy==1.21.0 has no wheels with a matching Python ABI tag (e.g., `cp312`)";
        let found = scene(&["numpy==1.21.0"], &[]).ask(&WrongPython, &problem(Stage::Lock, None, text)).unwrap();
        assert_eq!(found.ways[0], [Change::Python("3.11".into())]);
    }

    #[test]
    fn too_old() {
        let mut old = scene(&[], &[]);
        old.plan = old.plan.with(&Change::Python("3.9".into()), "", crate::plan::Origin::Rule, None);
        let found = old.ask(&WrongPython, &problem(Stage::Check, None, "ModuleNotFoundError: No module named 'tomllib'")).unwrap();
        assert_eq!(found.ways[0], [Change::Python("3.11".into())]);
        let found = old
            .ask(&WrongPython, &problem(Stage::Lock, None, "Because the requested Python version (3.9.18) and x depends on Python>=3.11"))
            .unwrap();
        assert_eq!(found.ways[0], [Change::Python("3.11".into())]);
        assert!(scene(&[], &[]).ask(&WrongPython, &problem(Stage::Check, None, "ValueError: x")).is_none());
    }
}
