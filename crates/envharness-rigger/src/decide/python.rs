//! Which Python.

use std::str::FromStr as _;

use pep440_rs::{Version, VersionSpecifiers};

use super::Contradiction;
use crate::evidence::{Evidence, PythonBound};
use crate::world::{World, minor};

/// A Python and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The minor version, `3.11`, or the specifier that a person gave.
    pub version: String,
    /// Why.
    pub reason: String,
}

/// Minor versions and the month from which most packages had wheels for them.
const CURRENT: [(u32, &str); 7] =
    [(8, "2019-12"), (9, "2021-03"), (10, "2022-03"), (11, "2023-03"), (12, "2024-03"), (13, "2025-03"), (14, "2026-06")];
/// Without anything else that decides: what packages of today and of yesterday have wheels for.
const PREFERENCE: [u32; 7] = [12, 11, 13, 10, 9, 14, 8];

/// Whether a task can do with a Python at all: its syntax and the modules it needs are facts, and what was asked for is a wish
/// that no rule overrides.
pub(crate) fn permits(evidence: &Evidence, wish: Option<&str>, version: &str) -> bool {
    let Some(number) = minor(version) else { return false };
    let wished = wish.and_then(minor).is_none_or(|wished| wished == number);
    wished && evidence.pythons.iter().filter(|bound| bound.firm).all(|bound| allows(bound, number))
}

/// `wheels` bound it where something else fits as well.
pub(super) fn choose(
    evidence: &Evidence,
    world: &World,
    wish: Option<&str>,
    day: Option<&str>,
    wheels: &[PythonBound],
) -> Result<Chosen, Contradiction> {
    if let Some(wish) = wish {
        return Ok(Chosen { version: wish.to_owned(), reason: "asked for by --python".into() });
    }
    let firm: Vec<&PythonBound> = evidence.pythons.iter().filter(|bound| bound.firm).collect();
    let hints: Vec<&PythonBound> = evidence.pythons.iter().filter(|bound| !bound.firm).collect();
    let there: Vec<u32> = world.pythons.iter().filter_map(|version| minor(version)).collect();
    let all: Vec<u32> = CURRENT.iter().map(|(minor, _)| *minor).filter(|m| there.contains(m) || world.python_downloads).collect();
    let fitting: Vec<u32> = all.iter().copied().filter(|minor| firm.iter().all(|bound| allows(bound, *minor))).collect();
    if fitting.is_empty() {
        return Err(contradiction(&firm, &all));
    }
    let mut from_wheels: Vec<&str> = Vec::new();
    let fitting = wheels.iter().fold(fitting, |fitting, bound| {
        let left: Vec<u32> = fitting.iter().copied().filter(|minor| allows(bound, *minor) && there.contains(minor)).collect();
        if left.is_empty() || left.len() == fitting.len() {
            return fitting;
        }
        from_wheels.push(&bound.why);
        left
    });
    let because: Vec<&str> = firm.iter().filter(|bound| !all.iter().all(|m| allows(bound, *m))).map(|b| b.why.as_str()).collect();
    let because: Vec<&str> = because.into_iter().chain(from_wheels).collect();
    let present: Vec<u32> = fitting.iter().copied().filter(|minor| there.contains(minor)).collect();
    let from = if present.is_empty() { &fitting } else { &present };
    let found = by_day(from, day).or_else(|| by_hint(from, &hints)).or_else(|| by_preference(from, world));
    let (number, reason) = found.unwrap_or((fitting[fitting.len() - 1], "the newest that fits".into()));
    let reason = if because.is_empty() { reason } else { format!("{reason}; {}", because.join("; ")) };
    Ok(Chosen { version: format!("3.{number}"), reason })
}

/// Whether a bound lets some patch release of a minor version in.
fn allows(bound: &PythonBound, minor: u32) -> bool {
    let Ok(specifiers) = VersionSpecifiers::from_str(&bound.specifier) else { return true };
    [0_u64, 5, 99].iter().any(|patch| specifiers.contains(&Version::new([3, u64::from(minor), *patch])))
}

/// The Python that was current on the day.
fn by_day(from: &[u32], day: Option<&str>) -> Option<(u32, String)> {
    let day = day?;
    let current = CURRENT.iter().rev().find(|(_, since)| *since <= day).map_or(8, |(minor, _)| *minor);
    let nearest = from.iter().copied().min_by_key(|minor| (minor.abs_diff(current), *minor))?;
    let place = day.get(..7).unwrap_or(day);
    let said = if nearest == current { format!("what was current in {place}") } else { format!("nearest to what was current in {place}") };
    Some((nearest, said))
}

/// The Python that was nearest to current on a day, among those that are there and that the task allows.
pub(crate) fn current_python(day: &str, evidence: &Evidence, world: &World) -> Option<String> {
    let firm = evidence.pythons.iter().filter(|bound| bound.firm).collect::<Vec<_>>();
    let mut there: Vec<u32> = world.pythons.iter().filter_map(|version| minor(version)).collect();
    there.retain(|minor| firm.iter().all(|bound| allows(bound, *minor)));
    by_day(&there, Some(day)).map(|(minor, _)| format!("3.{minor}"))
}

/// The newest that the task's own recipes use.
fn by_hint(from: &[u32], hints: &[&PythonBound]) -> Option<(u32, String)> {
    let hinted =
        from.iter().rev().find_map(|minor| hints.iter().find(|hint| allows(hint, *minor)).map(|hint| (*minor, hint.why.clone())))?;
    // A recipe that tests with newer ones than there are says nothing against the preference.
    Some(hinted)
}

fn by_preference(from: &[u32], world: &World) -> Option<(u32, String)> {
    let own = world.preferred.as_deref().and_then(minor).filter(|m| from.contains(m) && (10..=13).contains(m));
    if let Some(own) = own {
        return Some((own, "the Python at hand".into()));
    }
    let number = PREFERENCE.iter().copied().find(|minor| from.contains(minor))?;
    Some((number, "most packages, old and new, have wheels for it".into()))
}

fn contradiction(firm: &[&PythonBound], there: &[u32]) -> Contradiction {
    let found = there.iter().map(|minor| format!("3.{minor}")).collect::<Vec<_>>().join(", ");
    let bounds = firm.iter().map(|bound| format!("`{}` ({})", bound.specifier, bound.why)).collect::<Vec<_>>().join(" and ");
    Contradiction {
        what: format!("no Python of this machine fits {bounds}; found {found}"),
        hint: Some("install one that fits, or say which to use by `--python`".into()),
    }
}
