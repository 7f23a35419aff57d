//! One file a command, and the way to it.

mod check;
mod config;
mod contexts;
mod copy;
mod doctor;
mod exec;
mod export;
mod gc;
mod image;
mod init;
mod lock;
mod rig;
mod serve;
mod store;
mod trace;

use std::path::{Path, PathBuf};

use envharness_image::ImageError;
use envharness_rig::{ErrorKind, LockMode, LockRequest, Rig, RigError, Settings, find_project_spec, load_spec};
use envharness_rigger::RiggerError;
use envharness_spec::{Platform, Spec};
use tracing_subscriber::filter::LevelFilter;

pub use rig::{json_of as rigged_json, progress_line};

use crate::args::{Cli, Command, ConfigCommand, Global, LockFlags, LogFormat, LogLevel};
use crate::exit;
use crate::printer::Printer;
use crate::reporter::TerminalReporter;

/// What every command works with.
pub struct Session {
    /// The rig.
    pub rig: Rig,
    /// The printer.
    pub printer: Printer,
    /// The reporter.
    pub reporter: TerminalReporter,
}

/// A command's end: an exit code, or an error that is printed.
pub type Ended = anyhow::Result<i32>;

impl Session {
    /// The spec that was named, or the folder's own.
    pub fn spec(&self, path: Option<&Path>) -> Result<Spec, RigError> {
        let path = path.map_or_else(|| find_project_spec(&self.rig.settings), |path| Ok(path.to_owned()))?;
        load_spec(&path, &self.rig.settings)
    }
}

/// What the flags of a lock ask for.
pub fn lock_request(flags: &LockFlags) -> LockRequest {
    let mode = match (flags.locked, flags.frozen) {
        (true, _) => LockMode::Locked,
        (_, true) => LockMode::Frozen,
        _ => LockMode::Auto,
    };
    LockRequest { mode, ..LockRequest::default() }
}

/// Reads the names of platforms.
pub fn platforms(names: &[String]) -> anyhow::Result<Vec<Platform>> {
    let parse = |name: &String| {
        Platform::parse(name).ok_or_else(|| anyhow::anyhow!("unknown platform `{name}`; known: {}", Platform::names().join(", ")))
    };
    names.iter().map(parse).collect()
}

/// Reads a time of a flag.
pub fn duration(flag: &str, value: Option<&String>) -> anyhow::Result<Option<std::time::Duration>> {
    let parse = |text: &String| {
        envharness_spec::parse_duration(text).ok_or_else(|| anyhow::anyhow!("`{flag} {text}` is not a time such as 30s or 2h"))
    };
    value.map(parse).transpose()
}

/// Runs a command and prints its error.
pub fn dispatch(cli: Cli, caller: Option<PathBuf>) -> i32 {
    let printer = Printer::new(&cli.global);
    start_log(&cli);
    let started_command = matches!(cli.command, Command::Run(_) | Command::Exec(_) | Command::Shell(_));
    match act(cli, printer, caller) {
        Ok(code) => match Printer::write_failure() {
            Some(error) => {
                printer.error(&error, &["the result could not be written".to_owned()], None);
                exit::OUTSIDE
            }
            None => code,
        },
        Err(error) => match error.downcast_ref::<RigError>() {
            Some(rig) => {
                printer.rig_error(rig);
                // `run` and `exec` pass the command's own codes on, so their own failures must not look like one.
                match rig.kind() {
                    ErrorKind::Timeout if started_command => exit::TIMED_OUT,
                    ErrorKind::Interrupted => exit::INTERRUPTED,
                    _ if started_command => exit::NOT_STARTED,
                    _ => exit::code_of(rig),
                }
            }
            None => {
                if let Some(error) = error.downcast_ref::<ImageError>() {
                    return image::failed(printer, error);
                }
                if let Some(error) = error.downcast_ref::<RiggerError>() {
                    return rig::failed(printer, error);
                }
                printer.error(error.as_ref(), &[], None);
                if started_command { exit::NOT_STARTED } else { exit::FAILED }
            }
        },
    }
}

fn start_log(cli: &Cli) {
    let global: &Global = &cli.global;
    // A server that says nothing of its sessions is no use to an operator.
    let (quietest, format) = match &cli.command {
        Command::Serve(args) if !global.quiet => (LevelFilter::INFO, args.log_format),
        Command::Serve(args) => (LevelFilter::ERROR, args.log_format),
        _ => (LevelFilter::ERROR, LogFormat::Text),
    };
    let level = match (global.log_level, global.verbose) {
        (Some(LogLevel::Error), _) => LevelFilter::ERROR,
        (Some(LogLevel::Warn), _) => LevelFilter::WARN,
        (Some(LogLevel::Info), _) => LevelFilter::INFO,
        (Some(LogLevel::Debug), _) => LevelFilter::DEBUG,
        (Some(LogLevel::Trace), _) => LevelFilter::TRACE,
        (None, 0) => quietest,
        (None, 1) if quietest < LevelFilter::INFO => LevelFilter::INFO,
        (None, _) => LevelFilter::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false);
    let _ = if format == LogFormat::Json { log.json().flatten_event(true).try_init() } else { log.try_init() };
}

fn act(cli: Cli, printer: Printer, caller: Option<PathBuf>) -> Ended {
    let Cli { global, command } = cli;
    // These need no store.
    match command {
        Command::Init(args) => return init::run(&args, printer),
        Command::Completions { shell } => return Ok(config::completions(shell, printer)),
        Command::Reference => {
            printer.data(crate::reference().trim_end());
            return Ok(exit::OK);
        }
        Command::Trace(command) => return trace::run(printer, &command),
        _ => {}
    }
    let mut settings = Settings::load(global.inputs()?)?;
    settings.caller_python = caller;
    if let Command::Config(ConfigCommand::Show) = command {
        return Ok(config::show(&settings, printer));
    }
    let rig = Rig::new(settings)?;
    let session = Session { rig, printer, reporter: TerminalReporter::new(printer, global.verbose > 0) };
    let result = match command {
        Command::Rig(args) => rig::run(&session, &args),
        Command::Check(args) => check::run(&session, &args),
        Command::Lock(args) => lock::lock(&session, &args),
        Command::Sync(args) => lock::sync(&session, &args),
        Command::Warm(args) => lock::warm(&session, &args),
        Command::Compile(args) => lock::compile(&session, &args),
        Command::Create(args) => exec::create(&session, &args),
        Command::Run(args) => exec::run(&session, &args),
        Command::Exec(args) => exec::exec(&session, &args),
        Command::Shell(args) => exec::shell(&session, &args),
        Command::Serve(args) => serve::run(&session, &args),
        Command::Contract(command) => serve::contract(&session, &command),
        Command::List => contexts::list(&session),
        Command::Inspect(args) => contexts::inspect(&session, &args.id),
        Command::Logs(args) => contexts::logs(&session, &args),
        Command::Rm(args) => contexts::rm(&session, &args),
        Command::Cp(args) => copy::run(&session, &args),
        Command::Gc(args) => gc::run(&session, &args),
        Command::Export(args) => export::run(&session, &args),
        Command::Image(command) => image::run(&session, &command),
        Command::Store(command) => store::run(&session, &command),
        Command::Doctor => doctor::run(&session),
        Command::Init(_) | Command::Config(_) | Command::Completions { .. } | Command::Reference | Command::Trace(_) => Ok(exit::OK),
    };
    session.reporter.finish();
    result
}
