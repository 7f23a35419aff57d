//! The `envharness` command.

fn main() {
    std::process::exit(envharness_cli::run(std::env::args_os(), None));
}
