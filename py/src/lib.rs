//! The extension module `envharness._native`: conversions between Python and the rig, and no policy.

mod client;
mod context;
mod convert;
mod local;
mod rig;
mod rigger;
mod serve;
mod spec;
mod vector;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

/// Stops the call it is given to, from any thread.
#[pyclass(module = "envharness._native", frozen)]
pub struct CancelToken {
    pub(crate) flag: Arc<AtomicBool>,
}

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self { flag: Arc::new(AtomicBool::new(false)) }
    }

    /// Asks the call to stop; it ends its processes first.
    fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Runs the command line; returns the exit code.
#[pyfunction]
fn cli_main(py: Python<'_>, arguments: Vec<OsString>, caller: Option<PathBuf>) -> i32 {
    py.detach(|| envharness_cli::run(arguments, caller))
}

/// Waits until no call of the store is under way, and keeps others out until the fork is done, of the clients' connections too.
#[pyfunction]
fn before_fork() {
    envharness_store::before_fork();
    envharness_client::before_fork();
}

/// Lets calls of the store go on.
#[pyfunction]
fn after_fork_in_parent() {
    envharness_client::after_fork();
    envharness_store::after_fork_in_parent();
}

/// Gives up the parent's locks and connections.
#[pyfunction]
fn after_fork_in_child() {
    envharness_client::after_fork();
    envharness_store::after_fork_in_child();
}

/// The extension module.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::client::{ClientSession, Endpoint, Port, close_connections, forget_connections};
    #[pymodule_export]
    use super::context::{Context, Process};
    #[pymodule_export]
    use super::local::NativeVector;
    #[pymodule_export]
    use super::rig::Rig;
    #[pymodule_export]
    use super::rigger::rig_task;
    #[pymodule_export]
    use super::serve::Server;
    #[pymodule_export]
    use super::spec::{Lock, Spec};
    #[pymodule_export]
    use super::vector::ClientVector;
    #[pymodule_export]
    use super::{CancelToken, after_fork_in_child, after_fork_in_parent, before_fork, cli_main};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("SPEC_SCHEMA", envharness_spec::SPEC_SCHEMA)
    }
}
