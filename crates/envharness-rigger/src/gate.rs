//! The gate: what every proposal passes, a rule's and an advisor's alike.

use std::collections::BTreeSet;

use envharness_spec::Requirement;

use crate::plan::{Change, Origin, Plan};
use crate::table::TABLE;
use crate::world::{World, minor};

/// Variables that would let a proposal choose what is loaded or where things come from.
const CLOSED: [&str; 7] = ["LD_", "PYTHON", "BASH_ENV", "PATH", "UV_", "PIP_", "ENVHARNESS_"];

/// Takes changes to a plan.
///
/// # Errors
/// The reason, for a person: a name that squats or looks like another, an address, a Python that is not there, more memory
/// than the machine has, or a plan that was tried before.
pub fn pass(
    plan: &Plan,
    changes: &[Change],
    reason: &str,
    origin: Origin,
    world: &World,
    tried: &BTreeSet<String>,
) -> Result<Plan, String> {
    let mut next = plan.clone();
    for change in changes {
        let change = allow(change, world)?;
        next = next.with(&change, reason, origin, None);
    }
    if tried.contains(&next.fingerprint()) {
        return Err("that was tried before".into());
    }
    Ok(next)
}

fn allow(change: &Change, world: &World) -> Result<Change, String> {
    match change {
        Change::Add(text) | Change::Limit(text) => {
            let requirement = Requirement::parse(text).map_err(|(reason, _)| format!("`{text}`: {reason}"))?;
            let Some(name) = requirement.name.clone().filter(|_| requirement.location.is_none()) else {
                return Err(format!("`{text}` is an address or a path, not a package of the index"));
            };
            if let Some((module, honest)) = TABLE.squats_on(&name) {
                return Err(format!("`{name}` only has the name of the module `{module}`, which {honest} provides"));
            }
            if let Some(known) = TABLE.look_alike(&name) {
                return Err(format!("`{name}` looks like `{known}`"));
            }
            Ok(change.clone())
        }
        Change::Python(version) => {
            let wanted = version.split('.').take(2).collect::<Vec<_>>().join(".");
            // Anything but numbers could be read as a path.
            let plain = version.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
            if !plain || !(2..=3).contains(&version.split('.').count()) {
                return Err(format!("`{version}` is no version of Python such as 3.11"));
            }
            let there = world.pythons.contains(&wanted) || (world.python_downloads && minor(&wanted).is_some());
            if there { Ok(change.clone()) } else { Err(format!("there is no Python {version} here")) }
        }
        Change::ExcludeNewer(Some(day)) if day.len() < 10 || !day.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(format!("`{day}` is no day such as 2023-05-31"))
        }
        Change::Env(name, _) if name == "ENV" || CLOSED.iter().any(|closed| name.starts_with(closed)) => {
            Err(format!("`{name}` decides what is loaded, and is not for a proposal to set"))
        }
        Change::Memory(Some(size)) => match envharness_spec::parse_bytes(size) {
            Some(bytes) if bytes <= world.memory => Ok(change.clone()),
            Some(_) => Err(format!("{size} of memory is more than the machine has")),
            None => Err(format!("`{size}` is no size such as 8G")),
        },
        Change::ExcludeNewer(_) | Change::Env(..) | Change::Memory(None) | Change::Remove(_) | Change::NoBuild(_) | Change::Gpu(_) => {
            Ok(change.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn world() -> World {
        World { pythons: vec!["3.11".into()], memory: 8 << 30, ..World::default() }
    }

    fn ask(change: Change) -> Result<Plan, String> {
        pass(&Plan { name: "x".into(), ..Plan::default() }, &[change], "why", Origin::Advisor, &world(), &BTreeSet::new())
    }

    #[test]
    fn what_is_refused_and_what_passes() {
        for (change, word) in [
            (Change::Add("sklearn".into()), "scikit-learn"),
            (Change::Add("nunpy".into()), "numpy"),
            (Change::Add("x @ https://example.org/x.whl".into()), "address"),
            (Change::Add("./x".into()), "address"),
            (Change::Add("==".into()), "=="),
            (Change::Python("3.7".into()), "3.7"),
            (Change::Python("3.11./bin/python".into()), "no version"),
            (Change::Env("PYTHONUSERBASE".into(), "/x".into()), "PYTHONUSERBASE"),
            (Change::Env("LD_PRELOAD".into(), "/x".into()), "LD_PRELOAD"),
            (Change::Env("PYTHONPATH".into(), "/x".into()), "PYTHONPATH"),
            (Change::Memory(Some("999T".into())), "more than"),
            (Change::ExcludeNewer(Some("soon".into())), "soon"),
        ] {
            let error = ask(change.clone()).unwrap_err();
            assert!(error.contains(word), "{change:?}: {error}");
        }
        assert!(ask(Change::Add("numpy<2".into())).is_ok());
        assert!(ask(Change::Python("3.11".into())).is_ok());
    }

    #[test]
    fn nothing_is_tried_twice() {
        let plan = ask(Change::Add("numpy<2".into())).unwrap();
        let tried = BTreeSet::from([plan.fingerprint()]);
        let again = pass(&plan, &[Change::Add("numpy<2".into())], "why", Origin::Rule, &world(), &tried);
        assert_eq!(again.unwrap_err(), "that was tried before");
    }

    proptest! {
        #[test]
        fn no_text_gets_an_address_through(text in "\\PC{0,40}") {
            if let Ok(plan) = ask(Change::Add(text)) {
                prop_assert!(plan.packages.values().all(|wanted| wanted.requirement.location.is_none()));
            }
        }
    }
}
