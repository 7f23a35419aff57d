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
}

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
        }
    }

    /// Whether the same call, in a new session, may well succeed.
    pub fn retryable(self) -> bool {
        matches!(self, Self::CapacityReached | Self::WorkerDied | Self::StepTimeout | Self::Draining | Self::IdleTimeout)
    }
}
