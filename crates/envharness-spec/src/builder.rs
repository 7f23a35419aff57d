//! Specs made in code: `create_spec(name=, pip_deps=)` and the builder.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::error::SpecError;
use crate::import::NoFiles;
use crate::spec::Spec;

/// A spec in the making; each call adds, [`EnvSpecBuilder::build`] checks the whole.
///
/// ```
/// use envharness_spec::EnvSpecBuilder;
/// let spec = EnvSpecBuilder::default().name("rl_training").python("3.8").pip_package("torch==1.13.1").build()?;
/// assert_eq!(spec.python.as_deref(), Some("3.8"));
/// # Ok::<(), envharness_spec::SpecError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct EnvSpecBuilder {
    fields: Map<String, Json>,
}

/// The mapping form of a spec, for callers that hold one.
pub type SpecFields = BTreeMap<String, Json>;

impl EnvSpecBuilder {
    /// Sets any key of the mapping form.
    #[must_use]
    pub fn set(mut self, key: &str, value: Json) -> Self {
        self.fields.insert(key.to_owned(), value);
        self
    }

    /// Sets the name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.set("name", json!(name))
    }

    /// Sets the Python version or specifier.
    #[must_use]
    pub fn python(self, version: &str) -> Self {
        self.set("python", json!(version))
    }

    /// Adds a pip package.
    #[must_use]
    pub fn pip_package(self, requirement: &str) -> Self {
        self.push("pip", requirement)
    }

    /// Adds a conda package.
    #[must_use]
    pub fn conda_package(self, requirement: &str) -> Self {
        self.push("conda", requirement)
    }

    /// Adds a conda channel, after those there are.
    #[must_use]
    pub fn conda_channel(self, channel: &str) -> Self {
        self.push("channels", channel)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env_var(mut self, name: &str, value: &str) -> Self {
        let entry = self.fields.entry("env_vars").or_insert_with(|| json!({}));
        entry[name] = json!(value);
        self
    }

    /// Checks and normalises.
    ///
    /// # Errors
    /// [`SpecError`] as for a mapping with the same content.
    pub fn build(self) -> Result<Spec, SpecError> {
        Spec::from_mapping(&Json::Object(self.fields).to_string(), &NoFiles)
    }

    fn push(mut self, key: &str, value: &str) -> Self {
        let list = self.fields.entry(key).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(json!(value));
        }
        self
    }
}
