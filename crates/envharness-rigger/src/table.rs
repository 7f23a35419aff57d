//! Which distribution provides which module, and who only looks like it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;
use std::sync::LazyLock;

use envharness_spec::Requirement;
pub use envharness_spec::normalize_name as normal;
use pep440_rs::{Operator, Version};

const IMPORTS: &str = include_str!("../data/imports.tsv");
const CHOICES: &str = include_str!("../data/choices.tsv");
const GONE: &str = include_str!("../data/gone.tsv");
const WHEELS: &str = include_str!("../data/wheels.tsv");
const MOVED: &str = include_str!("../data/moved.tsv");

/// The shipped tables, read once.
#[derive(Debug)]
pub struct Table {
    providers: BTreeMap<&'static str, Vec<&'static str>>,
    distributions: BTreeSet<&'static str>,
    choices: BTreeMap<&'static str, (&'static str, &'static str)>,
    gone: BTreeMap<&'static str, (&'static str, &'static str)>,
    moved: BTreeMap<&'static str, Moved>,
    wheels: Vec<(Requirement, &'static str)>,
    /// The day it was made.
    pub made: &'static str,
}

/// A module that lives on under another name.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    /// The module that stands in.
    pub module: &'static str,
    /// Its distribution.
    pub distribution: &'static str,
    /// What changes for the task.
    pub change: &'static str,
}

/// What the table says of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provided {
    /// One distribution provides it, or one of several is to be preferred for the reason.
    By {
        /// The requirement.
        requirement: String,
        /// Where the knowledge comes from.
        reason: String,
    },
    /// The table does not know it, and the module's own name as a distribution is too near to that of another.
    LooksLike {
        /// The name that is meant.
        known: String,
    },
    /// The table does not know it.
    Unknown,
}

/// The tables.
pub static TABLE: LazyLock<Table> = LazyLock::new(Table::read);

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(|line| line.split('\t').collect())
}

impl Table {
    fn read() -> Self {
        let mut providers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut distributions = BTreeSet::new();
        for row in rows(IMPORTS) {
            if let [module, distribution, ..] = row[..] {
                providers.entry(module).or_default().push(distribution);
                distributions.insert(distribution);
            }
        }
        let choices: BTreeMap<_, _> = rows(CHOICES).filter_map(|r| Some((*r.first()?, (*r.get(1)?, *r.get(2)?)))).collect();
        distributions.extend(choices.values().map(|(requirement, _)| name_of(requirement)));
        let gone = rows(GONE).filter_map(|r| Some((*r.first()?, (*r.get(1)?, *r.get(2)?)))).collect();
        let moved = rows(MOVED)
            .filter_map(|r| Some((*r.first()?, Moved { module: r.get(1)?, distribution: r.get(2)?, change: r.get(3)? })))
            .collect();
        let made = IMPORTS.lines().next().and_then(|line| line.split(" on ").nth(1)).and_then(|rest| rest.get(..10)).unwrap_or_default();
        let wheels = rows(WHEELS).filter_map(|r| Some((Requirement::parse(r.first()?).ok()?, *r.get(1)?))).collect();
        Self { providers, distributions, choices, gone, moved, wheels, made }
    }

    /// Who provides a module; the longest known beginning of a dotted name counts.
    pub fn provider(&self, module: &str) -> Provided {
        for known in beginnings(module) {
            if let Some((requirement, why)) = self.choices.get(known) {
                let others: Vec<&str> =
                    self.providers.get(known).into_iter().flatten().copied().filter(|other| *other != name_of(requirement)).collect();
                let also = if others.is_empty() { String::new() } else { format!("; {} also provide it", others.join(", ")) };
                return Provided::By { requirement: (*requirement).to_owned(), reason: format!("{why}{also}") };
            }
            if let Some(distributions) = self.providers.get(known) {
                let first = distributions.first().copied().unwrap_or_default();
                let reason = format!("its wheel holds `{known}`");
                return Provided::By { requirement: first.to_owned(), reason };
            }
        }
        let top = module.split('.').next().unwrap_or(module);
        match self.look_alike(&normal(top)) {
            Some(known) => Provided::LooksLike { known },
            None => Provided::Unknown,
        }
    }

