//! From a task to an environment that runs.

use std::path::PathBuf;
use std::time::Duration;

use envharness_rigger::{Check, Options, Progress, Rigger, RiggerError, Target, Wishes};
use pyo3::prelude::*;

use crate::CancelToken;
use crate::convert::{Failure, PyReporter, json_to_python, raise_named};
use crate::rig::Rig;

/// Rigs a target; the answer is the document that the command prints as JSON.
#[pyfunction]
#[pyo3(signature = (
    rig, target, *, traceback=false, check=None, python=None, date=None, packages=Vec::new(), attempts=8, budget=1800.0, timeout=600.0,
    advisor=None, trust=false, output=None, force=false, on_event=None, cancel=None
))]
#[expect(clippy::too_many_arguments, reason = "a call from Python has its options as keywords")]
pub fn rig_task<'py>(
    py: Python<'py>,
    rig: &Bound<'py, Rig>,
    target: String,
    traceback: bool,
    check: Option<Vec<String>>,
    python: Option<String>,
    date: Option<String>,
    packages: Vec<String>,
    attempts: usize,
    budget: f64,
    timeout: f64,
    advisor: Option<String>,
    trust: bool,
    output: Option<PathBuf>,
    force: bool,
    on_event: Option<Py<PyAny>>,
    cancel: Option<&Bound<'py, CancelToken>>,
) -> PyResult<Bound<'py, PyAny>> {
    let time = |seconds: f64| crate::convert::seconds(Some(seconds)).map(|time| time.unwrap_or(Duration::MAX));
    let options = Options {
        wishes: Wishes { python, date, with: packages },
        check: check.map_or(Check::Imports, Check::Command),
        attempts: attempts.max(1),
        budget: time(budget)?,
        timeout: time(timeout)?,
        advisor,
        trust,
        output,
        force,
    };
    let target = if traceback { Target::Traceback(target) } else { Target::parse(&target) };
    let told = on_event.as_ref().map(|callable| callable.clone_ref(py));
    let reporter = PyReporter::new(on_event, cancel);
    let rig = rig.get().inner().clone();
    let result = py.detach(|| {
        let rigger = Rigger { rig: &rig, options };
        rigger.rig(&target, &reporter, &mut |progress| tell(told.as_ref(), &reporter, progress))
    });
    match result {
        Ok(rigged) => {
            reporter.finish(Ok(()))?;
            json_to_python(py, &envharness_cli::rigged_json(&rigged))
        }
        Err(RiggerError::Rig(error)) => Err(reporter.finish::<()>(Err(error)).err().unwrap_or_else(|| Failure::Python(stopped())).into()),
        Err(error) => Err(raise_named(py, "spec", &error.to_string(), Vec::new(), error.hint())?),
    }
}

fn stopped() -> PyErr {
    pyo3::exceptions::PyKeyboardInterrupt::new_err(())
}

fn tell(callable: Option<&Py<PyAny>>, reporter: &PyReporter, progress: &Progress<'_>) {
    let (Some(callable), Some(text)) = (callable, envharness_cli::progress_line(progress)) else { return };
    let name = if matches!(progress, Progress::Remark(_)) { "warning" } else { "attempt" };
    Python::attach(|py| {
        if let Err(error) = callable.call1(py, (name, text, None::<String>)) {
            reporter.keep(error);
        }
    });
}
