//! What may come of a call.

use envharness_wire::Code;

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error("{address:?} is no address of a server: {reason}")]
    Address {
        /// What was given.
        address: String,
        /// Why.
        reason: String,
    },
    /// There is no connection.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        reason: String,
        /// What may help.
        hint: Option<String>,
    },
    /// The session is gone.
    #[error("the session is lost: {reason}")]
    Lost {
        /// Why.
        reason: String,
    },
    /// No answer in time.
    #[error("no answer within {seconds} s")]
    TimedOut {
        /// The limit.
        seconds: f64,
    },
    /// The server refused, or the environment failed.
    #[error("{message}")]
    Server {
        /// The code's name.
        code: String,
        /// What it said.
        message: String,
        /// The error's whole `data`, as JSON.
        data: String,
    },
    /// What came is not the protocol.
    #[error("the server does not speak the protocol: {reason}")]
    Protocol {
        /// Why.
        reason: String,
    },
    /// The server serves another contract.
    #[error("the server serves the contract {found}, not {wanted}")]
    Contract {
        /// The digest that was asked for.
        wanted: String,
        /// The digest there.
        found: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// Too many calls of one session are unanswered.
    #[error("the session has {waiting} unanswered calls")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// The server takes no message of this size.
    #[error("the call has {bytes} bytes, a message to the server has at most {most}")]
    TooLarge {
        /// Bytes of the payload.
        bytes: usize,
        /// The server's limit.
        most: usize,
    },
    /// The server lacks what was asked for.
    #[error("{0}")]
    NotAvailable(String),
}

impl ClientError {
    /// From the `data` of an error message.
    pub(crate) fn of_data(data: &[u8]) -> Self {
        let mut told: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
        let mut text = String::from_utf8_lossy(data).into_owned();
        // Whoever reads it relies on an object, and on a list of objects in it.
        let errors =
            told.get("errors").is_none_or(|errors| errors.as_array().is_some_and(|errors| errors.iter().all(serde_json::Value::is_object)));
        if !told.is_object() || !errors {
            told.as_object_mut().map(|told| told.remove("errors"));
            text = if told.is_object() { told.to_string() } else { "{}".to_owned() };
        }
        let code = told["code"].as_str().unwrap_or("UNKNOWN").to_owned();
        let message = told["message"].as_str().unwrap_or("the server told no reason").to_owned();
        Self::Server { code, message, data: text }
    }

    /// From the number of a code and the `data`.
    pub(crate) fn of_status(status: u32, data: &[u8]) -> Self {
        match Self::of_data(data) {
            Self::Server { code, message, data } if code == "UNKNOWN" => {
                let known = u16::try_from(status).ok().and_then(Code::from_number).map_or("UNKNOWN", Code::name);
                Self::Server { code: known.to_owned(), message, data }
            }
            told => told,
        }
    }

    /// A name of its kind, for other languages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Address { .. } => "address",
            Self::Connect { .. } => "connect",
            Self::Lost { .. } => "lost",
            Self::TimedOut { .. } => "timeout",
            Self::Server { .. } => "server",
            Self::Protocol { .. } => "protocol",
            Self::Contract { .. } => "contract",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
            Self::Busy { .. } => "busy",
            Self::TooLarge { .. } => "too-large",
            Self::NotAvailable(_) => "not-available",
        }
    }

    /// What may help.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { hint, .. } => hint.clone(),
            Self::Address { .. } => Some("an address is ws://HOST:PORT, http://HOST:PORT, their TLS forms, or unix:PATH".to_owned()),
            Self::Lost { .. } => Some("reset() begins an episode in a new session".to_owned()),
            Self::Busy { .. } => Some("wait for some of them first, or open more sessions".to_owned()),
            Self::TooLarge { .. } => Some("`envharness serve --max-message-size` sets the limit".to_owned()),
            Self::Contract { .. } => Some("`envharness contract show` tells what an environment takes".to_owned()),
            _ => None,
        }
    }
}
