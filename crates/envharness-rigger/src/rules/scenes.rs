//! What the rules' tests share.

use std::collections::BTreeMap;

use super::{Finding, Rule, Scene};
use crate::evidence::{Evidence, Kind};
use crate::plan::{Change, Origin, Plan};
use crate::problem::{Problem, Stage};
use crate::world::World;

/// A scene that owns its parts.
pub(super) struct Owned {
    pub plan: Plan,
    pub versions: BTreeMap<String, String>,
    pub evidence: Evidence,
    pub world: World,
}

/// A plan of requirements, with locked versions.
pub(super) fn scene(requirements: &[&str], versions: &[(&str, &str)]) -> Owned {
    let mut plan = Plan { name: "x".into(), ..Plan::default() };
    for text in requirements {
        plan = plan.with(&Change::Add((*text).into()), "", Origin::Declared, None);
    }
    plan = plan.with(&Change::Python("3.12".into()), "", Origin::Rule, None);
    Owned {
        plan,
        versions: versions.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect(),
        evidence: Evidence::new(Kind::Script, "x", "/x".into()),
        world: World {
            pythons: ["3.12", "3.11", "3.10", "3.9", "3.8"].map(Into::into).into(),
            today: "2026-12-01".into(),
            ..World::default()
        },
    }
}

pub(super) fn problem(stage: Stage, subject: Option<&str>, text: &str) -> Problem {
    Problem { stage, subject: subject.map(Into::into), place: Some("train.py:1".into()), text: text.into(), exit_code: Some(1) }
}

impl Owned {
    pub fn ask(&self, rule: &dyn Rule, problem: &Problem) -> Option<Finding> {
        let scene = Scene { plan: &self.plan, versions: &self.versions, evidence: &self.evidence, world: &self.world };
        rule.find(problem, scene)
    }
}