    /// Every distribution that provides a module.
    pub fn providers(&self, module: &str) -> Vec<&str> {
        beginnings(module).find_map(|known| self.providers.get(known)).cloned().unwrap_or_default()
    }

    /// Whether a distribution is in the table.
    pub fn knows(&self, distribution: &str) -> bool {
        self.distributions.contains(distribution)
    }

    /// The distribution that a name only squats on: the name of a module that another provides.
    pub fn squats_on(&self, distribution: &str) -> Option<(String, String)> {
        if self.knows(distribution) {
            return None;
        }
        let named = |module: &&&str| normal(module) == distribution;
        let module = self.choices.keys().find(named).or_else(|| self.providers.keys().find(named))?;
        match self.provider(module) {
            Provided::By { requirement, .. } if normal(name_of(&requirement)) != distribution => {
                Some(((*module).to_owned(), name_of(&requirement).to_owned()))
            }
            _ => None,
        }
    }

    /// A known name that an unknown one is so near to that it is likely meant, or imitated.
    pub fn look_alike(&self, distribution: &str) -> Option<String> {
        if self.knows(distribution) || distribution.len() < 4 {
            return None;
        }
        let known = self.distributions.iter().copied().chain(self.providers.keys().copied());
        let near = |known: &&str| known.len() >= 4 && strsim::osa_distance(known, distribution) == 1;
        known.filter(near).min_by_key(|known| known.len().abs_diff(distribution.len())).map(ToOwned::to_owned)
    }

    /// Names that come nearest, for a person.
    pub fn nearest(&self, module: &str) -> Vec<String> {
        let mut scored: Vec<(f64, &str)> = self
            .distributions
            .iter()
            .chain(self.providers.keys())
            .map(|known| (strsim::jaro_winkler(known, module), *known))
            .filter(|(score, _)| *score > 0.88)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut out: Vec<String> = scored.into_iter().map(|(_, name)| name.to_owned()).collect();
        out.dedup();
        out.truncate(3);
        out
    }

    /// The last versions that had a dotted name, and what stands in.
    pub fn gone(&self, dotted: &str) -> Option<(&'static str, &'static str)> {
        beginnings(dotted).find_map(|known| self.gone.get(known)).copied()
    }

    /// The newest Python that the releases which a requirement allows have wheels for, where that is known.
    pub fn newest_python(&self, requirement: &Requirement) -> Option<&'static str> {
        let name = requirement.name.as_deref()?;
        let specifiers = requirement.version_specifiers();
        let highest = specifiers.iter().filter_map(|specifier| {
            let upper =
                matches!(specifier.operator(), Operator::Equal | Operator::LessThan | Operator::LessThanEqual | Operator::EqualStar);
            // `==1.21.*` ends before `1.22`.
            let next = || {
                let mut release = specifier.version().release().to_vec();
                if let Some(last) = release.last_mut() {
                    *last += 1;
                }
                Version::new(release)
            };
            let strict = matches!(specifier.operator(), Operator::LessThan | Operator::EqualStar);
            let version = if *specifier.operator() == Operator::EqualStar { next() } else { specifier.version().clone() };
            upper.then_some((version, strict))
        });
        let (highest, strict) = highest.min()?;
        let below = |bound: &Version| if strict { highest <= *bound } else { highest < *bound };
        let row = self.wheels.iter().find(|(row, _)| {
            let bound = Version::from_str(row.specifiers.trim_start_matches('<'));
            row.name.as_deref() == Some(name) && bound.is_ok_and(|bound| below(&bound))
        });
        row.map(|(_, python)| *python)
    }

    /// What stands in for a module.
    pub fn moved(&self, module: &str) -> Option<Moved> {
        beginnings(module).find_map(|known| self.moved.get(known)).copied()
    }
}

/// The name in a requirement.
pub fn name_of(requirement: &str) -> &str {
    requirement.split(['<', '>', '=', '!', '~', '[', ' ', ';', '@']).next().unwrap_or(requirement)
}

