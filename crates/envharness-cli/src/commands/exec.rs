//! `create`, `run`, `exec` and `shell`.

use std::io::IsTerminal as _;

use envharness_rig::{Context, CreateRequest, ExecOptions, ExitPolicy, Input, Reporter as _, Stream};
use envharness_store::Origin;
use serde_json::json;

use super::{Ended, Session, duration, lock_request};
use crate::args::{CommandFlags, CreateArgs, ExecArgs, RunArgs, ShellArgs};
use crate::exit;

pub(super) fn create(session: &Session, args: &CreateArgs) -> Ended {
    let spec = session.spec(args.spec.as_deref())?;
    let request = CreateRequest {
        origin: Origin::Kept,
        lock: lock_request(&args.lock),
        timeout: duration("--timeout", args.timeout.as_ref())?,
        ..CreateRequest::default()
    };
    let context = session.rig.create(&spec, &request, &session.reporter)?;
    context.release(ExitPolicy::Keep)?;
    session.reporter.finish();
    if session.printer.is_json() {
        session.printer.json(&session.rig.inspect(context.id())?);
    } else {
        session.printer.data(context.id());
    }
    Ok(exit::OK)
}

pub(super) fn run(session: &Session, args: &RunArgs) -> Ended {
    let spec = session.spec(args.spec.as_deref())?;
    let request =
        CreateRequest { origin: Origin::Get, find_idle: true, fresh: !args.no_fresh, lock: lock_request(&args.lock), timeout: None };
    let context = session.rig.create(&spec, &request, &session.reporter)?;
    let result = drive(session, &context, &args.command, &args.flags);
    context.release(ExitPolicy::Release)?;
    result
}

pub(super) fn exec(session: &Session, args: &ExecArgs) -> Ended {
    let context = session.rig.attach(&args.id)?;
    drive(session, &context, &args.command, &args.flags)
}

pub(super) fn shell(session: &Session, args: &ShellArgs) -> Ended {
    let context = session.rig.attach(&args.id)?;
    let shell = session.rig.settings.variable("SHELL").filter(|s| !s.is_empty()).unwrap_or("/bin/sh").to_owned();
    session.printer.note(&format!("Entering {}; `exit` leaves it", context.id()));
    drive(session, &context, &[shell], &args.flags)
}

/// Runs a command with the caller's streams. Where both ends are a terminal it has the terminal itself; elsewhere its
/// output passes through, so that the log has it too.
fn drive(session: &Session, context: &Context, command: &[String], flags: &CommandFlags) -> Ended {
    session.reporter.finish();
    let mut options = ExecOptions {
        cwd: flags.cwd.clone(),
        timeout: duration("--timeout", flags.timeout.as_ref())?,
        no_output: duration("--no-output-timeout", flags.no_output_timeout.as_ref())?,
        ..ExecOptions::default()
    };
    for entry in &flags.env {
        let (name, value) = entry.split_once('=').ok_or_else(|| anyhow::anyhow!("`-e {entry}` is not NAME=VALUE"))?;
        options.env.insert(name.to_owned(), value.to_owned());
    }
    let printer = session.printer;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !printer.is_json();
    options.input = if terminal { Input::Terminal } else { Input::Inherited };
    let json = printer.is_json();
    let mut sink = |stream: Stream, bytes: &[u8]| match (json, stream) {
        (true, _) => {}
        (false, Stream::Out) => printer.bytes(bytes),
        (false, Stream::Err) => printer.error_bytes(bytes),
    };
    // At a terminal Ctrl-C reaches the command itself, which decides what to do.
    let interrupted = || !terminal && session.reporter.interrupted();
    let output = context.execute(command, &options, &mut sink, &interrupted)?;
    if json {
        printer.json(&json!({
            "schema": 1,
            "id": context.id(),
            "exit_code": output.exit_code,
            "stdout": String::from_utf8_lossy(&output.stdout),
            "stderr": String::from_utf8_lossy(&output.stderr),
            "omitted_bytes": output.omitted,
            "seconds": output.elapsed.as_secs_f64(),
        }));
    }
    if let Some(hint) = &output.hint {
        printer.warning(&format!("the command failed with exit code {}", output.exit_code), Some(hint));
    }
    Ok(output.exit_code)
}
