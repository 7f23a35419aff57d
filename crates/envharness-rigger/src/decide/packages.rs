//! Which distribution for which import.

use envharness_spec::Requirement;

use super::Missing;
use crate::evidence::{Declared, Evidence, Need, Weight};
use crate::plan::{Change, Origin, Plan, Wanted};
use crate::table::{Provided, TABLE, name_of, normal};
use crate::world::World;

pub(super) fn choose(evidence: &Evidence, world: &World, with: &[String], plan: &mut Plan, remarks: &mut Vec<String>) -> Vec<Missing> {
    for declared in evidence.declared.iter().filter(|declared| declared.weight == Weight::Declared) {
        declare(declared, plan, remarks);
    }
    for constraint in &evidence.constraints {
        if let Some(name) = Requirement::parse(&constraint.text).ok().and_then(|r| r.name) {
            let reason = format!("{} limits it", constraint.place);
            plan.limits.insert(name, crate::plan::Reasoned { value: constraint.text.clone(), reason });
        }
    }
    for text in with {
        *plan = plan.with(&Change::Add(text.clone()), "asked for by --with", Origin::Declared, None);
    }
    let mut missing: Vec<Missing> = Vec::new();
    let needed = evidence.needed();
    for import in &needed {
        let top = import.module.split('.').next().unwrap_or(&import.module);
        if satisfied(plan, &import.module) || missing.iter().any(|m| m.module == top) {
            continue;
        }
        // A member of a group that something else already provides is not needed itself.
        let stands_in = import.group.is_some()
            && evidence.imports.iter().any(|o| o.group == import.group && o.module != import.module && satisfied(plan, &o.module));
        if stands_in {
            continue;
        }
        match provide(&import.module, world) {
            Ok((requirement, reason, origin)) => {
                let requirement = with_mentioned(requirement, evidence);
                let reason = format!("{} imports {}{reason}", import.place, import.module);
                *plan = plan.with(&Change::Add(requirement), &reason, origin, Some(top));
            }
            // Imported inside a function, or by a name: the check tells whether it matters.
            Err(why) if import.need == Need::Required => {
                missing.push(Missing { module: top.to_owned(), place: import.place.clone(), why });
            }
            Err(why) => remarks.push(format!("`{}` ({}) was left out: {why}", import.module, import.place)),
        }
    }
    groups(evidence, world, plan);
    gone(evidence, plan);
    missing
}

/// Of imports that stand in for each other one must be there; the first that the table knows is taken.
fn groups(evidence: &Evidence, world: &World, plan: &mut Plan) {
    let groups: std::collections::BTreeSet<&String> = evidence.imports.iter().filter_map(|import| import.group.as_ref()).collect();
    for group in groups {
        let members: Vec<_> = evidence.imports.iter().filter(|import| import.group.as_ref() == Some(group)).collect();
        let tops: std::collections::BTreeSet<&str> = members.iter().filter_map(|m| m.module.split('.').next()).collect();
        // A single one, however deep, is what its author can do without.
        if tops.len() < 2 || evidence.notes.contains(&format!("standard:{group}")) || members.iter().any(|m| satisfied(plan, &m.module)) {
            continue;
        }
        let known = members.iter().find_map(|member| match provide(&member.module, world) {
            Ok((requirement, reason, origin)) if origin != Origin::OwnName => Some((member, requirement, reason, origin)),
            _ => None,
        });
        if let Some((member, requirement, reason, origin)) = known {
            let others = members.iter().filter(|m| m.module != member.module).map(|m| m.module.as_str()).collect::<Vec<_>>().join(", ");
            let reason = format!("{} imports {} or {others}{reason}", member.place, member.module);
            let top = member.module.split('.').next();
            *plan = plan.with(&Change::Add(with_mentioned(requirement, evidence)), &reason, origin, top);
        }
    }
}

/// Names that the sources use and that newer releases no longer have bound the versions from the start.
fn gone(evidence: &Evidence, plan: &mut Plan) {
    let imported = evidence.imports.iter().filter(|i| i.need != Need::Optional).flat_map(|import| {
        let names = import.names.iter().map(|name| (format!("{}.{name}", import.module), import.place.clone()));
        std::iter::once((import.module.clone(), import.place.clone())).chain(names).collect::<Vec<_>>()
    });
    let used = evidence.uses.iter().map(|(dotted, place)| (dotted.clone(), place.clone()));
    let mut bounds: Vec<(&str, String)> = Vec::new();
    for (dotted, place) in imported.chain(used) {
        let Some((requirement, why)) = TABLE.gone(&dotted) else { continue };
        if name_of(requirement) != "python" && !bounds.iter().any(|(known, _)| *known == requirement) {
            bounds.push((requirement, format!("{place} uses {dotted}: {why}")));
        }
    }
    for (requirement, reason) in bounds {
        let pinned = plan.packages.get(name_of(requirement)).is_some_and(|wanted| wanted.requirement.specifiers.contains("=="));
        let there = plan.packages.contains_key(name_of(requirement));
        if there && !pinned {
            *plan = plan.with(&Change::Add(requirement.to_owned()), &reason, Origin::Table, None);
        }
    }
}

