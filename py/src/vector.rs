//! Many sessions driven with one call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use envharness_client::{Answer, Outcome, Vector};
use envharness_wire::v1::{Encoding, Op};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList};

use crate::client::{ClientSession, Port, encoding, error_parts, operation, seconds};

/// Sessions by slot.
#[pyclass(module = "envharness._native", frozen)]
pub struct ClientVector {
    vector: Mutex<Vector>,
    slots: usize,
    /// Which slots a turn began anew.
    begun: Mutex<Vec<u8>>,
    /// Outcomes of calls that were sent, which nobody has taken.
    due: AtomicUsize,
}

/// Raw outcomes, stacked by slot: observations, rewards, flags, `(slot, info)` and `(slot, error)`.
pub(crate) type Stacked<'py> =
    (Bound<'py, PyByteArray>, Bound<'py, PyByteArray>, Bound<'py, PyByteArray>, Bound<'py, PyList>, Bound<'py, PyList>);

impl ClientVector {
    fn locked(&self) -> MutexGuard<'_, Vector> {
        self.vector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, py: Python<'_>, least: usize, timeout: Option<f64>) -> PyResult<Vec<(u32, Outcome)>> {
        let timeout = seconds(timeout)?;
        let mut raised = None;
        let waiting = self.locked().outcomes();
        let outcomes = py.detach(|| {
            waiting.wait(least, timeout, &mut || match Python::attach(|py| py.check_signals()) {
                Ok(()) => true,
                Err(error) => {
                    raised = Some(error);
                    false
                }
            })
        });
        self.due.fetch_sub(outcomes.len(), Ordering::Relaxed);
        raised.map_or(Ok(outcomes), Err)
    }
}

/// `(slot, error, flags, payload)`.
pub(crate) fn told<'py>(py: Python<'py>, slot: u32, outcome: Outcome) -> PyResult<Bound<'py, PyAny>> {
    let none = || py.None().into_bound(py);
    let (error, flags, payload) = match outcome {
        Ok(Answer { flags, payload, .. }) => (none(), flags, PyBytes::new(py, &payload).into_any()),
        Err(error) => (error_parts(py, &error)?.into_any(), 0, none()),
    };
    Ok((slot, error, flags, payload).into_pyobject(py)?.into_any())
}

#[pymethods]
impl ClientVector {
    #[new]
    fn new(slots: usize) -> Self {
        Self { vector: Mutex::new(Vector::new(slots)), slots, begun: Mutex::default(), due: AtomicUsize::new(0) }
    }

    /// Outcomes that nobody has taken, among them those that are still to come.
    #[getter]
    fn due(&self) -> usize {
        self.due.load(Ordering::Relaxed)
    }

    /// Puts a session into a slot.
    fn put(&self, slot: usize, session: Option<&Bound<'_, ClientSession>>) {
        self.locked().put(slot, session.map(|session| session.get().session.clone()));
    }

    /// Sends a call to each of some slots.
    fn send(
        &self,
        op: &str,
        encoding_name: &str,
        slots: Vec<u32>,
        payloads: Vec<Bound<'_, PyBytes>>,
        timeout: Option<f64>,
        together: bool,
    ) -> PyResult<()> {
        if slots.len() != payloads.len() {
            return Err(PyValueError::new_err(format!("{} slots and {} payloads", slots.len(), payloads.len())));
        }
        let (op, encoding, timeout) = (operation(op)?, encoding(encoding_name)?, seconds(timeout)?);
        let calls: Vec<_> =
            slots.into_iter().zip(&payloads).map(|(slot, payload)| (slot, Bytes::copy_from_slice(payload.as_bytes()))).collect();
        self.due.fetch_add(calls.len(), Ordering::Relaxed);
        self.locked().send(op, encoding, timeout, calls, together);
        Ok(())
    }

    /// Sends a step to each of some slots: the rows of an array, one after the other.
    fn send_rows(&self, slots: Vec<u32>, rows: &Bound<'_, PyBytes>, timeout: Option<f64>, together: bool) -> PyResult<()> {
        let rows = Bytes::copy_from_slice(rows.as_bytes());
        if slots.is_empty() || !rows.len().is_multiple_of(slots.len()) {
            return Err(PyValueError::new_err(format!("{} bytes are no rows of {} slots", rows.len(), slots.len())));
        }
        let (row, timeout) = (rows.len() / slots.len(), seconds(timeout)?);
        self.due.fetch_add(slots.len(), Ordering::Relaxed);
        let calls = slots.into_iter().enumerate().map(|(at, slot)| (slot, rows.slice(at * row..(at + 1) * row))).collect();
        self.locked().send(Op::Step, Encoding::Tensor, timeout, calls, together);
        Ok(())
    }

