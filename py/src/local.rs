//! Native environments in this process, with the face of a vector of sessions: cheap ones are stepped on the caller's thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use envharness_client::{Answer, ClientError, Outcome};
use envharness_native::{Descriptor, Env, EnvError, RawOutcome, ResetArgs, find};
use envharness_spec::contract::Problem;
use envharness_wire::frame::{self, Answer as Kind};
use envharness_wire::v1::{DONE, Encoding, Op, TERMINATED, TRUNCATED};
use envharness_wire::{Code, reply};
use envharness_worker::{Asked, Host, NativeHost, Session};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList};

use crate::client::{encoding, error_parts, operation};
use crate::convert::json_to_python;
use crate::vector::{Stacked, told};

/// Raw outcomes that were not taken yet.
#[derive(Default)]
struct Rows {
    observations: Vec<u8>,
    rewards: Vec<u8>,
    flags: Vec<u8>,
    told: Vec<u32>,
    errors: Vec<(u32, ClientError)>,
}

struct Inside {
    /// Stepped by raw values.
    envs: Vec<Box<dyn Env>>,
    /// Stepped by JSON and msgpack.
    sessions: Vec<Session>,
    rows: Rows,
    ready: Vec<(u32, Outcome)>,
}

/// Instances of a native environment by slot.
#[pyclass(module = "envharness._native", frozen)]
pub struct NativeVector {
    descriptor: &'static Descriptor,
    row: usize,
    inside: Mutex<Inside>,
}

