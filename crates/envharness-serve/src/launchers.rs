//! How workers start: in a rigged context, or in an interpreter of the machine.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use envharness_rig::{Context, ExecOptions, ExitPolicy, RigError, end_marked, launch};
use envharness_worker::{Launch, Launcher, Process};

/// Variables that no environment needs to know.
const SECRETS: [&str; 1] = ["ENVHARNESS_TOKEN"];

/// Starts workers in a context; the context goes with it.
#[derive(Debug)]
pub(crate) struct ContextLauncher {
    pub(crate) context: Context,
    pub(crate) guest: PathBuf,
    pub(crate) cwd: PathBuf,
}

impl Launcher for ContextLauncher {
    fn launch(&self, launch: Launch) -> io::Result<Process> {
        let mut argv = vec![self.context.python().display().to_string()];
        argv.extend(launch.arguments);
        let mut env: BTreeMap<String, String> = launch.env.into_iter().collect();
        env.extend(SECRETS.map(|name| (name.to_owned(), String::new())));
        let options = ExecOptions { cwd: Some(self.cwd.clone()), env, ..ExecOptions::default() };
        let started = self.context.launch(&argv, &options, launch.stdin, launch.output);
        started.map(|child| Process { child }).map_err(|error| match error {
            RigError::Start { source, .. } => source,
            other => io::Error::other(other.to_string()),
        })
    }

    fn guest(&self) -> &Path {
        &self.guest
    }

    fn end_marked(&self, marker: &str) {
        end_marked(marker);
    }

    fn describe(&self) -> String {
        format!("Python {} of {}", self.context.interpreter().version, self.context.id())
    }
}

impl Drop for ContextLauncher {
    fn drop(&mut self) {
        if let Err(error) = self.context.release(ExitPolicy::Destroy) {
            tracing::warn!("the context {} is left behind: {error}", self.context.id());
        }
    }
}

/// Starts workers in an interpreter that is there.
#[derive(Debug)]
pub(crate) struct InterpreterLauncher {
    pub(crate) python: PathBuf,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) guest: PathBuf,
    pub(crate) cwd: PathBuf,
}

impl Launcher for InterpreterLauncher {
    fn launch(&self, order: Launch) -> io::Result<Process> {
        let mut env = self.env.clone();
        env.extend(order.env);
        SECRETS.iter().for_each(|name| drop(env.remove(*name)));
        launch(&self.python, &order.arguments, &env, Some(&self.cwd), order.stdin, order.output).map(|child| Process { child })
    }

    fn guest(&self) -> &Path {
        &self.guest
    }

    fn end_marked(&self, marker: &str) {
        end_marked(marker);
    }

    fn describe(&self) -> String {
        self.python.display().to_string()
    }
}
