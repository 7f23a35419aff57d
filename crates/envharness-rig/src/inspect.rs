//! What a person or a program wants to know of contexts.

use std::collections::HashMap;

use envharness_sandbox::processes_by_variable;
use envharness_store::{ContextRow, Origin, State};
use serde_json::{Value, json};

use crate::context::{PROCESS_OF, Payload};
use crate::error::RigError;
use crate::rig::Rig;

/// A context as `list` shows it.
#[derive(Debug, Clone)]
pub struct ContextInfo {
    /// The row.
    pub row: ContextRow,
    /// The state as it is: a running one whose holder died is in error, and a kept one with processes runs.
    pub state: State,
    /// Its live processes.
    pub processes: Vec<u32>,
}

impl Rig {
    /// Every context, the newest last.
    ///
    /// # Errors
    /// [`RigError::Store`].
    pub fn list(&self) -> Result<Vec<ContextInfo>, RigError> {
        let mut running = processes_by_variable(PROCESS_OF);
        Ok(self.home.contexts()?.into_iter().map(|row| self.info(row, &mut running)).collect())
    }

    fn info(&self, row: ContextRow, running: &mut HashMap<String, Vec<u32>>) -> ContextInfo {
        let processes = running.remove(&row.id).unwrap_or_default();
        let held = row.state.needs_holder() && self.home.is_held(&row.id);
        let state = match row.state {
            State::Idle if !processes.is_empty() => State::Running,
            _ if row.lost_its_holder() && !held => State::Error,
            // A kept one is nobody's while no process of it runs.
            State::Running if row.origin == Origin::Kept && processes.is_empty() => State::Idle,
            state => state,
        };
        ContextInfo { row, state, processes }
    }

    /// All that is known of one context, as JSON.
    ///
    /// # Errors
    /// [`RigError::Store`].
    pub fn inspect(&self, id: &str) -> Result<Value, RigError> {
        let row = self.home.find_context(id)?;
        let info = self.info(row, &mut processes_by_variable(PROCESS_OF));
        let row = &info.row;
        let mut out = json!({
            "schema": 1,
            "id": row.id,
            "name": row.name,
            "backend": row.backend,
            "state": info.state.as_str(),
            "owner": row.origin.as_str(),
            "created": row.created,
            "used": row.used,
            "expires": row.expires,
            "spec_digest": row.spec_digest,
            "lock_digest": row.lock_digest,
            "prefix_key": row.prefix,
            "holder": if row.state.needs_holder() { json!(row.pid) } else { Value::Null },
            "processes": info.processes,
            "workdir": self.home.context(&row.id).join("work"),
            "log": self.home.log(&row.id),
            "error": row.error,
        });
        if let Ok(payload) = Payload::parse(&row.payload) {
            let spec = payload.spec()?;
            let limits = payload.limits(&spec);
            let limits = limits.into_iter().map(|l| json!({"name": l.name, "value": l.value, "enforced_by": l.enforcer.as_str()}));
            out["python"] = json!(payload.python);
            out["python_version"] = json!(payload.interpreter.version);
            out["prefix"] = json!(payload.prefix);
            out["spec"] = spec.canonical();
            out["isolation"] = json!(spec.isolation.as_str());
            if let Some(place) = &payload.container {
                out["engine"] = json!(place.address);
                out["image"] = json!(place.image);
            }
            out["limits"] = Value::Array(limits.collect());
        }
        Ok(out)
    }
}

/// What `doctor` asks.
impl Rig {
    /// The version of the `uv` that is used, and its path.
    ///
    /// # Errors
    /// [`RigError::NoProgram`].
    pub fn uv_version(&self) -> Result<String, RigError> {
        crate::uv::Uv::find(&self.settings, &self.home)?.version()
    }

    /// Whether processes may have mount namespaces of their own.
    ///
    /// # Errors
    /// The system's answer.
    pub fn namespaces(&self) -> std::io::Result<()> {
        envharness_sandbox::namespaces_available()
    }

    /// The version of a container engine (`docker` or `podman`), where it listens, and its runtimes.
    ///
    /// # Errors
    /// [`RigError::Engine`] with what to do about it.
    pub fn engine(&self, kind: &str) -> Result<String, RigError> {
        crate::container::about(&self.settings, &self.home, kind)
    }

    /// Free bytes where the store lies.
    pub fn free_space(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(self.home.root()).ok()?;
        Some(stat.f_bavail * stat.f_frsize)
    }

    /// GPUs of the machine, by device nodes.
    pub fn gpus(&self) -> u32 {
        crate::environment::gpus_present()
    }
}
