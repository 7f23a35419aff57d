//! Clients: sessions for blocking callers and for event loops.

use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_client::{Address, Answer, Ask, ClientError, Opening, Outcome, Proxy, Session, Settings, Sink, Speech};
use envharness_wire::v1::{Encoding, Op};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rustix::event::{EventfdFlags, eventfd};

/// How long a blocking call goes without looking for Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call gives.
enum Value {
    Answer(Answer),
    Session(Arc<Session>),
    Body(u16, Bytes),
    Nothing,
}

impl Value {
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Answer(answer) => answer_to_python(py, &answer),
            Self::Session(session) => Ok(Bound::new(py, ClientSession { session: Own::new(session) })?.into_any()),
            Self::Body(status, body) => Ok((status, PyBytes::new(py, &body)).into_pyobject(py)?.into_any()),
            Self::Nothing => Ok(py.None().into_bound(py)),
        }
    }
}

fn answer_to_python<'py>(py: Python<'py>, answer: &Answer) -> PyResult<Bound<'py, PyAny>> {
    let payload = PyBytes::new(py, &answer.payload);
    Ok((answer.flags, payload).into_pyobject(py)?.into_any())
}

/// The parts of an error, for `envharness._errors.from_client`.
pub(crate) fn error_parts<'py>(py: Python<'py>, error: &ClientError) -> PyResult<Bound<'py, PyTuple>> {
    let (code, data) = match error {
        ClientError::Server { code, data, .. } => (Some(code.as_str()), Some(data.as_str())),
        _ => (None, None),
    };
    (error.kind(), error.to_string(), error.hint(), code, data).into_pyobject(py)
}

/// The exception of the package.
pub(crate) fn raise(py: Python<'_>, error: &ClientError) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let function = py.import("envharness._errors")?.getattr("from_client")?;
        Ok(PyErr::from_value(function.call1(error_parts(py, error)?)?))
    };
    made().unwrap_or_else(|failed| failed)
}

type Ready = Result<Value, ClientError>;

/// Where outcomes wait for an event loop, which watches the descriptor.
#[pyclass(module = "envharness._native", frozen)]
pub struct Port {
    inner: Arc<PortInner>,
}

pub(crate) struct PortInner {
    ready: Mutex<Vec<(u64, Ready)>>,
    event: rustix::fd::OwnedFd,
}

impl PortInner {
    fn put(&self, token: u64, ready: Ready) {
        let first = {
            let mut held = locked(&self.ready);
            held.push((token, ready));
            held.len() == 1
        };
        if first {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Something of a vector is ready; the token says whose.
    pub(crate) fn ring(&self, token: u64) {
        self.put(token, Ok(Value::Nothing));
    }

    fn sink(self: &Arc<Self>, token: u64) -> Sink {
        let port = self.clone();
        Sink::Caller(Box::new(move |outcome: Outcome| port.put(token, outcome.map(Value::Answer))))
    }
}

impl Port {
    pub(crate) fn inner(&self) -> Arc<PortInner> {
        self.inner.clone()
    }
}

#[pymethods]
impl Port {
    #[new]
    fn new() -> PyResult<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        Ok(Self { inner: Arc::new(PortInner { ready: Mutex::default(), event }) })
    }

    /// The descriptor that is readable when something is ready.
    fn fileno(&self) -> i32 {
        self.inner.event.as_raw_fd()
    }

    /// What is ready: `(token, error, value)`, of which one is None.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // Under the lock of the queue, so that what comes after is told anew.
        let ready = {
            let mut held = locked(&self.inner.ready);
            let _ = rustix::io::read(&self.inner.event, &mut [0_u8; 8]);
            std::mem::take(&mut *held)
        };
        let list = PyList::empty(py);
        for (token, outcome) in ready {
            let (error, value) = match outcome {
                Ok(value) => (py.None().into_bound(py), value.into_python(py)?),
                Err(error) => (error_parts(py, &error)?.into_any(), py.None().into_bound(py)),
            };
            list.append((token, error, value))?;
        }
        Ok(list)
    }
}

/// Waits for one outcome on the caller's thread.
struct Waiter {
    ready: Mutex<Option<Ready>>,
    changed: Condvar,
}