impl NativeVector {
    fn locked(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seed of a reset's arguments.
fn seeded(payload: &[u8]) -> Result<ResetArgs, EnvError> {
    let given: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    let seed = &given["seed"];
    if seed.is_null() || seed.is_u64() {
        return Ok(ResetArgs { seed: seed.as_u64(), ..ResetArgs::default() });
    }
    let why = "Input should be greater than or equal to 0".to_owned();
    Err(EnvError::Invalid(vec![Problem::new("greater_than_equal", vec!["body".into(), "seed".into()], why, seed.clone())]))
}

fn invalid(error: EnvError) -> ClientError {
    let (code, data) = match error {
        EnvError::Invalid(problems) => {
            let errors = serde_json::to_string(&problems).unwrap_or_else(|_| "[]".to_owned());
            (Code::ValidationError, reply::error_data(Code::ValidationError, "Invalid message", &[("errors", errors)]))
        }
        EnvError::Failed(message) => (Code::ExecutionError, reply::error_data(Code::ExecutionError, &message, &[])),
    };
    server_error(code, &data)
}

/// How an episode ended, as the bits of an answer.
fn ends(outcome: &RawOutcome) -> u8 {
    let flag = |on: bool, bit: u8| if on { bit | DONE } else { 0 };
    flag(outcome.terminated, TERMINATED) | flag(outcome.truncated, TRUNCATED)
}

fn server_error(code: Code, data: &[u8]) -> ClientError {
    let told: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
    ClientError::Server {
        code: code.name().to_owned(),
        message: told["message"].as_str().unwrap_or_default().to_owned(),
        data: String::from_utf8_lossy(data).into_owned(),
    }
}

/// A worker's reply as a client has it.
fn outcome(reply: envharness_worker::Reply, encoding: Encoding) -> Outcome {
    match reply.kind {
        Kind::Ok => {
            let done = if reply.flags & frame::DONE == 0 { 0 } else { DONE };
            Ok(Answer { flags: encoding as u8 | done, payload: reply.payload, ..Answer::default() })
        }
        Kind::Invalid => {
            let errors = String::from_utf8_lossy(&reply.payload).into_owned();
            let data = reply::error_data(Code::ValidationError, "Invalid message", &[("errors", errors)]);
            Err(server_error(Code::ValidationError, &data))
        }
        _ => {
            let told: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
            let code = told["code"].as_str().and_then(Code::from_name).unwrap_or(Code::ExecutionError);
            Err(server_error(code, &reply.payload))
        }
    }
}

#[pymethods]
impl NativeVector {
    #[new]
    fn new(name: &str, slots: usize) -> PyResult<Self> {
        let descriptor = find(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        let row = descriptor.spaces.map_or(0, |spaces| spaces().observation.bytes());
        let inside = Inside {
            envs: (0..slots).map(|_| (descriptor.make)()).collect(),
            sessions: Vec::new(),
            rows: Rows { observations: vec![0; slots * row], rewards: vec![0; slots * 8], flags: vec![0; slots], ..Rows::default() },
            ready: Vec::new(),
        };
        Ok(Self { descriptor, row, inside: Mutex::new(inside) })
    }

    /// What it takes and gives: the members of a contract.
    fn contract<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let contract = PyDict::new(py);
        contract.set_item("name", self.descriptor.name)?;
        contract.set_item("version", env!("CARGO_PKG_VERSION"))?;
        let parts = [
            ("action", self.descriptor.action),
            ("observation", self.descriptor.observation),
            ("reset", self.descriptor.reset),
            ("state", self.descriptor.state),
        ];
        for (key, schema) in parts {
            contract.set_item(key, json_to_python(py, &schema())?)?;
        }
        Ok(contract)
    }

    /// Outcomes that nobody has taken.
    #[getter]
    fn due(&self) -> usize {
        let inside = self.locked();
        inside.ready.len() + inside.rows.told.len()
    }

    /// Calls each of some slots; the outcomes are there at once.
    #[pyo3(signature = (op, encoding_name, slots, payloads, timeout=None, together=true))]
    fn send(
        &self,
        op: &str,
        encoding_name: &str,
        slots: Vec<u32>,
        payloads: Vec<Bound<'_, PyBytes>>,
        timeout: Option<f64>,
        together: bool,
    ) -> PyResult<()> {
        let _ = (timeout, together);
        let (op, encoding) = (operation(op)?, encoding(encoding_name)?);
        let mut inside = self.locked();
        for (slot, payload) in slots.into_iter().zip(&payloads) {
            match (op, encoding) {
                (Op::Reset, Encoding::Tensor) => inside.reset_row(slot, payload.as_bytes(), self.row),
                (_, Encoding::Tensor) => return Err(PyValueError::new_err("raw values are sent by send_rows")),
                _ => inside.call(self.descriptor, slot, op, encoding, payload.as_bytes())?,
            }
        }
        Ok(())
    }

    /// Steps each of some slots by the rows of an array.
    #[pyo3(signature = (slots, rows, timeout=None, together=true))]
    fn send_rows(&self, py: Python<'_>, slots: Vec<u32>, rows: &Bound<'_, PyBytes>, timeout: Option<f64>, together: bool) -> PyResult<()> {
        let _ = (timeout, together);
        let rows = rows.as_bytes();
        if slots.is_empty() || !rows.len().is_multiple_of(slots.len()) {
            return Err(PyValueError::new_err(format!("{} bytes are no rows of {} slots", rows.len(), slots.len())));
        }
        let action = rows.len() / slots.len();
        py.detach(|| {
            let mut inside = self.locked();
            for (at, slot) in slots.into_iter().enumerate() {
                inside.step_row(slot, &rows[at * action..(at + 1) * action], self.row);
            }
        });
        Ok(())
    }

    /// A turn of all slots: those that had ended begin anew, the others step by their rows.
    #[pyo3(signature = (rows, ended, timeout=None))]
    fn begin(&self, py: Python<'_>, rows: &Bound<'_, PyBytes>, ended: &[u8], timeout: Option<f64>) -> PyResult<()> {
        let _ = timeout;
        let (rows, row) = (rows.as_bytes(), self.row);
        py.detach(|| {
            let mut inside = self.locked();
            let slots = inside.envs.len();
            if slots == 0 || ended.len() != slots || !rows.len().is_multiple_of(slots) {
                return Err(PyValueError::new_err(format!("{} bytes are no rows of {slots} slots", rows.len())));
            }
            let action = rows.len() / slots;
            for (at, ended) in ended.iter().enumerate() {
                inside.turn(at, *ended != 0, &rows[at * action..(at + 1) * action], row);
            }
            Ok(())
        })
    }

    /// The outcomes of a turn; what began anew has the reward 0.
    fn finish<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Stacked<'py>> {
        let _ = row;
        self.stacked(py)
    }

    /// The outcomes: `(slot, error, flags, payload)`.
    #[pyo3(signature = (least=0, timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, least: usize, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let _ = (least, timeout);
        let list = PyList::empty(py);
        for (slot, outcome) in std::mem::take(&mut self.locked().ready) {
            list.append(told(py, slot, outcome)?)?;
        }
        Ok(list)
    }

