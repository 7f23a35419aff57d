//! The `envharness` command.
#![expect(clippy::exit, reason = "a command ends with an exit code")]

fn main() {
    std::process::exit(envharness_cli::run(std::env::args_os(), None));
}
