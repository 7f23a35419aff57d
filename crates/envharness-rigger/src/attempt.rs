//! One attempt: a plan is locked, installed, its imports are tried, and the check runs. All of it in a context.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use envharness_rig::{Context, CreateRequest, ErrorKind, ExecOptions, ExitPolicy, Input, Reporter, Rig, RigError};
use envharness_spec::Lock;
use serde::Deserialize;
use serde_json::json;

use crate::decide::Missing;
use crate::evidence::{Evidence, Need};
use crate::plan::Plan;
use crate::problem::{Problem, Stage};
use crate::prove;
use crate::table::TABLE;

/// What tells that a task works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Its imports.
    Imports,
    /// A command.
    Command(Vec<String>),
    /// The application of an env package, as its manifest names it: it loads, makes an instance, and that resets.
    Smoke(String),
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub stage: Stage,
    pub problems: Vec<Problem>,
    pub versions: BTreeMap<String, String>,
    pub lock: Option<Lock>,
    pub elapsed: Duration,
}

/// What an attempt works with.
pub(crate) struct Bench<'a> {
    pub rig: &'a Rig,
    pub evidence: &'a Evidence,
    pub check: &'a Check,
    pub reporter: &'a dyn Reporter,
    /// The longest run of the check.
    pub limit: Duration,
    /// The folder that the check runs in.
    pub cwd: PathBuf,
    /// Modules that nothing provides.
    pub missing: &'a [Missing],
}

/// Whether a problem is only that a module is missing that nothing provides.
pub(crate) fn is_missing(problem: &Problem, missing: &[Missing]) -> bool {
    let top = problem.subject.as_deref().and_then(|subject| subject.split('.').next());
    problem.stage == Stage::Imports && missing.iter().any(|missing| Some(missing.module.as_str()) == top)
}

#[derive(Debug, Deserialize)]
struct Answer {
    failures: Vec<Failed>,
}

#[derive(Debug, Deserialize)]
struct Failed {
    name: String,
    traceback: String,
}