impl Waiter {
    fn new() -> Arc<Self> {
        Arc::new(Self { ready: Mutex::new(None), changed: Condvar::new() })
    }

    fn put(&self, ready: Ready) {
        *locked(&self.ready) = Some(ready);
        self.changed.notify_one();
    }

    fn sink(self: &Arc<Self>) -> Sink {
        let waiter = self.clone();
        Sink::Caller(Box::new(move |outcome: Outcome| waiter.put(outcome.map(Value::Answer))))
    }

    /// None: a slice of time has passed.
    fn slice(&self) -> Option<Ready> {
        let until = Instant::now() + SLICE;
        let mut held = locked(&self.ready);
        loop {
            if let Some(ready) = held.take() {
                return Some(ready);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            held = self.changed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The outcome; Ctrl-C calls `give_up` and raises.
    fn wait(&self, py: Python<'_>, give_up: impl Fn()) -> PyResult<Value> {
        loop {
            match py.detach(|| self.slice()) {
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) => return Err(raise(py, &error)),
                None => py.check_signals().inspect_err(|_| give_up())?,
            }
        }
    }
}

pub(crate) fn seconds(value: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    let bad = || PyValueError::new_err(format!("{value} is no number of seconds"));
    Duration::try_from_secs_f64(value).map(Some).map_err(|_| bad())
}

pub(crate) fn operation(name: &str) -> PyResult<Op> {
    Ok(match name {
        "reset" => Op::Reset,
        "step" => Op::Step,
        "state" => Op::State,
        "mcp" => Op::Mcp,
        "render" => Op::Render,
        other => return Err(PyValueError::new_err(format!("there is no operation {other:?}"))),
    })
}

pub(crate) fn encoding(name: &str) -> PyResult<Encoding> {
    Ok(match name {
        "json" => Encoding::Json,
        "msgpack" => Encoding::Msgpack,
        "tensor" => Encoding::Tensor,
        other => return Err(PyValueError::new_err(format!("there is no encoding {other:?}"))),
    })
}

/// A server, and how it is spoken to.
#[pyclass(module = "envharness._native", frozen)]
pub struct Endpoint {
    address: Address,
    settings: Settings,
}

#[pymethods]
impl Endpoint {
    /// From an address and settings by name.
    #[new]
    fn new(py: Python<'_>, address: &str, given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let address = match address.strip_prefix("memory:").and_then(|number| number.parse().ok()) {
            Some(number) => Address::memory(number),
            None => Address::parse(address).map_err(|error| raise(py, &error))?,
        };
        let mut settings = Settings::default();
        for (key, value) in given {
            let key: String = key.extract()?;
            if value.is_none() {
                continue;
            }
            let time = || -> PyResult<Duration> { Ok(seconds(Some(value.extract()?))?.unwrap_or_default()) };
            match key.as_str() {
                "headers" => settings.headers = value.extract()?,
                "token" => settings.token = Some(value.extract()?),
                "connect_timeout" => settings.connect_timeout = time()?,
                "ping_interval" => settings.ping_interval = time()?,
                "ping_timeout" => settings.ping_timeout = time()?,
                "reconnect_timeout" => settings.reconnect_timeout = time()?,
                "max_message_size" => settings.most_message = value.extract()?,
                "proxy" => settings.proxy = Proxy::Url(value.extract()?),
                "tls_ca" => settings.tls_ca = Some(value.extract()?),
                "contract" => settings.contract = Some(value.extract()?),
                "protocol" => {
                    settings.speech = match value.extract::<String>()?.as_str() {
                        "auto" => Speech::Auto,
                        "openenv" => Speech::OpenEnv,
                        "envharness.v1" => Speech::V1,
                        other => return Err(PyValueError::new_err(format!("protocol={other:?} is not known"))),
                    }
                }
                other => return Err(PyValueError::new_err(format!("there is no setting {other:?}"))),
            }
        }
        Ok(Self { address, settings })
    }

    /// Where it is, without secrets.
    fn __str__(&self) -> String {
        self.address.to_string()
    }

    /// Whether it is on this machine.
    #[getter]
    fn is_local(&self) -> bool {
        self.address.is_local()
    }

    /// Opens a session: a `ClientSession`, to the port under the token, or returned where there is none.
    #[expect(clippy::too_many_arguments, reason = "a call from Python has its options as keywords")]
    #[pyo3(signature = (options, timeout, room=None, query=None, *, port=None, token=0))]
    fn open<'py>(
        &self,
        py: Python<'py>,
        options: &str,
        timeout: f64,
        room: Option<f64>,
        query: Option<String>,
        port: Option<&Bound<'py, Port>>,
        token: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let options = serde_json::from_str(options).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let opening = Opening { options, timeout: seconds(Some(timeout))?.unwrap_or_default(), room: seconds(room)?, query };
        let work = envharness_client::open(self.address.clone(), self.settings.clone(), opening);
        begin(py, async { work.await.map(|session| Value::Session(Arc::new(session))) }, port, token)
    }

