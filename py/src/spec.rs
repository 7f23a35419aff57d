//! Specs and locks.

use std::path::PathBuf;

use envharness_rig::{DiskFiles, Inputs, RigError, Settings, load_spec};
use envharness_spec::{Platform, TaskConfig, spec_from_config};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::convert::{Failure, json_to_python};

/// A spec in its canonical form. Immutable.
#[pyclass(module = "envharness", frozen, eq, hash, from_py_object)]
#[derive(Clone)]
pub struct Spec {
    pub(crate) inner: envharness_spec::Spec,
}

/// Two specs are one when their digests are, wherever they came from.
impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.inner.digest() == other.inner.digest()
    }
}

impl std::hash::Hash for Spec {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.inner.digest().hash(state);
    }
}

fn current_dir() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
}

#[pymethods]
impl Spec {
    /// Reads a spec file of any known format.
    #[classmethod]
    fn load(_cls: &Bound<'_, PyType>, path: PathBuf) -> Result<Self, Failure> {
        let settings = Settings::load(Inputs::of_process()?)?;
        Ok(Self { inner: load_spec(&path, &settings)? })
    }

    /// Reads the JSON text of a mapping; relative paths begin at the current directory.
    #[classmethod]
    fn from_json(_cls: &Bound<'_, PyType>, text: &str) -> Result<Self, Failure> {
        let base = current_dir();
        let mut inner = envharness_spec::Spec::from_mapping(text, &DiskFiles { base: base.clone() })?;
        inner.base = Some(base);
        Ok(Self { inner })
    }

    /// Takes the spec out of the JSON text of a task's configuration.
    #[classmethod]
    fn from_config(cls: &Bound<'_, PyType>, text: &str) -> Result<Self, Failure> {
        let base = current_dir();
        match spec_from_config(text, &DiskFiles { base: base.clone() })? {
            TaskConfig::Path(path) => Self::load(cls, base.join(path)),
            TaskConfig::Spec(spec) => {
                let mut inner = *spec;
                inner.base = Some(base);
                Ok(Self { inner })
            }
        }
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// The description, or None.
    #[getter]
    fn description(&self) -> Option<&str> {
        self.inner.description.as_deref()
    }

    /// The Python specifier, or None.
    #[getter]
    fn python(&self) -> Option<&str> {
        self.inner.python.as_deref()
    }

    /// The backend as asked for; `auto` by default.
    #[getter]
    fn backend(&self) -> &str {
        self.inner.backend.as_str()
    }

    /// The isolation.
    #[getter]
    fn isolation(&self) -> &str {
        self.inner.isolation.as_str()
    }

    /// The pip packages, normalised and sorted.
    #[getter]
    fn pip(&self) -> Vec<String> {
        self.inner.pip.iter().map(ToString::to_string).collect()
    }

    /// The digest over all of the spec, `sha256:...`.
    #[getter]
    fn digest(&self) -> String {
        self.inner.digest().to_string()
    }

    /// The canonical form as plain Python objects.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json_to_python(py, &self.inner.canonical())
    }

    /// The spec as YAML; reading it gives the same digest.
    fn to_yaml(&self) -> String {
        self.inner.to_yaml()
    }

    fn __repr__(&self) -> String {
        format!("<Spec {} {}>", self.inner.name, &self.inner.digest().hex()[..12])
    }
}

/// A lock: the spec resolved. Immutable.
#[pyclass(module = "envharness", frozen)]
pub struct Lock {
    pub(crate) inner: envharness_spec::Lock,
}

#[pymethods]
impl Lock {
    /// Reads the text of a lock file.
    #[classmethod]
    fn parse(_cls: &Bound<'_, PyType>, text: &str) -> Result<Self, Failure> {
        let inner = envharness_spec::Lock::parse(text).map_err(|source| RigError::LockFile { path: "<string>".into(), source })?;
        Ok(Self { inner })
    }

    /// The digest over all that was resolved, `sha256:...`.
    #[getter]
    fn digest(&self) -> String {
        self.inner.digest().to_string()
    }

    /// The Python version.
    #[getter]
    fn python(&self) -> &str {
        &self.inner.python.version
    }

    /// Why this Python.
    #[getter]
    fn python_reason(&self) -> &str {
        &self.inner.python.reason
    }

    /// Versions by package name.
    #[getter]
    fn packages(&self) -> std::collections::BTreeMap<String, Option<String>> {
        self.inner.packages.iter().map(|p| (p.name.clone(), p.version.clone())).collect()
    }

    /// The text of the lock file.
    fn to_toml(&self) -> String {
        self.inner.to_string()
    }

    /// requirements.txt with hashes for this platform.
    fn to_requirements(&self) -> String {
        self.inner.to_requirements(&Platform::current())
    }

    /// Writes the lock file.
    fn save(&self, path: PathBuf) -> Result<(), Failure> {
        Ok(envharness_store::write_atomic(&path, self.inner.to_string().as_bytes())?)
    }

    fn __repr__(&self) -> String {
        format!("<Lock {} packages, Python {}>", self.inner.packages.len(), self.inner.python.version)
    }
}
