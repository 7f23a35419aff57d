//! The loop: read, decide, try, look up what failed, try again; and the account at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use envharness_rig::{Reporter, Rig};
use envharness_spec::Lock;
use envharness_store::write_atomic;
use serde::Serialize;
use serde_json::json;

use crate::advisor;
use crate::attempt::{Bench, Check, Outcome, is_missing};
use crate::decide::{Decision, Missing, Wishes, decide};
use crate::error::RiggerError;
use crate::evidence::{Evidence, Kind};
use crate::gate;
use crate::plan::{Change, Origin, Plan};
use crate::problem::{Problem, Stage};
use crate::prove::{self, Proof};
use crate::read::{self, Target};
use crate::rules::{Finding, Scene, diagnose};
use crate::survey::survey;
use crate::world::World;

/// How a person wants it done.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is decided beforehand.
    pub wishes: Wishes,
    /// What tells that it works; the imports by default.
    pub check: Check,
    /// The most attempts.
    pub attempts: usize,
    /// The longest time for all of them.
    pub budget: Duration,
    /// The longest run of the check.
    pub timeout: Duration,
    /// A program that is asked where no rule knows a way.
    pub advisor: Option<String>,
    /// Whether the task's own words are trusted: a README's command may be the check.
    pub trust: bool,
    /// Where the spec goes.
    pub output: Option<PathBuf>,
    /// Whether a file there is replaced.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wishes: Wishes::default(),
            check: Check::Imports,
            attempts: 8,
            budget: Duration::from_secs(30 * 60),
            timeout: Duration::from_secs(10 * 60),
            advisor: None,
            trust: false,
            output: None,
            force: false,
        }
    }
}

/// One attempt, as it is recorded.
#[derive(Debug, Clone, Serialize)]
pub struct Attempted {
    /// Its number, from 1.
    pub attempt: usize,
    /// How far it came.
    pub stage: Stage,
    /// The Python.
    pub python: String,
    /// Packages in the lock.
    pub packages: usize,
    /// How long it took.
    pub seconds: f64,
    /// What failed, one line each.
    pub problems: Vec<String>,
    /// What was made of it.
    pub findings: Vec<Finding>,
    /// What is changed for the next one.
    pub changes: Vec<Change>,
}

