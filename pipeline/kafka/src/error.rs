//! Errors of the client, with what to do about them.

use std::error::Error as StdError;
use std::fmt;

use krafka::KrafkaError;
use krafka::error::ErrorCode;
use profcol_component::Refusal;
use profcol_net::Hint;

/// An error of the client, or of a broker. The text ends with the fix where it is known.
#[derive(Debug)]
pub struct Error(KrafkaError);

/// Whether a message may be sent again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retryability {
    /// It may be accepted later.
    Retryable,
    Permanent,
    TooLarge,
}

impl Error {
    /// The text without the fix.
    pub fn problem(&self) -> String {
        self.0.to_string()
    }

    /// What to do about it.
    pub fn fix(&self) -> Option<&'static str> {
        match &self.0 {
            // SASL has no source.
            KrafkaError::Auth {
                source: Some(error),
                ..
            } => Some(handshake_fix(error.source())),
            KrafkaError::Auth { source: None, .. } => Some(CREDENTIALS),
            KrafkaError::Network(_) => {
                Some("check `brokers`, that the broker runs, and firewalls between")
            }
            KrafkaError::Timeout { .. } | KrafkaError::DeliveryTimeout { .. } => Some(
                "check the broker's log, and that its `advertised.listeners` can be reached from here",
            ),
            KrafkaError::UnknownTopic { .. } => Some(TOPIC),
            KrafkaError::Broker { code, .. } => broker_error(*code).1,
            _ => None,
        }
    }

    /// Whether the client that returned it must be replaced.
    pub fn ends_the_client(&self) -> bool {
        self.0.is_fatal()
    }

    /// The refusal of a message of `bytes`.
    pub fn refusal(self, bytes: usize) -> Refusal {
        match self.retryability() {
            Retryability::Retryable => Refusal::retry(self),
            Retryability::Permanent => Refusal::permanent(self),
            Retryability::TooLarge => Refusal::TooLarge {
                reason: self.to_string().into(),
                limit_bytes: bytes / 2,
            },
        }
    }

    fn retryability(&self) -> Retryability {
        match &self.0 {
            KrafkaError::Broker { code, .. } => broker_error(*code).0,
            KrafkaError::Config { .. }
            | KrafkaError::Compression { .. }
            | KrafkaError::Serialization { .. } => Retryability::Permanent,
            // Also after wrong credentials: a broker that restarts refuses right ones until it has read them.
            _ => Retryability::Retryable,
        }
    }
}

const CREDENTIALS: &str = "check `auth::sasl`: user name, password and mechanism";
const TOPIC: &str = "create the topic, or correct its name";

fn broker_error(code: ErrorCode) -> (Retryability, Option<&'static str>) {
    match code {
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => (
            Retryability::TooLarge,
            Some("lower `producer::max_message_bytes`, or raise the topic's `max.message.bytes`"),
        ),
        ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
            (Retryability::Retryable, Some(TOPIC))
        }
        ErrorCode::SaslAuthenticationFailed => (Retryability::Retryable, Some(CREDENTIALS)),
        ErrorCode::UnsupportedSaslMechanism => (
            Retryability::Retryable,
            Some("set `auth::sasl::mechanism` to one that the broker offers"),
        ),
        ErrorCode::TopicAuthorizationFailed => (
            Retryability::Permanent,
            Some("grant the user the right to write to or read from the topic"),
        ),
        ErrorCode::GroupAuthorizationFailed => (
            Retryability::Permanent,
            Some("grant the user the right to read in the group"),
        ),
        ErrorCode::ClusterAuthorizationFailed => (
            Retryability::Permanent,
            Some("grant the user the right IDEMPOTENT_WRITE on the cluster"),
        ),
        ErrorCode::InvalidTopic => (
            Retryability::Permanent,
            Some("correct the name of the topic"),
        ),
        ErrorCode::InvalidRecord | ErrorCode::UnsupportedCompressionType => (
            Retryability::Permanent,
            Some("check `compression.type` and `cleanup.policy` of the topic"),
        ),
        ErrorCode::NotEnoughReplicas | ErrorCode::NotEnoughReplicasAfterAppend => (
            Retryability::Retryable,
            Some("check that enough brokers run for the topic's `min.insync.replicas`"),
        ),
        ErrorCode::KafkaStorageException => (
            Retryability::Retryable,
            Some("check the broker's disk: it may be full"),
        ),
        _ => (Retryability::Retryable, None),
    }
}

fn handshake_fix(error: Option<&(dyn StdError + 'static)>) -> &'static str {
    let error = error.and_then(|error| error.downcast_ref());
    let hint = error.and_then(Hint::from_handshake);
    hint.map_or("check `tls`", Hint::text)
}

impl From<KrafkaError> for Error {
    fn from(error: KrafkaError) -> Self {
        Self(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        match self.fix() {
            Some(fix) => write!(f, "; {fix}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}
