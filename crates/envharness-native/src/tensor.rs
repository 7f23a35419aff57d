//! Actions and observations as raw bytes: little-endian, row-major, of a dtype and a shape that are known beforehand.

use envharness_spec::contract::Problem;
use serde_json::Value;

use crate::env::EnvError;

/// The type of a tensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// An unsigned byte.
    U8,
    /// A signed byte.
    I8,
    /// An unsigned 16-bit integer.
    U16,
    /// A signed 16-bit integer.
    I16,
    /// An unsigned 32-bit integer.
    U32,
    /// A signed 32-bit integer.
    I32,
    /// An unsigned 64-bit integer.
    U64,
    /// A signed 64-bit integer.
    I64,
    /// A half-precision float.
    F16,
    /// A single-precision float.
    F32,
    /// A double-precision float.
    F64,
}

impl DType {
    /// Bytes of one number.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name that numpy has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// What one raw value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorSpace {
    /// The type of its numbers.
    pub dtype: DType,
    /// How many there are in each dimension; none for a single number.
    pub shape: &'static [usize],
}

impl TensorSpace {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

/// The raw values of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorSpaces {
    /// What a step takes.
    pub action: TensorSpace,
    /// What a reset and a step give.
    pub observation: TensorSpace,
}

/// What a raw reset or step gives beside its observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawOutcome {
    /// The reward; NaN where there is none to give.
    pub reward: f64,
    /// Whether the episode came to an end of its own.
    pub terminated: bool,
    /// Whether the episode was cut off.
    pub truncated: bool,
}

impl RawOutcome {
    /// What a reset gives.
    pub(crate) const BEGUN: Self = Self { reward: 0.0, terminated: false, truncated: false };
}

/// The error of an environment that has no raw values.
pub(crate) fn unsupported() -> EnvError {
    EnvError::Failed("this environment has no raw values".to_owned())
}

/// The refusal of an action's bytes, in the words in which Gymnasium's spaces are refused.
#[cold]
pub(crate) fn refused(space: &str, input: Value) -> EnvError {
    EnvError::Invalid(vec![Problem::new("value_error", vec!["action".into()], format!("Value is not in {space}"), input)])
}

/// Writes floats into an observation that has room for them.
pub(crate) fn write_f32<const N: usize>(values: [f32; N], observation: &mut [u8]) {
    for (place, value) in observation.chunks_exact_mut(4).zip(values) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

#[cold]
fn wrong_room(given: usize, wanted: usize) -> EnvError {
    EnvError::Failed(format!("an observation takes {wanted} bytes, and there is room for {given}"))
}

/// Checks that there is room for an observation, before anything happens.
pub(crate) fn check_room(observation: &[u8], space: TensorSpace) -> Result<(), EnvError> {
    if observation.len() == space.bytes() { Ok(()) } else { Err(wrong_room(observation.len(), space.bytes())) }
}