    /// Waits until `least` outcomes are there, or the time is over: `(slot, error, flags, payload)` of each that is.
    fn wait<'py>(&self, py: Python<'py>, least: usize, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (slot, outcome) in self.wait_for(py, least, timeout)? {
            list.append(told(py, slot, outcome)?)?;
        }
        Ok(list)
    }

    /// The same of raw answers, as arrays of all slots; what has no outcome stays zero. `row` is the bytes of an observation.
    fn wait_rows<'py>(&self, py: Python<'py>, least: usize, timeout: Option<f64>, row: usize) -> PyResult<(Vec<u32>, Stacked<'py>)> {
        let outcomes = self.wait_for(py, least, timeout)?;
        stack(py, outcomes, self.slots, row)
    }

    /// A turn of all slots: those that had ended begin anew, the others step by their rows.
    fn begin(&self, py: Python<'_>, rows: &Bound<'_, PyBytes>, ended: &[u8], timeout: Option<f64>) -> PyResult<()> {
        let rows = Bytes::copy_from_slice(rows.as_bytes());
        if ended.len() != self.slots || self.slots == 0 || !rows.len().is_multiple_of(self.slots) {
            return Err(PyValueError::new_err(format!("{} bytes are no rows of {} slots", rows.len(), self.slots)));
        }
        let (row, timeout) = (rows.len() / self.slots, seconds(timeout)?);
        let anew = Bytes::from_static(b"{}");
        self.due.fetch_add(self.slots, Ordering::Relaxed);
        py.detach(|| {
            let (mut steps, mut resets) = (Vec::with_capacity(self.slots), Vec::new());
            for (at, ended) in ended.iter().enumerate() {
                let slot = u32::try_from(at).unwrap_or(u32::MAX);
                if *ended == 0 {
                    steps.push((slot, rows.slice(at * row..(at + 1) * row)));
                } else {
                    resets.push((slot, anew.clone()));
                }
            }
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = ended.to_vec();
            let vector = self.locked();
            if !resets.is_empty() {
                vector.send(Op::Reset, Encoding::Tensor, timeout, resets, true);
            }
            if !steps.is_empty() {
                vector.send(Op::Step, Encoding::Tensor, timeout, steps, true);
            }
        });
        Ok(())
    }

    /// The outcomes of a turn; what began anew has the reward 0.
    fn finish<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Stacked<'py>> {
        let mut outcomes = self.wait_for(py, self.slots, None)?;
        let begun = std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        for (slot, outcome) in &mut outcomes {
            if let Ok(answer) = outcome
                && begun.get(*slot as usize).is_some_and(|begun| *begun != 0)
            {
                answer.reward = 0.0;
            }
        }
        Ok(stack(py, outcomes, self.slots, row)?.1)
    }

    /// Rings at the port once when `least` outcomes are there.
    fn ring(&self, port: &Bound<'_, Port>, token: u64, least: usize) {
        let port = port.get().inner();
        self.locked().outcomes().ring(least, std::sync::Arc::new(move || port.ring(token)));
    }
}

fn stack<'py>(py: Python<'py>, outcomes: Vec<(u32, Outcome)>, slots: usize, row: usize) -> PyResult<(Vec<u32>, Stacked<'py>)> {
    let (infos, errors) = (PyList::empty(py), PyList::empty(py));
    let mut told = Vec::with_capacity(outcomes.len());
    let (mut rewards, mut flags) = (vec![0_u8; slots * 8], vec![0_u8; slots]);
    let observations = PyByteArray::new_with(py, slots * row, |bytes| {
        for (slot, outcome) in outcomes {
            let at = slot as usize;
            told.push(slot);
            if at >= slots {
                continue;
            }
            match outcome {
                Ok(answer) if answer.row.len() == row => {
                    bytes[at * row..(at + 1) * row].copy_from_slice(&answer.row);
                    rewards[at * 8..(at + 1) * 8].copy_from_slice(&answer.reward.to_le_bytes());
                    flags[at] = answer.flags;
                    if !answer.payload.is_empty() {
                        infos.append((slot, PyBytes::new(py, &answer.payload)))?;
                    }
                }
                Ok(answer) => {
                    let reason = format!("an observation has {} bytes where its space has {row}", answer.row.len());
                    errors.append((slot, error_parts(py, &envharness_client::ClientError::Protocol { reason })?))?;
                }
                Err(error) => errors.append((slot, error_parts(py, &error)?))?,
            }
        }
        Ok(())
    })?;
    Ok((told, (observations, PyByteArray::new(py, &rewards), PyByteArray::new(py, &flags), infos, errors)))
}