/// `a.b.c`, `a.b`, `a`.
fn beginnings(dotted: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(dotted), |name| name.rsplit_once('.').map(|(front, _)| front))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requirement_of(module: &str) -> String {
        match TABLE.provider(module) {
            Provided::By { requirement, .. } => requirement,
            other => panic!("{module}: {other:?}"),
        }
    }

    #[test]
    fn modules_and_their_distributions() {
        for (module, distribution) in [
            ("yaml", "pyyaml"),
            ("sklearn.linear_model", "scikit-learn"),
            ("PIL.Image", "pillow"),
            ("cv2", "opencv-python"),
            ("dateutil", "python-dateutil"),
            ("google.protobuf.json_format", "protobuf"),
            ("mpl_toolkits.mplot3d", "matplotlib"),
            ("bs4", "beautifulsoup4"),
            ("jwt", "pyjwt"),
            ("pkg_resources", "setuptools<81"),
            ("ruamel.yaml", "ruamel-yaml"),
            ("gym", "gym"),
        ] {
            assert_eq!(requirement_of(module), distribution, "{module}");
        }
        assert_eq!(TABLE.provider("some_unheard_of_thing"), Provided::Unknown);
        assert_eq!(TABLE.made.len(), 10);
    }

    #[test]
    fn who_only_squats_is_known() {
        assert_eq!(TABLE.squats_on("sklearn"), Some(("sklearn".into(), "scikit-learn".into())));
        assert_eq!(TABLE.squats_on("cv2").map(|s| s.1).as_deref(), Some("opencv-python"));
        assert_eq!(TABLE.squats_on("yaml").map(|s| s.1).as_deref(), Some("pyyaml"));
        for honest in ["numpy", "scikit-learn", "opencv-python", "requests", "some-unheard-of-thing", "pillow", "gym"] {
            assert_eq!(TABLE.squats_on(honest), None, "{honest}");
        }
    }

    #[test]
    fn look_alikes_are_not_taken() {
        assert!(matches!(TABLE.provider("nunpy"), Provided::LooksLike { known } if known == "numpy"));
        assert!(matches!(TABLE.provider("reqeusts"), Provided::LooksLike { known } if known == "requests"));
        assert!(TABLE.nearest("matplotlb").contains(&"matplotlib".to_owned()));
    }

    #[test]
    fn names_that_are_gone() {
        assert_eq!(TABLE.gone("numpy.float").map(|g| g.0), Some("numpy<1.24"));
        assert_eq!(TABLE.gone("scipy.misc.imread").map(|g| g.0), Some("scipy<1.2"));
        assert_eq!(TABLE.gone("numpy.array"), None);
        assert_eq!(TABLE.moved("gym.wrappers").map(|m| m.module), Some("gymnasium"));
    }

    #[test]
    fn old_releases_have_wheels_for_old_pythons() {
        for (requirement, python) in [
            ("numpy<1.24", Some("3.11")),
            ("numpy==1.21.0", Some("3.9")),
            ("numpy==1.21.*", Some("3.10")),
            ("numpy>=1.20,<2", Some("3.12")),
            ("numpy==2.3.0", None),
            ("numpy>=1.20", None),
            ("requests==2.0", None),
        ] {
            assert_eq!(TABLE.newest_python(&Requirement::parse(requirement).unwrap()), python, "{requirement}");
        }
    }

    #[test]
    fn every_row_is_well_formed() {
        for (text, width) in [(IMPORTS, 3), (CHOICES, 3), (GONE, 3), (WHEELS, 2), (MOVED, 4)] {
            for row in rows(text) {
                assert_eq!(row.len(), width, "{row:?}");
                assert!(row.iter().all(|cell| !cell.trim().is_empty()), "{row:?}");
            }
        }
        for row in rows(CHOICES).chain(rows(GONE)).chain(rows(WHEELS).map(|row| vec![row[1], row[0]])) {
            assert!(Requirement::parse(row[1]).is_ok(), "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn any_name_has_an_answer(name in "[a-zA-Z_.]{0,20}") {
            let _ = TABLE.provider(&name);
            let _ = TABLE.nearest(&name);
            if let Some((_, honest)) = TABLE.squats_on(&normal(&name)) {
                prop_assert_ne!(honest, normal(&name));
            }
        }
    }
}
