//! Processes that a caller speaks to over their standard input: started, not waited for.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};

use envharness_sandbox::{ChildOptions, Tree, configure};

/// Starts a program outside any context. It leads a session of its own, has no descriptors but its three streams, and ends
/// when the calling thread does.
///
/// # Errors
/// What the system says.
pub fn launch(
    program: &Path,
    arguments: &[String],
    env: &BTreeMap<String, String>,
    cwd: Option<&Path>,
    stdin: OwnedFd,
    output: OwnedFd,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(env).stdin(stdin).stdout(output.try_clone()?).stderr(output);
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    configure(&mut command, &ChildOptions { new_session: true, die_with_parent: true, ..ChildOptions::default() });
    command.spawn()
}

/// Ends every process that started with `NAME=VALUE` among its variables.
pub fn end_marked(marker: &str) {
    Tree { marker: marker.to_owned(), namespace: None }.kill();
}