/// Whether the plan has a distribution that provides a module.
fn satisfied(plan: &Plan, module: &str) -> bool {
    let top = module.split('.').next().unwrap_or(module);
    let providers = TABLE.providers(module);
    let chosen = match TABLE.provider(module) {
        Provided::By { requirement, .. } => Some(name_of(&requirement).to_owned()),
        _ => None,
    };
    let known = providers.iter().map(|name| (*name).to_owned()).chain(chosen).any(|name| plan.packages.contains_key(&name));
    let conda = plan.base.conda.iter().any(|spec| {
        let name = normal(name_of(spec));
        name == normal(top) || providers.contains(&name.as_str())
    });
    // Where the table knows nothing, a declared package of the same name is what is meant; so are the plugins of one.
    let by_name = providers.is_empty() && plan.packages.contains_key(&normal(top));
    known || by_name || conda || plan.packages.values().any(|wanted| wanted.module.as_deref() == Some(top) && providers.is_empty())
}

/// The requirement that provides a module, the second half of its reason, and where it comes from.
pub(crate) fn provide(module: &str, world: &World) -> Result<(String, String, Origin), String> {
    let top = module.split('.').next().unwrap_or(module);
    match TABLE.provider(module) {
        Provided::By { requirement, reason } => Ok((requirement, format!(": {reason}"), Origin::Table)),
        Provided::LooksLike { known } => Err(format!("nothing known provides it, and `{top}` looks like `{known}`: is that meant?")),
        Provided::Unknown => match world.installed.get(top).map(Vec::as_slice) {
            Some([distribution]) if !TABLE.knows(distribution) && TABLE.squats_on(distribution).is_none() => {
                Ok((distribution.clone(), ": the environment at hand has it from there".into(), Origin::Installed))
            }
            _ if top.starts_with('_') || top.len() < 2 => Err("nothing known provides it".into()),
            _ => Ok((normal(top), ": a distribution of that name, which is to prove that it provides it".into(), Origin::OwnName)),
        },
    }
}

/// A version that a README or a CI file has for it.
fn with_mentioned(requirement: String, evidence: &Evidence) -> String {
    let bare = name_of(&requirement).to_owned();
    if bare != requirement {
        return requirement;
    }
    let mentioned = evidence.declared.iter().filter(|declared| declared.weight == Weight::Mentioned);
    let mut parsed = mentioned.filter_map(|declared| Requirement::parse(&declared.text).ok());
    let says = |r: &Requirement| r.name.as_deref() == Some(bare.as_str()) && (!r.specifiers.is_empty() || !r.extras.is_empty());
    let found = parsed.rfind(says);
    found.map_or(requirement, |found| found.to_string())
}

fn declare(declared: &Declared, plan: &mut Plan, remarks: &mut Vec<String>) {
    let requirement = match Requirement::parse(&declared.text) {
        Ok(requirement) => requirement,
        Err((reason, _)) => {
            remarks.push(format!("`{}` ({}) was left out: {reason}", declared.text, declared.place));
            return;
        }
    };
    let Some(name) = requirement.name.clone() else {
        let key = requirement.to_string();
        let reason = format!("{} asks for it", declared.place);
        plan.packages.insert(key, Wanted { requirement, reason, origin: Origin::Declared, module: None });
        return;
    };
    if let Some((module, honest)) = TABLE.squats_on(&name) {
        let reason = format!("{} asks for `{name}`, which only has the name of the module that {honest} provides", declared.place);
        remarks.push(format!("`{name}` was refused: {reason}"));
        *plan = plan.with(&Change::Add(honest), &reason, Origin::Table, Some(&module));
        return;
    }
    if let Some(known) = TABLE.look_alike(&name).filter(|known| TABLE.knows(known)) {
        remarks.push(format!("`{name}` ({}) looks like `{known}`: is that meant? It was taken as written", declared.place));
    }
    let reason = format!("{} asks for it", declared.place);
    match plan.packages.get(&name) {
        Some(known) if known.requirement == requirement => {}
        Some(known) if known.requirement.marker != requirement.marker => {
            let key = format!("{name} ; {}", requirement.marker.clone().unwrap_or_default());
            plan.packages.insert(key, Wanted { requirement, reason, origin: Origin::Declared, module: None });
        }
        _ => *plan = plan.with(&Change::Add(declared.text.clone()), &reason, Origin::Declared, None),
    }
}