    /// The raw outcomes, stacked by slot.
    #[pyo3(signature = (least, timeout, row))]
    fn wait_rows<'py>(&self, py: Python<'py>, least: usize, timeout: Option<f64>, row: usize) -> PyResult<(Vec<u32>, Stacked<'py>)> {
        let _ = (least, timeout, row);
        let told = std::mem::take(&mut self.locked().rows.told);
        Ok((told, self.stacked(py)?))
    }
}

impl NativeVector {
    fn stacked<'py>(&self, py: Python<'py>) -> PyResult<Stacked<'py>> {
        let mut inside = self.locked();
        let rows = &mut inside.rows;
        let errors = PyList::empty(py);
        for (slot, error) in rows.errors.drain(..) {
            errors.append((slot, error_parts(py, &error)?))?;
        }
        let array = |bytes: &[u8]| PyByteArray::new(py, bytes);
        Ok((array(&rows.observations), array(&rows.rewards), array(&rows.flags), PyList::empty(py), errors))
    }
}

impl Inside {
    fn call(&mut self, descriptor: &'static Descriptor, slot: u32, op: Op, encoding: Encoding, payload: &[u8]) -> PyResult<()> {
        if self.sessions.is_empty() {
            let host = Host::Native(NativeHost::new(descriptor, self.envs.len()));
            for _ in 0..self.envs.len() {
                let session = futures_util::FutureExt::now_or_never(host.open(b""));
                let session = session.and_then(Result::ok).ok_or_else(|| PyValueError::new_err("an instance cannot be made"))?;
                self.sessions.push(session);
            }
        }
        let order = match op {
            Op::Reset => frame::Op::Reset,
            Op::Step => frame::Op::Step,
            Op::State => frame::Op::State,
            Op::Render => frame::Op::Render,
            _ => frame::Op::Mcp,
        };
        let flags = if encoding == Encoding::Msgpack { frame::MSGPACK } else { 0 };
        let Some(session) = self.sessions.get_mut(slot as usize) else {
            self.ready.push((slot, Err(ClientError::Closed)));
            return Ok(());
        };
        let outcome = match session.ask(order, flags, payload) {
            Asked::Answered(reply) => outcome(reply, encoding),
            Asked::Sent(_) => Err(ClientError::Closed),
        };
        self.ready.push((slot, outcome));
        Ok(())
    }

    /// Whether there is such a slot; its outcome is told in any case.
    fn known(&mut self, slot: u32) -> bool {
        self.rows.told.push(slot);
        let known = (slot as usize) < self.envs.len();
        if !known {
            self.rows.errors.push((slot, ClientError::Closed));
        }
        known
    }

    fn reset_row(&mut self, slot: u32, payload: &[u8], row: usize) {
        if !self.known(slot) {
            return;
        }
        let at = slot as usize;
        let place = &mut self.rows.observations[at * row..(at + 1) * row];
        let result = seeded(payload).and_then(|args| self.envs[at].reset_raw(&args, place));
        self.settle(slot, result.map(|outcome| (outcome.reward, 0)));
    }

    /// One slot of a turn.
    fn turn(&mut self, at: usize, begins: bool, action: &[u8], row: usize) {
        let place = &mut self.rows.observations[at * row..(at + 1) * row];
        let result = if begins {
            self.envs[at].reset_raw(&ResetArgs::default(), place).map(|_| (0.0, 0))
        } else {
            self.envs[at].step_raw(action, place).map(|outcome| (outcome.reward, ends(&outcome)))
        };
        self.settle(u32::try_from(at).unwrap_or(u32::MAX), result);
    }

    fn step_row(&mut self, slot: u32, action: &[u8], row: usize) {
        if !self.known(slot) {
            return;
        }
        let at = slot as usize;
        let place = &mut self.rows.observations[at * row..(at + 1) * row];
        let result = self.envs[at].step_raw(action, place).map(|outcome| (outcome.reward, ends(&outcome)));
        self.settle(slot, result);
    }

    fn settle(&mut self, slot: u32, result: Result<(f64, u8), EnvError>) {
        let at = slot as usize;
        let (reward, flags) = match result {
            Ok(told) => told,
            Err(error) => {
                self.rows.errors.push((slot, invalid(error)));
                let row = self.rows.observations.len() / self.envs.len();
                self.rows.observations[at * row..(at + 1) * row].fill(0);
                (f64::NAN, 0)
            }
        };
        self.rows.rewards[at * 8..(at + 1) * 8].copy_from_slice(&reward.to_le_bytes());
        self.rows.flags[at] = flags;
    }
}
