//! The codes of errors: stable names that programs may compare.

/// Why a request or a session failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The text is not JSON, not an object or not text.
    InvalidJson,
    /// The `type` of the message is not known.
    UnknownType,
    /// The message or its action does not fit the model.
    ValidationError,
    /// The environment raised.
    ExecutionError,
    /// All sessions are in use.
    CapacityReached,
    /// The environment could not be made.
    FactoryError,
    /// The session cannot be attached to.
    SessionError,
    /// The worker of the session ended.
    WorkerDied,
    /// The environment did not answer in time.
    StepTimeout,
    /// The server is about to end.
    Draining,
    /// The session was idle for too long.
    IdleTimeout,
    /// The answer is larger than a message may be.
    ReplyTooLarge,
    /// The call is not served in this mode.
    NotAvailable,
    /// The request was written for another contract.
    ContractMismatch,
    /// The request's deadline had passed before its turn came; it was not carried out.
    DeadlineExceeded,
    /// The request was cancelled before its turn came; it was not carried out.
    Cancelled,
    /// The sequence numbers of a session have a gap, or name what is long answered.
    SequenceError,
    /// The frame is none.
    ProtocolError,
}

const ALL: [Code; 18] = [
    Code::InvalidJson,
    Code::UnknownType,
    Code::ValidationError,
    Code::ExecutionError,
    Code::CapacityReached,
    Code::FactoryError,
    Code::SessionError,
    Code::WorkerDied,
    Code::StepTimeout,
    Code::Draining,
    Code::IdleTimeout,
    Code::ReplyTooLarge,
    Code::NotAvailable,
    Code::ContractMismatch,
    Code::DeadlineExceeded,
    Code::Cancelled,
    Code::SequenceError,
    Code::ProtocolError,
];

impl Code {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidJson => "INVALID_JSON",
            Self::UnknownType => "UNKNOWN_TYPE",
            Self::ValidationError => "VALIDATION_ERROR",
            Self::ExecutionError => "EXECUTION_ERROR",
            Self::CapacityReached => "CAPACITY_REACHED",
            Self::FactoryError => "FACTORY_ERROR",
            Self::SessionError => "SESSION_ERROR",
            Self::WorkerDied => "WORKER_DIED",
            Self::StepTimeout => "STEP_TIMEOUT",
            Self::Draining => "DRAINING",
            Self::IdleTimeout => "IDLE_TIMEOUT",
            Self::ReplyTooLarge => "REPLY_TOO_LARGE",
            Self::NotAvailable => "NOT_AVAILABLE",
            Self::ContractMismatch => "CONTRACT_MISMATCH",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Cancelled => "CANCELLED",
            Self::SequenceError => "SEQUENCE_ERROR",
            Self::ProtocolError => "PROTOCOL_ERROR",
        }
    }

    /// All codes, in the order of their numbers.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The number in a frame of `envharness.v1`: from 1, and never another's.
    pub fn number(self) -> u16 {
        self as u16 + 1
    }

    /// The code of a number.
    pub fn from_number(number: u16) -> Option<Self> {
        ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The code of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|code| code.name() == name).copied()
    }

    /// Whether the same call, in a new session, may well succeed.
    pub fn retryable(self) -> bool {
        matches!(self, Self::CapacityReached | Self::WorkerDied | Self::StepTimeout | Self::Draining | Self::IdleTimeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_of_one_code() {
        for (at, code) in Code::all().iter().enumerate() {
            assert_eq!(usize::from(code.number()), at + 1);
            assert_eq!(Code::from_number(code.number()), Some(*code));
            assert_eq!(Code::from_name(code.name()), Some(*code));
        }
        assert_eq!(Code::from_number(0), None);
    }
}
