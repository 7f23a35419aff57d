//! A server in this process.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use envharness_serve::{ServeError, ServeOptions, Service};
use envharness_server::{RunMode, Token};
use envharness_worker::Mode;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::CancelToken;
use crate::convert::{Failure, PyReporter, raise_named, seconds};
use crate::rig::Rig;

/// A running server.
#[pyclass(module = "envharness._native", frozen)]
pub struct Server {
    service: Arc<Service>,
    /// By which clients of this process reach it, where nothing else does.
    dialer: Option<u64>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.dialer.into_iter().for_each(envharness_client::remove_dialer);
    }
}

/// The options that Python gives by name.
fn options(target: &str, given: &Bound<'_, PyDict>) -> PyResult<ServeOptions> {
    let mut options = ServeOptions { target: target.to_owned(), ..ServeOptions::default() };
    let bad = |name: &str, value: &str| PyValueError::new_err(format!("{name}={value:?} is not known"));
    for (key, value) in given {
        let key: String = key.extract()?;
        if value.is_none() {
            continue;
        }
        match key.as_str() {
            "base" => options.base = Some(value.extract()?),
            "host" => options.host = Some(value.extract()?),
            "port" => options.port = Some(value.extract()?),
            "workers" => options.workers = Some(value.extract()?),
            "max_sessions" => options.max_sessions = Some(value.extract()?),
            "max_sessions_per_client" => options.sessions_per_client = Some(value.extract()?),
            "session_timeout" => options.session_timeout = seconds(value.extract()?)?,
            "resume_timeout" => options.resume_timeout = seconds(value.extract()?)?,
            "idle_timeout" => options.idle_timeout = seconds(value.extract()?)?,
            "step_timeout" => options.step_timeout = seconds(value.extract()?)?,
            "start_timeout" => options.start_timeout = seconds(value.extract()?)?,
            "drain_timeout" => options.drain_timeout = seconds(value.extract()?)?,
            "max_message_size" => options.max_message = Some(value.extract()?),
            "token" => options.token = Some(Token::new(&value.extract::<String>()?).map_err(PyValueError::new_err)?),
            "insecure" => options.insecure = value.extract()?,
            "allowed_hosts" => options.allowed_hosts = value.extract()?,
            "allowed_origins" => options.allowed_origins = value.extract()?,
            "trusted_proxies" => options.trusted_proxies = value.extract::<Vec<IpAddr>>()?,
            "strict" => options.strict = value.extract()?,
            "reference" => options.reference = value.extract()?,
            "reload" => options.reload = value.extract()?,
            "packages" => options.with = value.extract()?,
            "spec" => options.spec = Some(value.extract::<PathBuf>()?),
            "trace" => options.trace = Some(value.extract::<PathBuf>()?),
            "concurrency" => {
                let name: String = value.extract()?;
                options.concurrency = match name.as_str() {
                    "auto" => None,
                    other => Some(Mode::parse(other).ok_or_else(|| bad("concurrency", other))?),
                };
            }
            "mode" => {
                options.mode = Some(match value.extract::<String>()?.as_str() {
                    "simulation" => RunMode::Simulation,
                    "production" => RunMode::Production,
                    other => return Err(bad("mode", other)),
                });
            }
            other => return Err(PyValueError::new_err(format!("there is no option {other:?}"))),
        }
    }
    Ok(options)
}

#[pymethods]
impl Server {
    /// Makes the target ready and serves it.
    #[staticmethod]
    #[pyo3(signature = (rig, target, given, *, on_event=None, cancel=None))]
    fn start(
        py: Python<'_>,
        rig: &Rig,
        target: &str,
        given: &Bound<'_, PyDict>,
        on_event: Option<Py<PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Self> {
        let mut options = options(target, given)?;
        let in_memory = options.host.as_deref() == Some("memory:");
        options.runtime = in_memory.then(envharness_client::threads).transpose()?;
        let reporter = PyReporter::new(on_event, cancel);
        let rig = Arc::new(rig.inner().clone());
        let result = py.detach(|| Service::start(&options, &rig, &reporter));
        match result {
            Ok(service) => {
                reporter.finish(Ok(()))?;
                let service = Arc::new(service);
                let weak = Arc::downgrade(&service);
                let dialer = in_memory.then(|| envharness_client::add_dialer(Arc::new(move || weak.upgrade()?.connect())));
                Ok(Self { service, dialer })
            }
            Err(ServeError::Rig(error)) => {
                Err(reporter.finish::<Self>(Err(error)).err().map_or_else(|| PyValueError::new_err("interrupted"), Failure::into))
            }
            Err(error) => Err(raise_named(py, "serve", &error.to_string(), error.details(), error.hint())?),
        }
    }

    /// Where it listens.
    #[getter]
    fn url(&self) -> String {
        self.dialer.map_or_else(|| self.service.url(), |number| format!("memory:{number}"))
    }

    /// What was decided on the way, and why.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.service.notes().to_vec()
    }

    /// Sessions in use, and how many there may be.
    #[getter]
    fn capacity(&self) -> (usize, usize) {
        self.service.capacity()
    }

    /// Whether it cannot go on by itself.
    #[getter]
    fn has_failed(&self) -> bool {
        self.service.has_failed()
    }

    /// Drains and ends it; `hurry` ends episodes at once.
    fn stop(&self, py: Python<'_>, hurry: bool) {
        py.detach(|| {
            if hurry {
                self.service.hurry();
            }
            self.service.stop();
        });
    }
}