    /// The contract: `(200, JSON)`.
    #[pyo3(signature = (timeout, *, port=None, token=0))]
    fn contract<'py>(
        &self,
        py: Python<'py>,
        timeout: f64,
        port: Option<&Bound<'py, Port>>,
        token: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = seconds(Some(timeout))?.unwrap_or_default();
        let work = envharness_client::contract(self.address.clone(), self.settings.clone(), timeout);
        begin(py, async { work.await.map(|body| Value::Body(200, body)) }, port, token)
    }

    /// Sessions in use and free: `(200, JSON)`.
    #[pyo3(signature = (timeout, *, port=None, token=0))]
    fn capacity<'py>(
        &self,
        py: Python<'py>,
        timeout: f64,
        port: Option<&Bound<'py, Port>>,
        token: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = seconds(Some(timeout))?.unwrap_or_default();
        let work = envharness_client::capacity(self.address.clone(), self.settings.clone(), timeout);
        begin(py, async { work.await.map(|body| Value::Body(200, body)) }, port, token)
    }

    /// A GET, or a POST of JSON: status and body.
    #[pyo3(signature = (path, body, timeout, *, port=None, token=0))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        path: String,
        body: Option<Vec<u8>>,
        timeout: f64,
        port: Option<&Bound<'py, Port>>,
        token: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = seconds(Some(timeout))?.unwrap_or_default();
        let work = envharness_client::fetch(self.address.clone(), self.settings.clone(), path, body.map(Bytes::from), timeout);
        begin(py, async { work.await.map(|(status, body)| Value::Body(status, body)) }, port, token)
    }
}

/// Starts work; its value goes to the port, or is waited for.
fn begin<'py>(
    py: Python<'py>,
    work: impl Future<Output = Ready> + Send + 'static,
    port: Option<&Bound<'py, Port>>,
    token: u64,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Some(port) = port {
        let port = port.get().inner();
        envharness_client::start(work, move |ready| port.put(token, ready));
        return Ok(None);
    }
    let waiter = Waiter::new();
    let there = waiter.clone();
    envharness_client::start(work, move |ready| there.put(ready));
    waiter.wait(py, || {})?.into_python(py).map(Some)
}

/// How many forks made this process: sessions from before the last are its parent's.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A session of this process. In a forked child it is neither used nor dropped: what it needs runs in the parent, which may
/// have held its locks.
pub(crate) struct Own {
    session: Option<Arc<Session>>,
    forks: u64,
}

impl Own {
    fn new(session: Arc<Session>) -> Self {
        Self { session: Some(session), forks: FORKS.load(Ordering::Relaxed) }
    }

    fn is_inherited(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// An error where it is the parent's.
    fn check(&self) -> Result<(), ClientError> {
        if self.is_inherited() {
            return Err(ClientError::Lost { reason: "it belongs to the process that this one was forked from".to_owned() });
        }
        Ok(())
    }

    /// Why it cannot be used any more.
    fn fate(&self) -> Option<ClientError> {
        self.check().err().or_else(|| (**self).fate())
    }
}

impl std::ops::Deref for Own {
    type Target = Arc<Session>;

