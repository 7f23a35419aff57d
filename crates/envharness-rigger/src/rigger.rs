//! The loop: read, decide, try, look up what failed, try again; and the account at its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use envharness_rig::{Reporter, Rig};
use envharness_spec::Lock;
use envharness_store::write_atomic;
use serde::Serialize;

use crate::attempt::{Bench, Check, is_missing};
use crate::course::{Best, Course, Step};
use crate::decide::{Decision, Missing, Wishes, decide, permits};
use crate::error::RiggerError;
use crate::evidence::{Evidence, Kind};
use crate::plan::{Change, Origin, Plan};
use crate::problem::Stage;
use crate::prove::{self, Proof};
use crate::read::{self, Target};
use crate::rules::Finding;
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
        decision.remarks.extend(evidence.notes.iter().filter(|note| !note.starts_with("standard:")).cloned());
        self.prove(&mut decision, &evidence, &world, reporter);
        tell(&Progress::Decided(&decision));
        let check = self.check(&evidence);
        if check != Check::Imports {
            let warning = "the check runs the task's own code with your rights: confinement is not there yet";
            tell(&Progress::Remark(warning.into()));
        }
        let world = within(world, &evidence, self.options.wishes.python.as_deref());
        let mut course = Course::new(&self.options, &world, &evidence, &decision.missing);
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
        let best = best.unwrap_or_else(|| Best {
            plan,
            outcome_stage: Stage::Lock,
            problems: Vec::new(),
            lock: None,
            versions: BTreeMap::new(),
            causes: Vec::new(),
        });
        // What is missing is told; a check that is a command decides for itself whether it matters.
        let missing = decision.missing.iter().map(|m| format!("`{}` ({}): {}", m.module, m.place, m.why));
        let passed = passed && (decision.missing.is_empty() || check != Check::Imports);
        if !passed {
            let others = best.problems.iter().filter(|problem| !is_missing(problem, &decision.missing));
            obstacles.splice(0..0, missing.chain(others.map(|p| format!("{}: {}", p.stage.text(), p.line()))).chain(best.causes));
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
                Proof::Given(version) => {
                    // What was looked into is what is installed: a later archive without a wheel may be anything.
                    decision.remarks.push(format!("`{name}` {version} is taken for `{module}`: its wheel has what the task uses of it"));
                    let reason = format!("the release whose wheel was looked into is {version}");
                    let change = Change::Limit(format!("{name}<={version}"));
                    decision.plan = decision.plan.with(&change, &reason, Origin::OwnName, Some(&module));
                    continue;
                }
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
        if !path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml") {
            let hint = Some("the spec is YAML: `-o task_spec.yaml`".to_owned());
            let reason = "is no name for a spec that is written as YAML".to_owned();
            return Err(RiggerError::Target { target: path.display().to_string(), reason, hint });
        }
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

/// The Pythons that a rule or an advisor may choose among.
fn within(mut world: World, evidence: &Evidence, wish: Option<&str>) -> World {
    world.pythons.retain(|version| permits(evidence, wish, version));
    world.python_downloads &= wish.is_none() && !evidence.pythons.iter().any(|bound| bound.firm);
    world
}

/// Whether a file was written by the rigger and not touched since it said so.
fn is_ours(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file && fs::read_to_string(path).is_ok_and(|text| text.starts_with(&format!("# {HEAD}")))
}