/// What is told on the way.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The evidence is there.
    Read(&'a Evidence),
    /// The first plan is there.
    Decided(&'a Decision),
    /// A person should know.
    Remark(String),
    /// An attempt begins.
    Trying(usize),
    /// An attempt is over.
    Tried(&'a Attempted),
}

/// The end.
#[derive(Debug)]
pub struct Rigged {
    /// Whether spec and lock passed their check.
    pub passed: bool,
    /// What the task said.
    pub evidence: Evidence,
    /// The plan that passed, or came furthest.
    pub plan: Plan,
    /// Remarks on the way.
    pub remarks: Vec<String>,
    /// The attempts.
    pub attempts: Vec<Attempted>,
    /// What stands in the way.
    pub obstacles: Vec<String>,
    /// What a person could do.
    pub advice: Vec<String>,
    /// The spec, where it was written.
    pub spec: Option<PathBuf>,
    /// The lock, where it was written.
    pub lock: Option<PathBuf>,
    /// The versions of it.
    pub versions: BTreeMap<String, String>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Rigs tasks.
#[derive(Debug)]
pub struct Rigger<'a> {
    /// The rig.
    pub rig: &'a Rig,
    /// How.
    pub options: Options,
}

impl Rigger<'_> {
    /// From a target to a spec and a lock that passed their check, or to an account.
    ///
    /// # Errors
    /// [`RiggerError`] for what cannot be tried at all.
    pub fn rig(&self, target: &Target, reporter: &dyn Reporter, tell: &mut dyn FnMut(&Progress<'_>)) -> Result<Rigged, RiggerError> {
        let started = Instant::now();
        let evidence = read::gather(self.rig, target)?;
        tell(&Progress::Read(&evidence));
        let output = self.output(&evidence)?;
        let world = survey(self.rig)?;
        let mut decision = decide(&evidence, &world, &self.options.wishes)?;
        self.prove(&mut decision, &evidence, &world, reporter);
        tell(&Progress::Decided(&decision));
        let check = self.check(&evidence);
        if check != Check::Imports {
            let warning = "the check runs the task's own code with your rights: confinement is not there yet";
            tell(&Progress::Remark(warning.into()));
        }
        let mut course = Course {
            options: &self.options,
            world: &world,
            evidence: &evidence,
            missing: &decision.missing,
            tried: BTreeSet::new(),
            ways: Vec::new(),
            attempts: Vec::new(),
            best: None,
            advice: Vec::new(),
        };
        let bench = Bench {
            rig: self.rig,
            evidence: &evidence,
            check: &check,
            reporter,
            limit: self.options.timeout,
            cwd: self.cwd(&evidence, target),
            missing: &decision.missing,
        };
        let mut plan = decision.plan.clone();
        let mut obstacles: Vec<String> = Vec::new();
        let passed = loop {
            let number = course.attempts.len() + 1;
            tell(&Progress::Trying(number));
            course.tried.insert(plan.fingerprint());
            let outcome = bench.attempt(&plan)?;
            let step = course.step(&plan, outcome, reporter)?;
            if let Some(attempted) = course.attempts.last() {
                tell(&Progress::Tried(attempted));
            }
            match step {
                Step::Passed => break true,
                Step::Next(next) => plan = *next,
                Step::Stuck => break false,
            }
            if course.attempts.len() >= self.options.attempts {
                obstacles.push(format!("the budget of {} attempts is spent", self.options.attempts));
                break false;
            }
            if started.elapsed() > self.options.budget {
                obstacles.push(format!("the budget of {} s is spent", self.options.budget.as_secs()));
                break false;
            }
        };
        let Course { attempts, best, mut advice, .. } = course;
        let best =
            best.unwrap_or_else(|| Best { plan, outcome_stage: Stage::Lock, problems: Vec::new(), lock: None, versions: BTreeMap::new() });
        // What is missing is told; a check that is a command decides for itself whether it matters.
        let missing = decision.missing.iter().map(|m| format!("`{}` ({}): {}", m.module, m.place, m.why));
        let passed = passed && (decision.missing.is_empty() || check != Check::Imports);
        if !passed {
            let others = best.problems.iter().filter(|problem| !is_missing(problem, &decision.missing));
            obstacles.splice(0..0, missing.chain(others.map(|p| format!("{}: {}", p.stage.text(), p.line()))));
            if !decision.missing.is_empty() {
                advice.push("name the distribution of what is missing by `--with`".into());
            }
        }
        obstacles.dedup();
        advice.dedup();
        let mut rigged = Rigged {
            passed,
            plan: best.plan,
            remarks: decision.remarks,
            attempts,
            obstacles,
            advice,
            spec: None,
            lock: None,
            versions: best.versions,
            elapsed: started.elapsed(),
            evidence,
        };
        if passed {
            self.write(&mut rigged, best.lock.as_ref(), &output, &check)?;
        }
        rigged.elapsed = started.elapsed();
        Ok(rigged)
    }

    /// What is read and decided, without an attempt.
    ///
    /// # Errors
    /// As [`Rigger::rig`].
    pub fn explain(&self, target: &Target) -> Result<(Evidence, Decision), RiggerError> {
        let evidence = read::gather(self.rig, target)?;
        let decision = decide(&evidence, &survey(self.rig)?, &self.options.wishes)?;
        Ok((evidence, decision))
    }

    /// Distributions that only have a module's name prove themselves before the first attempt.
    fn prove(&self, decision: &mut Decision, evidence: &Evidence, world: &World, reporter: &dyn Reporter) {
        for (name, module, proof) in prove::own_names(self.rig, &decision.plan, evidence, world, &|| reporter.interrupted()) {
            let why = match proof {
                Proof::Given => continue,
                Proof::Older(version) => {
                    let reason = format!("later releases have not all that the task uses of it, and {version} has");
                    let change = Change::Limit(format!("{name}<={version}"));
                    decision.plan = decision.plan.with(&change, &reason, Origin::OwnName, Some(&module));
                    continue;
                }
                Proof::Refused(why) => why,
            };
            decision.plan.packages.remove(&name);
            let import = evidence.needed().into_iter().find(|i| i.module.split('.').next() == Some(&module)).cloned();
            let place = import.as_ref().map(|i| i.place.clone()).unwrap_or_default();
            let nearest = crate::table::TABLE.nearest(&module);
            let near = if nearest.is_empty() { String::new() } else { format!("; nearest known names: {}", nearest.join(", ")) };
            let why = format!("nothing known provides it, and {why}{near}");
            if import.is_some_and(|import| import.need == crate::evidence::Need::Required) {
                decision.missing.push(Missing { module, place, why });
            } else {
                decision.remarks.push(format!("`{module}` ({place}) was left out: {why}"));
            }
        }
    }

    /// The check: what was asked for; an env package's smoke test; the imports; with `--trust` a README's own command.
    fn check(&self, evidence: &Evidence) -> Check {
        if let (Check::Imports, Some(application)) = (&self.options.check, &evidence.application) {
            return Check::Smoke(application.clone());
        }
        match (&self.options.check, evidence.commands.first()) {
            (Check::Imports, Some(command)) if self.options.trust => shlex::split(command).map_or(Check::Imports, Check::Command),
            (check, _) => check.clone(),
        }
    }

    /// Where the check runs: the caller's folder; a clone's own.
    fn cwd(&self, evidence: &Evidence, target: &Target) -> PathBuf {
        match target {
            Target::Git(_) => evidence.root.clone(),
            _ if self.options.trust && self.options.check == Check::Imports => evidence.root.clone(),
            _ => std::env::current_dir().unwrap_or_else(|_| evidence.root.clone()),
        }
    }

    /// Where the spec goes: beside the script, into the folder.
    fn output(&self, evidence: &Evidence) -> Result<PathBuf, RiggerError> {
        let stem = |suffix: &str| {
            let file = evidence.file.as_deref().unwrap_or(Path::new("task"));
            let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            file.with_file_name(format!("{stem}{suffix}.yaml"))
        };
        let default = || match evidence.kind {
            Kind::Script | Kind::Notebook => stem("_spec"),
            Kind::Spec => stem("_rigged"),
            Kind::Folder | Kind::EnvPackage => evidence.root.join("task_spec.yaml"),
            Kind::Traceback => evidence.file.as_ref().map_or_else(|| evidence.root.join("task_spec.yaml"), |_| stem("_spec")),
        };
        let path = self.options.output.clone().unwrap_or_else(default);
        let path = std::path::absolute(&path).unwrap_or(path);
        // A link would lead elsewhere than it says; what is replaced is the link itself.
        if fs::symlink_metadata(&path).is_ok() && !self.options.force && !is_ours(&path) {
            return Err(RiggerError::Exists { path });
        }
        Ok(path)
    }

    fn write(&self, rigged: &mut Rigged, lock: Option<&Lock>, output: &Path, check: &Check) -> Result<(), RiggerError> {
        let checked = match check {
            Check::Imports => "its imports".to_owned(),
            Check::Smoke(application) => format!("`{}` loads and resets", application.replace('\n', " ")),
            Check::Command(words) => format!("`{}`", words.join(" ").replace('\n', " ")),
        };
        let head = [HEAD.to_owned(), format!("It passed its check, {checked}; what follows a `#` is the reason.")];
        write_atomic(output, rigged.plan.text(&head).as_bytes()).map_err(envharness_rig::RigError::from)?;
        rigged.spec = Some(output.to_owned());
        if let Some(lock) = lock {
            let mut spec = rigged.plan.spec();
            spec.file = Some(output.to_owned());
            let path = self.rig.lock_path(&spec);
            write_atomic(&path, lock.to_string().as_bytes()).map_err(envharness_rig::RigError::from)?;
            rigged.lock = Some(path);
        }
        Ok(())
    }
}

const HEAD: &str = "Rigged by envharness: change it as you like, or rig anew.";

/// Whether a file was written by the rigger and not touched since it said so.
fn is_ours(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file && fs::read_to_string(path).is_ok_and(|text| text.starts_with(&format!("# {HEAD}")))
}

struct Best {
    plan: Plan,
    outcome_stage: Stage,
    problems: Vec<Problem>,
    lock: Option<Lock>,
    versions: BTreeMap<String, String>,
}

enum Step {
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
struct Course<'a> {
    options: &'a Options,
    world: &'a World,
    evidence: &'a Evidence,
    missing: &'a [Missing],
    tried: BTreeSet<String>,
    /// Ways that are left, the last to be tried first.
    ways: Vec<Way>,
    attempts: Vec<Attempted>,
    best: Option<Best>,
    advice: Vec<String>,
}

impl Course<'_> {
    /// What follows from an attempt.
    fn step(&mut self, plan: &Plan, outcome: Outcome, reporter: &dyn Reporter) -> Result<Step, RiggerError> {
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