    fn deref(&self) -> &Self::Target {
        self.session.as_ref().expect("taken by drop alone")
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.is_inherited() {
            std::mem::forget(self.session.take());
        }
    }
}

/// A session.
#[pyclass(module = "envharness._native", frozen)]
pub struct ClientSession {
    pub(crate) session: Own,
}

#[pymethods]
impl ClientSession {
    /// Sends a request whose answer goes to the port; gives the ticket to cancel it by.
    #[expect(clippy::too_many_arguments, reason = "one call of the hot path")]
    #[pyo3(signature = (port, token, op, encoding_name, payload, timeout, whole=false))]
    fn ask(
        &self,
        port: &Bound<'_, Port>,
        token: u64,
        op: &str,
        encoding_name: &str,
        payload: &[u8],
        timeout: Option<f64>,
        whole: bool,
    ) -> PyResult<u64> {
        self.mine(port.py())?;
        let ask = self.request(op, encoding_name, payload, timeout)?;
        Ok(self.send(&ask, port.get().inner.sink(token), whole))
    }

    /// Sends a request and waits: `(flags, payload)`. Ctrl-C gives up on the answer; the session lives on.
    #[pyo3(signature = (op, encoding_name, payload, timeout, whole=false))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        op: &str,
        encoding_name: &str,
        payload: &[u8],
        timeout: Option<f64>,
        whole: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.mine(py)?;
        let ask = Ask { blocking: true, ..self.request(op, encoding_name, payload, timeout)? };
        let waiter = Waiter::new();
        let ticket = py.detach(|| self.send(&ask, waiter.sink(), whole));
        waiter.wait(py, || self.session.cancel(ticket))?.into_python(py)
    }

    /// Gives up on an answer.
    fn cancel(&self, ticket: u64) {
        if !self.session.is_inherited() {
            self.session.cancel(ticket);
        }
    }

    /// Why it cannot be used any more: the parts of an error, or None.
    #[getter]
    fn fate<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.session.fate().map(|error| error_parts(py, &error)).transpose()
    }

    /// Ends it.
    #[pyo3(signature = (timeout, *, port=None, token=0))]
    fn close(&self, py: Python<'_>, timeout: f64, port: Option<&Bound<'_, Port>>, token: u64) -> PyResult<()> {
        self.mine(py)?;
        let timeout = seconds(Some(timeout))?.unwrap_or_default();
        match port {
            Some(port) => self.session.close(port.get().inner.sink(token), timeout),
            None => {
                let waiter = Waiter::new();
                self.session.close(waiter.sink(), timeout);
                waiter.wait(py, || {})?;
            }
        }
        Ok(())
    }

    /// Whether `envharness.v1` is spoken.
    #[getter]
    fn is_v1(&self) -> bool {
        matches!(&**self.session, Session::V1(_))
    }

    /// The session's id on the server, where it tells.
    #[getter]
    fn session_id(&self) -> Option<String> {
        match &**self.session {
            Session::V1(seat) => Some(seat.session_id.clone()),
            Session::OpenEnv(_) => None,
        }
    }

    /// What the server said first, as JSON.
    #[getter]
    fn hello(&self) -> Option<String> {
        match &**self.session {
            Session::V1(seat) if !self.session.is_inherited() => Some(seat.trunk().hello()),
            _ => None,
        }
    }

    /// How often its connection was made again.
    #[getter]
    fn reconnects(&self) -> u64 {
        if self.session.is_inherited() { 0 } else { self.session.reconnects() }
    }
}

impl ClientSession {
    fn mine(&self, py: Python<'_>) -> PyResult<()> {
        self.session.check().map_err(|error| raise(py, &error))
    }

    fn request(&self, op: &str, encoding_name: &str, payload: &[u8], timeout: Option<f64>) -> PyResult<Ask> {
        Ok(Ask {
            op: operation(op)?,
            encoding: encoding(encoding_name)?,
            payload: Bytes::copy_from_slice(payload),
            timeout: seconds(timeout)?,
            blocking: false,
        })
    }

    fn send(&self, ask: &Ask, sink: Sink, whole: bool) -> u64 {
        match &**self.session {
            Session::OpenEnv(session) if whole => session.ask_whole(ask, sink),
            session => session.ask(ask, sink),
        }
    }
}

/// Says goodbye on every connection.
#[pyfunction]
pub fn close_connections(py: Python<'_>) {
    py.detach(envharness_client::close_all);
}

/// Forgets the parent's connections in a forked child.
#[pyfunction]
pub fn forget_connections() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    envharness_client::forget();
}
