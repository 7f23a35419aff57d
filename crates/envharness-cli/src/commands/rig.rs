//! `rig`: from a task to an environment that runs.

use std::io::Read as _;
use std::time::Duration;

use envharness_rig::{Event, Reporter, counted};
use envharness_rigger::{Attempted, Check, Decision, Evidence, Options, Progress, Rigged, Rigger, RiggerError, Target, Wishes};
use serde_json::{Value, json};

use super::{Ended, Session, duration};
use crate::args::RigArgs;
use crate::exit;
use crate::printer::Printer;
use crate::reporter::TerminalReporter;

pub(super) fn run(session: &Session, args: &RigArgs) -> Ended {
    let options = options(args)?;
    let target = target(&args.target)?;
    let rigger = Rigger { rig: &session.rig, options };
    if args.explain {
        return Ok(explain(session, &rigger, &target)?);
    }
    let rigged = rigger.rig(&target, &Hushed(&session.reporter), &mut |progress| tell(session, progress))?;
    session.reporter.finish();
    if session.printer.is_json() {
        session.printer.json(&json_of(&rigged));
    } else {
        account(session.printer, &rigged);
    }
    Ok(if rigged.passed { exit::OK } else { exit::FAILED })
}

/// One line tells of an attempt: of what the rig says on the way only warnings and what changes on the screen are shown.
struct Hushed<'a>(&'a TerminalReporter);

impl Reporter for Hushed<'_> {
    fn event(&self, event: &Event) {
        match event {
            Event::Python { .. } | Event::Backend { .. } | Event::Resolved { .. } | Event::LockWritten { .. } | Event::Built { .. } => {
                tracing::debug!(event = event.name(), "{}", event.text());
            }
            other => self.0.event(other),
        }
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

/// An error of the rigger, printed.
pub(super) fn failed(printer: Printer, error: &RiggerError) -> i32 {
    if let RiggerError::Rig(error) = error {
        printer.rig_error(error);
        return exit::code_of(error);
    }
    printer.error(error, &[], error.hint().as_deref());
    exit::FAILED
}

fn options(args: &RigArgs) -> anyhow::Result<Options> {
    let defaults = Options::default();
    let time = |flag: &str, text: &String, default: Duration| Ok::<_, anyhow::Error>(duration(flag, Some(text))?.unwrap_or(default));
    if args.budget.attempts == 0 {
        anyhow::bail!("`--attempts 0` tries nothing; `--explain` shows what would be tried");
    }
    Ok(Options {
        wishes: Wishes { python: args.wishes.python.clone(), date: args.wishes.date.clone(), with: args.wishes.with.clone() },
        check: if args.command.is_empty() { Check::Imports } else { Check::Command(args.command.clone()) },
        attempts: args.budget.attempts,
        budget: time("--budget", &args.budget.budget, defaults.budget)?,
        timeout: time("--timeout", &args.budget.timeout, defaults.timeout)?,
        advisor: args.advisor.clone(),
        trust: args.trust,
        output: args.output.clone(),
        force: args.force,
    })
}

fn target(text: &str) -> anyhow::Result<Target> {
    if text != "-" {
        return Ok(Target::parse(text));
    }
    let mut traceback = String::new();
    std::io::stdin().take(1 << 22).read_to_string(&mut traceback)?;
    Ok(Target::Traceback(traceback))
}

fn tell(session: &Session, progress: &Progress<'_>) {
    let printer = session.printer;
    match progress {
        Progress::Decided(decision) => {
            decision.remarks.iter().for_each(|remark| printer.note(&format!("  {remark}")));
            for missing in &decision.missing {
                printer.warning(&format!("`{}` ({}): {}", missing.module, missing.place, missing.why), None);
            }
        }
        Progress::Remark(text) => printer.warning(text, None),
        other => {
            if let Some(line) = progress_line(other) {
                session.reporter.finish();
                printer.note(&line);
            }
        }
    }
}

/// One line for a person: what was read, and each attempt.
pub fn progress_line(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Read(evidence) => {
            let files = counted(evidence.sources.len(), "file");
            Some(format!("Read {files}: {}", counted(evidence.imports.len(), "import")))
        }
        Progress::Remark(text) => Some(text.clone()),
        Progress::Tried(attempted) => Some(line(attempted)),
        Progress::Decided(_) | Progress::Trying(_) => None,
    }
}

