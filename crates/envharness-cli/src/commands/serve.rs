//! `serve` and `contract`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use envharness_rig::{Reporter as _, Settings};
use envharness_serve::{ServeError, ServeOptions, Service, contract_of};
use envharness_server::{RunMode, Token};
use envharness_worker::Mode;
use serde_json::json;

use super::{Ended, Session, duration};
use crate::args::{Concurrency, ContractCommand, ServeArgs, ServeMode, TargetFlags};
use crate::exit;

pub(super) fn run(session: &Session, args: &ServeArgs) -> Ended {
    let options = options(args, &session.rig.settings)?;
    let rig = Arc::new(session.rig.clone());
    let service = match Service::start(&options, &rig, &session.reporter) {
        Ok(service) => service,
        Err(error) => return failed(session, &error),
    };
    session.reporter.finish();
    for note in service.notes() {
        session.printer.note(note);
    }
    if session.printer.is_json() {
        session.printer.json(&json!({"schema": 1, "url": service.url(), "max_sessions": service.capacity().1, "notes": service.notes()}));
    } else {
        session.printer.data(&service.url());
    }
    // The first signal asks for an orderly end, a second ends at once.
    while !session.reporter.interrupted() {
        if service.has_failed() {
            anyhow::bail!("the application has ended by itself");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    session.printer.note("Ending: no new sessions; once more to end at once");
    service.stop();
    Ok(exit::OK)
}

pub(super) fn contract(session: &Session, command: &ContractCommand) -> Ended {
    let ContractCommand::Show { target, output } = command;
    let mut options = ServeOptions { workers: Some(1), ..ServeOptions::default() };
    of_target(target, &mut options)?;
    let contract = match contract_of(&options, &session.rig, &session.reporter) {
        Ok(contract) => contract,
        Err(error) => return failed(session, &error),
    };
    session.reporter.finish();
    let text = format!("{:#}", contract.to_json());
    match output {
        Some(path) => {
            envharness_store::write_atomic(path, format!("{text}\n").as_bytes())?;
            session.printer.done(&format!("Wrote {} ({})", path.display(), contract.digest()));
        }
        None => session.printer.data(&text),
    }
    Ok(exit::OK)
}

fn failed(session: &Session, error: &ServeError) -> Ended {
    session.reporter.finish();
    session.printer.error(error, &error.details(), error.hint().as_deref());
    Ok(match error {
        ServeError::Rig(error) => exit::code_of(error),
        _ => exit::FAILED,
    })
}

fn of_target(flags: &TargetFlags, options: &mut ServeOptions) -> anyhow::Result<()> {
    options.target.clone_from(&flags.target);
    options.with.clone_from(&flags.with);
    options.spec.clone_from(&flags.spec);
    options.reference = flags.reference;
    options.start_timeout = time("--start-timeout", Some(&flags.start_timeout))?;
    Ok(())
}

/// A time in which `0` stands for none.
fn time(flag: &str, text: Option<&String>) -> anyhow::Result<Option<Duration>> {
    match text.map(String::as_str) {
        Some("0") => Ok(Some(Duration::ZERO)),
        _ => duration(flag, text),
    }
}

fn options(args: &ServeArgs, settings: &Settings) -> anyhow::Result<ServeOptions> {
    let mut options = ServeOptions {
        host: args.host.clone(),
        port: args.port,
        workers: args.workers.map(|n| n as usize),
        max_sessions: args.max_sessions.map(|n| n as usize),
        sessions_per_client: args.max_sessions_per_client,
        session_timeout: time("--session-timeout", args.session_timeout.as_ref())?,
        resume_timeout: time("--resume-timeout", Some(&args.resume_timeout))?,
        idle_timeout: time("--idle-timeout", args.idle_timeout.as_ref())?.filter(|limit| !limit.is_zero()),
        step_timeout: time("--step-timeout", Some(&args.step_timeout))?,
        drain_timeout: time("--drain-timeout", Some(&args.drain_timeout))?,
        concurrency: match args.concurrency {
            Concurrency::Auto => None,
            Concurrency::Inline => Some(Mode::Inline),
            Concurrency::Thread => Some(Mode::Thread),
            Concurrency::Async => Some(Mode::Async),
            Concurrency::Process => Some(Mode::Process),
        },
        token: token(args.token_file.as_deref(), settings.variable("ENVHARNESS_TOKEN"))?,
        insecure: args.insecure,
        allowed_hosts: args.allowed_hosts.clone(),
        allowed_origins: args.allowed_origins.clone(),
        trusted_proxies: args.trusted_proxies.clone(),
        max_message: Some(size("--max-message-size", &args.max_message_size)?),
        mode: args.mode.map(|mode| match mode {
            ServeMode::Simulation => RunMode::Simulation,
            ServeMode::Production => RunMode::Production,
        }),
        strict: args.strict,
        trace: args.trace.clone(),
        reload: args.reload,
        ..ServeOptions::default()
    };
    of_target(&args.target, &mut options)?;
    Ok(options)
}

fn size(flag: &str, text: &str) -> anyhow::Result<usize> {
    let bytes = envharness_spec::parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes >= 1024);
    bytes.filter(|bytes| *bytes <= 1 << 30).ok_or_else(|| anyhow::anyhow!("`{flag} {text}` is not a size between 1K and 1G"))
}

/// The token of a file, else of the variable.
fn token(file: Option<&Path>, variable: Option<&str>) -> anyhow::Result<Option<Token>> {
    let (text, place) = match (file, variable) {
        (Some(path), _) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| anyhow::anyhow!("cannot read the token file {}: {error}", path.display()))?;
            (text, path.display().to_string())
        }
        (None, Some(text)) if !text.is_empty() => (text.to_owned(), "ENVHARNESS_TOKEN".to_owned()),
        _ => return Ok(None),
    };
    Token::new(&text).map(Some).map_err(|reason| anyhow::anyhow!("{place}: {reason}"))
}
