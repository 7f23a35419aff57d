//! Contexts and processes in them.

use std::collections::BTreeMap;
use std::os::fd::IntoRawFd as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use envharness_rig::{ExecOptions, ExitPolicy, Input, Reporter as _, Running, Stream};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::CancelToken;
use crate::convert::{Failure, PyReporter, seconds, to_dict};
use crate::spec::{Lock, Spec};

/// A context: a leased place made from a prefix.
#[pyclass(module = "envharness._native", frozen)]
pub struct Context {
    inner: envharness_rig::Context,
}

type Finished<'py> = (i32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize, f64, Option<String>);

impl Context {
    pub(crate) fn new(inner: envharness_rig::Context) -> Self {
        Self { inner }
    }
}

fn options<'a>(
    cwd: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    timeout: Option<f64>,
    no_output: Option<f64>,
) -> PyResult<ExecOptions<'a>> {
    Ok(ExecOptions { cwd, env: env.unwrap_or_default(), input: Input::Closed, timeout: seconds(timeout)?, no_output: seconds(no_output)? })
}

#[pymethods]
impl Context {
    /// The id.
    #[getter]
    fn id(&self) -> String {
        self.inner.id().to_owned()
    }

    /// The spec.
    #[getter]
    fn spec(&self) -> Spec {
        Spec { inner: self.inner.spec().clone() }
    }

    /// The lock it was made from; None for one that was attached to.
    #[getter]
    fn lock(&self) -> Option<Lock> {
        self.inner.lock().map(|lock| Lock { inner: lock.clone() })
    }

    /// Whether an idle context was taken.
    #[getter]
    fn reused(&self) -> bool {
        self.inner.reused()
    }

    /// The context's own folder for work.
    #[getter]
    fn workdir(&self) -> PathBuf {
        self.inner.workdir()
    }

    /// The prefix.
    #[getter]
    fn prefix(&self) -> PathBuf {
        self.inner.prefix()
    }

    /// The engine that its processes run in, `docker` or `podman`; None for processes of this machine.
    #[getter]
    fn engine(&self) -> Option<String> {
        self.inner.engine().map(str::to_owned)
    }

    /// What the container uses: bytes of memory, seconds of processor time, processes.
    fn usage(&self, py: Python<'_>) -> PyResult<Option<(u64, f64, u64)>> {
        Ok(py.detach(|| self.inner.usage()).map_err(Failure::from)?)
    }

    /// The interpreter to start.
    #[getter]
    fn python(&self) -> PathBuf {
        self.inner.python()
    }

    /// The interpreter's version.
    #[getter]
    fn python_version(&self) -> String {
        self.inner.interpreter().version.clone()
    }

    /// The tag of the interpreter's native modules.
    #[getter]
    fn soabi(&self) -> String {
        self.inner.interpreter().soabi.clone()
    }

    /// The prefix's site-packages.
    #[getter]
    fn site_packages(&self) -> PathBuf {
        self.inner.site_packages()
    }

    /// The guest's folder.
    #[getter]
    fn guest(&self) -> PathBuf {
        self.inner.guest().to_owned()
    }

    /// The log file.
    #[getter]
    fn log_path(&self) -> PathBuf {
        self.inner.log_path()
    }

    /// The limits: name, value, who enforces it.
    #[getter]
    fn limits(&self) -> Vec<(String, String, String)> {
        let limits = self.inner.limits();
        limits.into_iter().map(|l| (l.name.to_owned(), l.value, l.enforcer.as_str().to_owned())).collect()
    }