impl Bench<'_> {
    /// Tries a plan.
    ///
    /// # Errors
    /// What no other plan would change: an interruption, a broken store, a machine without `uv`.
    pub fn attempt(&self, plan: &Plan) -> Result<Outcome, RigError> {
        let started = Instant::now();
        let mut spec = plan.spec();
        spec.base = Some(self.evidence.root.clone());
        let request = CreateRequest::default();
        let context = match self.rig.create(&spec, &request, self.reporter) {
            Ok(context) => context,
            Err(error) => return failed_before(error, started),
        };
        let lock = context.lock().cloned();
        let versions: BTreeMap<String, String> =
            lock.iter().flat_map(|lock| lock.packages.iter()).filter_map(|p| Some((p.name.clone(), p.version.clone()?))).collect();
        let result = self.in_context(&context, plan);
        context.release(ExitPolicy::Destroy)?;
        let (stage, problems) = result?;
        Ok(Outcome { stage, problems, versions, lock, elapsed: started.elapsed() })
    }

    fn in_context(&self, context: &Context, plan: &Plan) -> Result<(Stage, Vec<Problem>), RigError> {
        let imports = self.imports(context, plan)?;
        let command = match self.check {
            Check::Imports => return Ok(if imports.is_empty() { (Stage::Passed, imports) } else { (Stage::Imports, imports) }),
            Check::Command(command) => command.clone(),
            Check::Smoke(application) => self.smoke(context, application),
        };
        // Imports that fail are told first: they name everything at once, where a run stops at the first.
        // What is known to be missing the command may still do without.
        let required: Vec<Problem> =
            imports.into_iter().filter(|problem| self.is_required(problem) && !is_missing(problem, self.missing)).collect();
        if !required.is_empty() {
            return Ok((Stage::Imports, required));
        }
        let mut options = ExecOptions { cwd: Some(self.cwd.clone()), timeout: Some(self.limit), ..ExecOptions::default() };
        if let Some(path) = self.evidence.paths.first() {
            options.env.insert("PYTHONPATH".into(), self.evidence.root.join(path).display().to_string());
        }
        let problem = |text: String, exit_code| Problem { stage: Stage::Check, subject: None, place: None, text, exit_code };
        match context.execute(&command, &options, &mut |_, _| {}, &|| self.reporter.interrupted()) {
            Ok(output) if output.exit_code == 0 => Ok((Stage::Passed, Vec::new())),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.logs);
                Ok((Stage::Check, vec![problem(tail(&text), Some(output.exit_code))]))
            }
            Err(error @ (RigError::Start { .. } | RigError::Timeout { .. })) => {
                let text = std::iter::once(error.to_string()).chain(error.details()).collect::<Vec<_>>().join("\n");
                Ok((Stage::Check, vec![problem(tail(&text), None)]))
            }
            Err(error) => Err(error),
        }
    }

    fn smoke(&self, context: &Context, application: &str) -> Vec<String> {
        let script = context.guest().join("envharness_guest/rigger/smoke.py");
        let words = [context.python(), "-B".into(), script, self.evidence.root.clone(), application.into()];
        words.iter().map(|word| word.display().to_string()).collect()
    }

    fn is_required(&self, problem: &Problem) -> bool {
        let subject = problem.subject.as_deref().unwrap_or_default();
        let imports = self.evidence.imports.iter().filter(|import| import.need == Need::Required);
        let names = imports.flat_map(|import| {
            std::iter::once(import.module.clone()).chain(import.names.iter().map(|name| format!("{}.{name}", import.module)))
        });
        names.into_iter().any(|name| name == subject) || self.evidence.uses.contains_key(subject)
    }

    /// Tries every import that must work, and every name that is used of what was imported.
    fn imports(&self, context: &Context, plan: &Plan) -> Result<Vec<Problem>, RigError> {
        let mut modules: Vec<String> = Vec::new();
        for import in self.evidence.needed() {
            modules.push(import.module.clone());
        }
        let taken = self.evidence.imports.iter().filter(|import| import.need != Need::Optional);
        let mut uses: Vec<String> =
            taken.flat_map(|i| i.names.iter().map(|name| format!("{}.{name}", i.module)).collect::<Vec<_>>()).collect();
        // A module may make up attributes while it runs; only those that are known to be gone are missed for certain.
        uses.extend(self.evidence.uses.keys().filter(|dotted| TABLE.gone(dotted).is_some()).cloned());
        // Of imports that stand in for each other those that were taken are tried.
        modules.retain(|module| {
            let import = self.evidence.imports.iter().find(|import| import.module == *module);
            import.is_none_or(|i| i.group.is_none()) || plan.packages.values().any(|w| w.module.as_deref() == module.split('.').next())
        });
        if modules.is_empty() && self.evidence.kind == crate::evidence::Kind::Spec {
            modules = plan.packages.values().filter_map(|wanted| self.module_of(context, wanted.requirement.name.as_deref()?)).collect();
        }
        if modules.is_empty() {
            return Ok(Vec::new());
        }
        let question = json!({ "modules": modules, "uses": uses }).to_string();
        let probe = context.guest().join("envharness_guest/rigger/probe.py");
        let argv = [context.python().display().to_string(), "-B".into(), probe.display().to_string()];
        let options = ExecOptions {
            input: Input::Bytes(question.as_bytes()),
            cwd: Some(context.workdir()),
            timeout: Some(self.limit.max(Duration::from_secs(300))),
            ..ExecOptions::default()
        };
        let output = match context.execute(&argv, &options, &mut |_, _| {}, &|| self.reporter.interrupted()) {
            Ok(output) => output,
            Err(error @ RigError::Timeout { .. }) => {
                let text = std::iter::once(error.to_string()).chain(error.details()).collect::<Vec<_>>().join("\n");
                return Ok(vec![Problem { stage: Stage::Imports, subject: None, place: None, text: tail(&text), exit_code: None }]);
            }
            Err(error) => return Err(error),
        };
        let Ok(answer) = serde_json::from_slice::<Answer>(&output.stdout) else {
            // A native module took the interpreter down.
            let text = tail(&String::from_utf8_lossy(&output.logs));
            return Ok(vec![Problem { stage: Stage::Imports, subject: None, place: None, text, exit_code: Some(output.exit_code) }]);
        };
        let problems = answer.failures.into_iter().map(|failed| Problem {
            stage: Stage::Imports,
            place: self.evidence.place_of(&failed.name).map(ToOwned::to_owned),
            subject: Some(failed.name),
            text: failed.traceback,
            exit_code: None,
        });
        let mut problems: Vec<Problem> = problems.collect();
        problems.extend(unproved(context, plan));
        Ok(problems)
    }

    /// A module that an installed distribution provides, for a spec whose task is not at hand.
    fn module_of(&self, context: &Context, distribution: &str) -> Option<String> {
        prove::first_module(&context.site_packages(), distribution)
    }
}

/// Packages that do not provide the module that they were taken for.
fn unproved(context: &Context, plan: &Plan) -> Vec<Problem> {
    let site_packages = context.site_packages();
    let wrong = plan.packages.iter().filter_map(|(name, wanted)| {
        let module = wanted.module.as_deref()?;
        let known = matches!(wanted.origin, crate::plan::Origin::OwnName | crate::plan::Origin::Installed);
        let holds = prove::provides(&site_packages, name, module).unwrap_or(true);
        (known && !holds).then(|| Problem {
            stage: Stage::Imports,
            subject: Some(module.to_owned()),
            place: None,
            text: format!("WrongDistribution: `{name}` has no module `{module}`"),
            exit_code: None,
        })
    });
    wrong.collect()
}

/// A failure of the rig as the outcome of an attempt, unless no other plan could change it.
fn failed_before(error: RigError, started: Instant) -> Result<Outcome, RigError> {
    let stage = match &error {
        RigError::Program { action, .. } if !action.starts_with("resolve") => Stage::Install,
        RigError::Program { .. } | RigError::Unsolvable { .. } | RigError::NoPython { .. } | RigError::Conda(_) => Stage::Lock,
        RigError::Gpus { .. } => Stage::Lock,
        _ => return Err(error),
    };
    if error.kind() == ErrorKind::Interrupted {
        return Err(error);
    }
    let text = std::iter::once(error.to_string()).chain(error.details()).chain(error.hint()).collect::<Vec<_>>().join("\n");
    let problem = Problem { stage, subject: None, place: None, text, exit_code: None };
    Ok(Outcome { stage, problems: vec![problem], versions: BTreeMap::new(), lock: None, elapsed: started.elapsed() })
}

/// The end of what was printed.
fn tail(text: &str) -> String {
    const KEPT: usize = 16 * 1024;
    let start = text.floor_char_boundary(text.len().saturating_sub(KEPT));
    text[start..].trim_end().to_owned()
}