fn line(attempted: &Attempted) -> String {
    let Attempted { attempt, stage, python, packages, seconds, problems, findings, changes } = attempted;
    let head = format!("{attempt}. Python {python}, {}, {seconds:.1} s: {}", counted(*packages, "package"), stage.text());
    let problem = problems.first().map(|problem| format!(": {problem}")).unwrap_or_default();
    let more = if problems.len() > 1 { format!(" and {} more", problems.len() - 1) } else { String::new() };
    let cause = findings.iter().find(|f| !f.ways.is_empty()).map(|finding| format!(" ({})", finding.rule)).unwrap_or_default();
    let changes = changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let next = if changes.is_empty() { String::new() } else { format!("; next: {changes}{cause}") };
    format!("{head}{problem}{more}{next}")
}

fn account(printer: Printer, rigged: &Rigged) {
    let attempts = counted(rigged.attempts.len(), "attempt");
    if let (true, Some(spec)) = (rigged.passed, &rigged.spec) {
        printer.data(&spec.display().to_string());
        printer.done(&format!("Rigged in {attempts} and {:.1} s", rigged.elapsed.as_secs_f64()));
        return;
    }
    let obstacles: Vec<String> = rigged.obstacles.clone();
    let hint = (!rigged.advice.is_empty()).then(|| rigged.advice.join("\n      "));
    let error = NotRigged { name: rigged.evidence.name.clone(), attempts };
    printer.error(&error, &obstacles, hint.as_deref());
}

#[derive(Debug)]
struct NotRigged {
    name: String,
    attempts: String,
}

impl std::fmt::Display for NotRigged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` does not pass its check after {}", self.name, self.attempts)
    }
}

impl std::error::Error for NotRigged {}

/// The end as JSON, the same for the command and for Python.
pub fn json_of(rigged: &Rigged) -> Value {
    json!({
        "schema": 1,
        "passed": rigged.passed,
        "kind": rigged.evidence.kind,
        "name": rigged.evidence.name,
        "spec": rigged.spec,
        "lock": rigged.lock,
        "plan": rigged.plan,
        "spec_text": rigged.plan.text(&[]),
        "versions": rigged.versions,
        "remarks": rigged.remarks,
        "attempts": rigged.attempts,
        "obstacles": rigged.obstacles,
        "advice": rigged.advice,
        "seconds": rigged.elapsed.as_secs_f64(),
    })
}

fn explain(session: &Session, rigger: &Rigger<'_>, target: &Target) -> Result<i32, RiggerError> {
    let (evidence, decision) = rigger.explain(target)?;
    let printer = session.printer;
    if printer.is_json() {
        printer.json(&json!({ "schema": 1, "evidence": evidence, "decision": decision, "spec_text": decision.plan.text(&[]) }));
        return Ok(exit::OK);
    }
    evidence_lines(&evidence, &decision).iter().for_each(|line| printer.data(line));
    Ok(exit::OK)
}

fn evidence_lines(evidence: &Evidence, decision: &Decision) -> Vec<String> {
    let mut out = vec![format!("# read: {}", evidence.sources.join(", "))];
    let need = |need| serde_json::to_value(need).ok().and_then(|v| v.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    out.extend(evidence.imports.iter().map(|i| format!("# {}: imports {} ({})", i.place, i.module, need(i.need))));
    out.extend(evidence.declared.iter().map(|d| format!("# {}: asks for {}", d.place, d.text)));
    out.extend(evidence.pythons.iter().map(|p| format!("# Python {}: {}", p.specifier, p.why)));
    out.extend(evidence.dates.iter().map(|d| format!("# day {}: {}", d.day, d.why)));
    out.extend(evidence.gpu.iter().map(|place| format!("# {place}: uses a GPU")));
    out.extend(evidence.system.iter().map(|name| format!("# a recipe installs the system package {name}")));
    out.extend(evidence.commands.iter().map(|command| format!("# a README tells to run: {command}")));
    out.extend(evidence.notes.iter().filter(|note| !note.starts_with("standard:")).map(|note| format!("# note: {note}")));
    out.extend(decision.remarks.iter().map(|remark| format!("# {remark}")));
    out.extend(decision.missing.iter().map(|m| format!("# missing: `{}` ({}): {}", m.module, m.place, m.why)));
    out.extend(decision.plan.text(&[]).lines().map(ToOwned::to_owned));
    out
}