    /// The variables of its processes, secrets apart.
    fn variables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        to_dict(py, self.inner.variables())
    }

    /// Runs a command to its end. Returns exit code, stdout, stderr, both, bytes left out, seconds, hint.
    #[pyo3(signature = (argv, *, cwd=None, env=None, input=None, terminal=false, timeout=None, no_output=None, sink=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "a call from Python has its options as keywords")]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        argv: Vec<String>,
        cwd: Option<PathBuf>,
        env: Option<BTreeMap<String, String>>,
        input: Option<Vec<u8>>,
        terminal: bool,
        timeout: Option<f64>,
        no_output: Option<f64>,
        sink: Option<Py<PyAny>>,
        cancel: Option<&Bound<'py, CancelToken>>,
    ) -> PyResult<Finished<'py>> {
        let mut options = options(cwd, env, timeout, no_output)?;
        options.input = match &input {
            _ if terminal => Input::Terminal,
            Some(bytes) => Input::Bytes(bytes),
            None => Input::Closed,
        };
        let reporter = PyReporter::new(None, cancel);
        let result = py.detach(|| {
            let mut pass = |stream: Stream, bytes: &[u8]| {
                let Some(callable) = &sink else { return };
                Python::attach(|py| {
                    let arguments = (stream == Stream::Err, PyBytes::new(py, bytes));
                    if let Err(error) = callable.call1(py, arguments) {
                        reporter.keep(error);
                    }
                });
            };
            self.inner.execute(&argv, &options, &mut pass, &|| reporter.interrupted())
        });
        let output = reporter.finish(result)?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok((
            output.exit_code,
            bytes(&output.stdout),
            bytes(&output.stderr),
            bytes(&output.logs),
            output.omitted,
            output.elapsed.as_secs_f64(),
            output.hint.clone(),
        ))
    }

    /// Starts a command with piped streams.
    #[pyo3(signature = (argv, *, cwd=None, env=None))]
    fn spawn(&self, py: Python<'_>, argv: Vec<String>, cwd: Option<PathBuf>, env: Option<BTreeMap<String, String>>) -> PyResult<Process> {
        let options = options(cwd, env, None, None)?;
        let running = py.detach(|| self.inner.spawn(&argv, &options)).map_err(Failure::from)?;
        Ok(Process::new(running))
    }

    /// Copies a file or tree in; returns files and bytes.
    #[pyo3(signature = (source, target, *, progress=None))]
    fn upload(&self, py: Python<'_>, source: PathBuf, target: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<(u64, u64)> {
        let reporter = PyReporter::new(None, None);
        let result = py.detach(|| self.inner.upload(&source, &target, &mut |bytes| tell(progress.as_ref(), bytes, &reporter)));
        let moved = reporter.finish(result)?;
        Ok((moved.files, moved.bytes))
    }

    /// Copies a file or tree out; returns files and bytes.
    #[pyo3(signature = (source, target, *, progress=None))]
    fn download(&self, py: Python<'_>, source: PathBuf, target: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<(u64, u64)> {
        let reporter = PyReporter::new(None, None);
        let result = py.detach(|| self.inner.download(&source, &target, &mut |bytes| tell(progress.as_ref(), bytes, &reporter)));
        let moved = reporter.finish(result)?;
        Ok((moved.files, moved.bytes))
    }

    /// Lets go: `release`, `keep`, `suspend` or `destroy`.
    fn release(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        let policy = ExitPolicy::parse(policy)
            .ok_or_else(|| PyValueError::new_err(format!("`{policy}` is not one of release, keep, suspend, destroy")))?;
        py.detach(|| self.inner.release(policy)).map_err(Failure::from)?;
        Ok(())
    }

    /// Ends every process of the context; returns who is left.
    fn kill_processes(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.inner.kill_processes())
    }
}

fn tell(progress: Option<&Py<PyAny>>, bytes: u64, reporter: &PyReporter) {
    let Some(callable) = progress else { return };
    Python::attach(|py| {
        if let Err(error) = callable.call1(py, (bytes,)) {
            reporter.keep(error);
        }
    });
}

/// A process in a context. Its streams are file descriptors that the caller owns.
#[pyclass(module = "envharness._native", frozen)]
pub struct Process {
    running: Mutex<Running>,
    pid: u32,
    streams: Mutex<Option<(i32, i32, i32)>>,
}

impl Process {
    fn new(mut running: Running) -> Self {
        let streams =
            running.take_streams().map(|(stdin, stdout, stderr)| (stdin.into_raw_fd(), stdout.into_raw_fd(), stderr.into_raw_fd()));
        Self { pid: running.id(), running: Mutex::new(running), streams: Mutex::new(streams) }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Process {
    /// The process id.
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    /// Descriptors of standard input, output and error; given once.
    fn take_streams(&self) -> PyResult<(i32, i32, i32)> {
        let taken = self.streams.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| PyRuntimeError::new_err("the streams were taken before"))
    }

    /// The exit code, or None while it runs.
    fn poll(&self) -> PyResult<Option<i32>> {
        Ok(self.running().poll().map_err(Failure::from)?)
    }

    /// Ends the whole tree at once; returns who is left.
    fn kill(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.running().kill())
    }

    /// Asks the whole tree to end.
    fn terminate(&self, py: Python<'_>) {
        py.detach(|| self.running().terminate());
    }
}
