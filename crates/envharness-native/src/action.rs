//! Reading an action: typed and quick when it fits, judged by its schema when it does not.

use std::fmt;
use std::sync::LazyLock;

use envharness_spec::contract::{ContractError, Problem, Validator};
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::env::EnvError;

/// The compiled action schema of an environment; compiled when the first action does not fit.
pub(crate) type ActionSchema = LazyLock<Result<Validator, ContractError>>;

/// Reads an action into its type.
///
/// The judge is the schema: the type refuses whatever the schema refuses, and where the type alone
/// refuses (a key that occurs twice), the last of the two counts, as it does in Python.
pub(crate) fn read<A: DeserializeOwned>(bytes: &[u8], schema: &ActionSchema) -> Result<A, EnvError> {
    serde_json::from_slice(bytes).or_else(|_| reread(bytes, schema))
}

#[cold]
fn reread<A: DeserializeOwned>(bytes: &[u8], schema: &ActionSchema) -> Result<A, EnvError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        EnvError::Invalid(vec![Problem::new("json_invalid", Vec::new(), format!("Invalid JSON: {error}"), Value::Null)])
    })?;
    let validator = schema.as_ref().map_err(|error| EnvError::Failed(error.to_string()))?;
    let problems = validator.problems(&value);
    if !problems.is_empty() {
        return Err(EnvError::Invalid(problems));
    }
    A::deserialize(value).map_err(|error| EnvError::Failed(format!("failed to read the action: {error}")))
}

/// Any JSON object, read and forgotten: the `metadata` that every OpenEnv action may carry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Metadata;

impl<'de> serde::Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

/// A choice that is an integer on the wire: `1`, and `1.0`, which JSON Schema holds to be the same.
pub(crate) struct Choice<const N: u64>;

impl<const N: u64> Choice<N> {
    /// Reads a number below `N`.
    pub(crate) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<const N: u64> Visitor<'_> for Choice<N> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an integer below {N}")
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<usize, E> {
        usize::try_from(value).ok().filter(|_| value < N).ok_or_else(|| E::custom("out of range"))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<usize, E> {
        (0..N as usize).find(|choice| *choice as f64 == value).ok_or_else(|| E::custom("out of range"))
    }
}
