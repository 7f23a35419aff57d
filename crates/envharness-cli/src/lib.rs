//! The command line of envharness: arguments, settings, commands, printer. The only crate that prints.
//!
//! Arguments become settings in one place ([`args`]), a command is one short file, and what happens in the rig arrives as
//! events. `python -m envharness` runs [`run`] too, through the extension module.

mod args;
mod commands;
mod exit;
mod printer;
mod reporter;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser as _};

pub use commands::{progress_line, rigged_json};

/// Runs the command line and returns its exit code. `caller` is the Python that runs it, where one does.
pub fn run(arguments: impl IntoIterator<Item = OsString>, caller: Option<PathBuf>) -> i32 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    clap_complete::CompleteEnv::with_factory(args::Cli::command).complete();
    let cli = match args::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE } else { exit::OK };
        }
    };
    let _ = std::panic::take_hook();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| commands::dispatch(cli, caller)));
    result.unwrap_or(exit::BUG)
}

/// The command line's reference as text, for the documentation: the same in a terminal of any width.
pub fn reference() -> String {
    let mut out = String::new();
    let mut command = args::Cli::command();
    command.build();
    let mut stack = vec![(String::from("envharness"), command)];
    while let Some((name, mut command)) = stack.pop() {
        command = command.term_width(100);
        let help = command.render_long_help().to_string();
        out.push_str(&format!("## `{name}`\n\n```text\n{}\n```\n\n", help.trim_end()));
        let subcommands: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").cloned().collect();
        stack.extend(subcommands.into_iter().rev().map(|sub| (format!("{name} {}", sub.get_name()), sub)));
    }
    out
}
