//! The course of a rigging: what each attempt showed, what is tried next, and what came furthest.

use std::collections::{BTreeMap, BTreeSet};

use envharness_rig::Reporter;
use envharness_spec::Lock;
use serde_json::json;

use crate::advisor;
use crate::attempt::{Outcome, is_missing};
use crate::decide::Missing;
use crate::error::RiggerError;
use crate::evidence::Evidence;
use crate::gate;
use crate::plan::{Change, Origin, Plan};
use crate::problem::{Problem, Stage};
use crate::rigger::{Attempted, Options};
use crate::rules::{Finding, Scene, diagnose};
use crate::world::World;

/// The attempt that came furthest.
pub(crate) struct Best {
    pub plan: Plan,
    pub outcome_stage: Stage,
    pub problems: Vec<Problem>,
    pub lock: Option<Lock>,
    pub versions: BTreeMap<String, String>,
    /// What rules made of its problems.
    pub causes: Vec<String>,
}

/// What follows from an attempt.
pub(crate) enum Step {
    Passed,
    Next(Box<Plan>),
    Stuck,
}

/// A way that was not taken yet.
struct Way {
    plan: Plan,
    changes: Vec<Change>,
    reason: String,
}

/// The state of the loop.
pub(crate) struct Course<'a> {
    pub options: &'a Options,
    pub world: &'a World,
    pub evidence: &'a Evidence,
    pub missing: &'a [Missing],
    pub tried: BTreeSet<String>,
    /// Ways that are left, the last to be tried first.
    ways: Vec<Way>,
    pub attempts: Vec<Attempted>,
    pub best: Option<Best>,
    pub advice: Vec<String>,
}

impl<'a> Course<'a> {
    /// The beginning.
    pub fn new(options: &'a Options, world: &'a World, evidence: &'a Evidence, missing: &'a [Missing]) -> Self {
        let (tried, ways, attempts, advice) = (BTreeSet::new(), Vec::new(), Vec::new(), Vec::new());
        Self { options, world, evidence, missing, tried, ways, attempts, best: None, advice }
    }

    /// What follows from an attempt.
    ///
    /// # Errors
    /// [`RiggerError::Advisor`].
    pub fn step(&mut self, plan: &Plan, outcome: Outcome, reporter: &dyn Reporter) -> Result<Step, RiggerError> {
        let Outcome { stage, problems, versions, lock, elapsed } = outcome;
        let scene = Scene { plan, versions: &versions, evidence: self.evidence, world: self.world };
        let mut findings: Vec<Finding> = Vec::new();
        // What is known to be missing is told, and no rule finds more about it.
        let open = problems.iter().filter(|problem| !is_missing(problem, self.missing));
        for finding in open.filter_map(|problem| diagnose(problem, scene)) {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        self.advice.extend(findings.iter().filter_map(|finding| finding.offer.clone()));
        let better = self
            .best
            .as_ref()
            .is_none_or(|best| (stage, std::cmp::Reverse(problems.len())) > (best.outcome_stage, std::cmp::Reverse(best.problems.len())));
        if better {
            self.best = Some(Best {
                plan: plan.clone(),
                outcome_stage: stage,
                problems: problems.clone(),
                lock: lock.clone(),
                versions: versions.clone(),
                causes: findings.iter().map(|finding| format!("{} ({})", finding.cause, finding.rule)).collect(),
            });
        }
        let mut attempted = Attempted {
            attempt: self.attempts.len() + 1,
            stage,
            python: lock
                .as_ref()
                .map_or_else(|| plan.python.as_ref().map(|p| p.value.clone()).unwrap_or_default(), |l| l.python.version.clone()),
            packages: lock.as_ref().map_or(0, |lock| lock.packages.len()),
            seconds: elapsed.as_secs_f64(),
            problems: problems.iter().map(Problem::line).collect(),
            findings: findings.clone(),
            changes: Vec::new(),
        };
        if stage == Stage::Passed {
            self.advice.clear();
            self.attempts.push(attempted);
            return Ok(Step::Passed);
        }
        self.plan_ways(plan, &findings);
        let next = match self.next_way() {
            Some(found) => Some(found),
            None => self.ask_advisor(plan, &problems, &versions, reporter)?,
        };
        if let Some((_, changes)) = &next {
            attempted.changes.clone_from(changes);
        }
        self.attempts.push(attempted);
        Ok(next.map_or(Step::Stuck, |(plan, _)| Step::Next(Box::new(plan))))
    }

    /// The first ways of all findings together come first, then every single way.
    fn plan_ways(&mut self, plan: &Plan, findings: &[Finding]) {
        let mut ways: Vec<Way> = Vec::new();
        let with_ways: Vec<&Finding> = findings.iter().filter(|finding| !finding.ways.is_empty()).collect();
        let reason = |finding: &Finding| format!("{} ({})", finding.cause, finding.rule);
        if with_ways.len() > 1 {
            let mut changes: Vec<Change> = Vec::new();
            for change in with_ways.iter().filter_map(|finding| finding.ways.first()).flatten() {
                let second_python = matches!(change, Change::Python(_)) && changes.iter().any(|c| matches!(c, Change::Python(_)));
                if !changes.contains(change) && !second_python {
                    changes.push(change.clone());
                }
            }
            let reason = with_ways.iter().map(|f| reason(f)).collect::<Vec<_>>().join("; ");
            ways.push(Way { plan: plan.clone(), changes, reason });
        }
        for finding in with_ways {
            for changes in &finding.ways {
                ways.push(Way { plan: plan.clone(), changes: changes.clone(), reason: reason(finding) });
            }
        }
        self.ways.extend(ways.into_iter().rev());
    }

    fn next_way(&mut self) -> Option<(Plan, Vec<Change>)> {
        while let Some(way) = self.ways.pop() {
            match gate::pass(&way.plan, &way.changes, &way.reason, Origin::Rule, self.world, &self.tried) {
                Ok(plan) => return Some((plan, way.changes)),
                Err(why) => tracing::debug!(?way.changes, why, "not taken"),
            }
        }
        None
    }

    fn ask_advisor(
        &mut self,
        plan: &Plan,
        problems: &[Problem],
        versions: &BTreeMap<String, String>,
        reporter: &dyn Reporter,
    ) -> Result<Option<(Plan, Vec<Change>)>, RiggerError> {
        let Some(command) = &self.options.advisor else { return Ok(None) };
        let mut refused: Vec<String> = Vec::new();
        // A refusal is told, and another proposal heard.
        for _ in 0..3 {
            let question = json!({
                "schema": 1,
                "evidence": self.evidence,
                "machine": self.world,
                "plan": plan,
                "spec": plan.spec().to_yaml(),
                "versions": versions,
                "problems": problems,
                "attempts": self.attempts,
                "refused": refused,
            });
            let proposal = advisor::ask(command, &question, &|| reporter.interrupted())?;
            if proposal.changes.is_empty() {
                return Ok(None);
            }
            let reason = format!("{} (advisor)", proposal.reason);
            match gate::pass(plan, &proposal.changes, &reason, Origin::Advisor, self.world, &self.tried) {
                Ok(plan) => return Ok(Some((plan, proposal.changes))),
                Err(why) => refused.push(why),
            }
        }
        self.advice.push(format!("the advisor's proposals were refused: {}", refused.join("; ")));
        Ok(None)
    }
}
