//! Errors, events and values between the two languages.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use envharness_rig::{ErrorKind, Event, Reporter, RigError};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::CancelToken;

/// A failure on its way to Python: the rig's, or one that Python itself raised in a callback or a signal handler.
pub enum Failure {
    /// The rig's.
    Rig(RigError),
    /// Python's.
    Python(PyErr),
}

impl From<RigError> for Failure {
    fn from(error: RigError) -> Self {
        Self::Rig(error)
    }
}

impl From<envharness_store::StoreError> for Failure {
    fn from(error: envharness_store::StoreError) -> Self {
        Self::Rig(error.into())
    }
}

impl From<envharness_spec::SpecError> for Failure {
    fn from(error: envharness_spec::SpecError) -> Self {
        Self::Rig(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Rig(error) => Python::attach(|py| raise(py, &error).unwrap_or_else(|failed| failed)),
        }
    }
}

/// Builds the exception of the package for an error of the rig.
fn raise(py: Python<'_>, error: &RigError) -> PyResult<PyErr> {
    let kind = match (error.kind(), error) {
        (_, RigError::NoPython { .. } | RigError::BadPython { .. }) => "python",
        (ErrorKind::Spec, _) => "spec",
        (ErrorKind::Lock, _) => "lock",
        (ErrorKind::Outside, _) => "outside",
        (ErrorKind::Context, _) => "context",
        (ErrorKind::Transfer, _) => "transfer",
        (ErrorKind::Timeout, _) => "timeout",
        (ErrorKind::NotAvailable, _) => "not-available",
        (ErrorKind::Interrupted, _) => return Ok(PyKeyboardInterrupt::new_err(())),
    };
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    let output = if let RigError::Timeout { output, .. } = error { output.as_str() } else { "" };
    let function = py.import("envharness._errors")?.getattr("from_native")?;
    Ok(PyErr::from_value(function.call1((kind, text, error.details(), error.hint(), output))?))
}

/// Builds the exception of a kind.
pub fn raise_named(py: Python<'_>, kind: &str, text: &str, details: Vec<String>, hint: Option<String>) -> PyResult<PyErr> {
    let function = py.import("envharness._errors")?.getattr("from_native")?;
    Ok(PyErr::from_value(function.call1((kind, text, details, hint, ""))?))
}

/// Passes events to a Python callable and notices Ctrl-C and cancellation.
pub struct PyReporter {
    on_event: Option<Py<PyAny>>,
    cancel: Option<Arc<AtomicBool>>,
    raised: Mutex<Option<PyErr>>,
}

impl PyReporter {
    pub fn new(on_event: Option<Py<PyAny>>, cancel: Option<&Bound<'_, CancelToken>>) -> Self {
        Self { on_event, cancel: cancel.map(|token| Arc::clone(&token.get().flag)), raised: Mutex::new(None) }
    }

    /// Keeps an exception that must not be lost while Rust code is on the stack.
    pub fn keep(&self, error: PyErr) {
        if let Ok(mut raised) = self.raised.lock() {
            raised.get_or_insert(error);
        }
    }

    /// The result of a call, with what Python raised meanwhile in place of `Interrupted`.
    pub fn finish<T>(&self, result: Result<T, RigError>) -> Result<T, Failure> {
        let raised = self.raised.lock().ok().and_then(|mut raised| raised.take());
        match (result, raised) {
            (_, Some(error)) => Err(Failure::Python(error)),
            (Err(error), None) => Err(Failure::Rig(error)),
            (Ok(value), None) => Ok(value),
        }
    }

    fn has_raised(&self) -> bool {
        self.raised.lock().is_ok_and(|raised| raised.is_some())
    }
}

impl Reporter for PyReporter {
    fn event(&self, event: &Event) {
        let Some(callable) = &self.on_event else { return };
        Python::attach(|py| {
            let hint = if let Event::Warning { hint, .. } = event { hint.clone() } else { None };
            if let Err(error) = callable.call1(py, (event.name(), event.text(), hint)) {
                self.keep(error);
            }
        });
    }

    fn interrupted(&self) -> bool {
        if self.has_raised() || self.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return true;
        }
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                self.keep(error);
                true
            }
        })
    }
}

/// Seconds as a time; None for none.
pub fn seconds(value: Option<f64>) -> PyResult<Option<Duration>> {
    let convert = |seconds: f64| {
        Duration::try_from_secs_f64(seconds).map_err(|_| PyValueError::new_err(format!("{seconds} is not a number of seconds")))
    };
    value.map(convert).transpose()
}

/// A JSON document as Python objects.
pub fn json_to_python<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    let json = py.import("json")?;
    json.getattr("loads")?.call1((value.to_string(),))
}

/// A map of strings as a dict.
pub fn to_dict<'py>(py: Python<'py>, map: impl IntoIterator<Item = (String, String)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in map {
        dict.set_item(key, value)?;
    }
    Ok(dict)
}
