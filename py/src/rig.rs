//! The door to the rig.

use std::path::PathBuf;

use envharness_rig::{CreateRequest, Inputs, LockMode, LockRequest, Settings, Upgrade};
use envharness_spec::Platform;
use envharness_store::Origin;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::CancelToken;
use crate::context::Context;
use crate::convert::{Failure, PyReporter, json_to_python, seconds};
use crate::spec::{Lock, Spec};

/// The settings of this moment and the store they name.
#[pyclass(module = "envharness._native", frozen)]
pub struct Rig {
    inner: envharness_rig::Rig,
}

impl Rig {
    /// The rig itself.
    pub(crate) fn inner(&self) -> &envharness_rig::Rig {
        &self.inner
    }
}

fn lock_request(mode: &str) -> PyResult<LockRequest> {
    let mode = match mode {
        "auto" => LockMode::Auto,
        "locked" => LockMode::Locked,
        "frozen" => LockMode::Frozen,
        other => return Err(PyValueError::new_err(format!("`{other}` is not one of auto, locked, frozen"))),
    };
    Ok(LockRequest { mode, ..LockRequest::default() })
}

#[pymethods]
impl Rig {
    /// The guest's folder.
    #[getter]
    fn guest(&self) -> PyResult<PathBuf> {
        self.inner().guest().map_err(|error| Failure::Rig(error).into())
    }

    /// Reads the settings; `caller` is the interpreter to prefer.
    #[new]
    fn new(py: Python<'_>, caller: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            let mut settings = Settings::load(Inputs::of_process()?)?;
            settings.caller_python = Some(caller);
            Ok::<_, Failure>(Self { inner: envharness_rig::Rig::new(settings)? })
        })
        .map_err(PyErr::from)
    }

    /// Makes idle contexts until `count` wait; returns how many were made.
    #[pyo3(signature = (spec, count, *, lock, on_event=None, cancel=None))]
    fn warm(
        &self,
        py: Python<'_>,
        spec: &Spec,
        count: usize,
        lock: &str,
        on_event: Option<Py<PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<usize> {
        let request = lock_request(lock)?;
        let reporter = PyReporter::new(on_event, cancel);
        let result = py.detach(|| self.inner.warm(&spec.inner, count, &request, &reporter));
        Ok(reporter.finish(result)?)
    }

    /// Makes a context or takes an idle one.
    #[pyo3(signature = (spec, *, origin, find_idle, fresh, lock, timeout=None, on_event=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "a call from Python has its options as keywords")]
    fn create(
        &self,
        py: Python<'_>,
        spec: &Spec,
        origin: &str,
        find_idle: bool,
        fresh: bool,
        lock: &str,
        timeout: Option<f64>,
        on_event: Option<Py<PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Context> {
        let origin = match origin {
            "get" => Origin::Get,
            "kept" => Origin::Kept,
            _ => Origin::Create,
        };
        let request = CreateRequest { origin, find_idle, fresh, lock: lock_request(lock)?, timeout: seconds(timeout)? };
        let reporter = PyReporter::new(on_event, cancel);
        let result = py.detach(|| self.inner.create(&spec.inner, &request, &reporter));
        Ok(Context::new(reporter.finish(result)?))
    }

    /// Works with a context that is there.
    fn attach(&self, py: Python<'_>, id: &str) -> PyResult<Context> {
        let context = py.detach(|| self.inner.attach(id)).map_err(Failure::from)?;
        Ok(Context::new(context))
    }

    /// Ends a context; returns its whole id.
    #[pyo3(signature = (id, *, force=false))]
    fn destroy(&self, py: Python<'_>, id: &str, force: bool) -> PyResult<String> {
        Ok(py.detach(|| self.inner.destroy(id, force)).map_err(Failure::from)?)
    }

    /// Resolves a spec.
    #[pyo3(signature = (spec, *, mode="auto", upgrade=false, upgrade_packages=Vec::new(), platforms=Vec::new(), on_event=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "a call from Python has its options as keywords")]
    fn lock(
        &self,
        py: Python<'_>,
        spec: &Spec,
        mode: &str,
        upgrade: bool,
        upgrade_packages: Vec<String>,
        platforms: Vec<String>,
        on_event: Option<Py<PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Lock> {
        let mut request = lock_request(mode)?;
        request.upgrade = Upgrade { all: upgrade, packages: upgrade_packages };
        let parse = |name: &String| Platform::parse(name).ok_or_else(|| PyValueError::new_err(format!("unknown platform `{name}`")));
        request.platforms = platforms.iter().map(parse).collect::<PyResult<_>>()?;
        let reporter = PyReporter::new(on_event, cancel);
        let result = py.detach(|| self.inner.lock(&spec.inner, &request, &reporter));
        Ok(Lock { inner: reporter.finish(result)? })
    }

    /// Compiles the byte-code of a spec's prefix; returns how many files were added.
    fn compile(&self, py: Python<'_>, spec: &Spec) -> PyResult<usize> {
        let reporter = PyReporter::new(None, None);
        let result = py.detach(|| self.inner.compile(&spec.inner, &LockRequest::default(), &reporter));
        Ok(reporter.finish(result)?)
    }

    /// Every context, as plain objects.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let contexts = py.detach(|| self.inner.list()).map_err(Failure::from)?;
        let list: Vec<serde_json::Value> = contexts
            .iter()
            .map(|c| {
                serde_json::json!({
                    "id": c.row.id, "name": c.row.name, "backend": c.row.backend, "state": c.state.as_str(),
                    "created": c.row.created, "used": c.row.used, "processes": c.processes,
                })
            })
            .collect();
        json_to_python(py, &serde_json::Value::Array(list))
    }

    /// All that is known of one context, as plain objects.
    fn inspect<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyAny>> {
        let document = py.detach(|| self.inner.inspect(id)).map_err(Failure::from)?;
        json_to_python(py, &document)
    }

    /// Removes what nobody uses; times in seconds, sizes in bytes; the settings' own limits where None.
    #[pyo3(signature = (*, max_age=None, max_size=None, dry_run=false))]
    fn gc<'py>(&self, py: Python<'py>, max_age: Option<f64>, max_size: Option<u64>, dry_run: bool) -> PyResult<Bound<'py, PyAny>> {
        let mut options = self.inner.gc_options();
        options.max_age = seconds(max_age)?.or(options.max_age);
        options.max_size = max_size.or(options.max_size);
        options.dry_run = dry_run;
        let report = py.detach(|| self.inner.gc(options)).map_err(Failure::from)?;
        json_to_python(
            py,
            &serde_json::json!({
                "contexts": report.contexts, "containers": report.containers, "prefixes": report.prefixes, "bytes": report.bytes,
                "leftovers": report.leftovers, "in_use": report.in_use,
            }),
        )
    }

    /// Where the lock of a spec lies.
    fn lock_path(&self, spec: &Spec) -> PathBuf {
        self.inner.lock_path(&spec.inner)
    }
}
