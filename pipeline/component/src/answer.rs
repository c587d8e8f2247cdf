//! What a consumer answers to a batch.

use std::time::Duration;

use crate::Outcome;

/// Accepted, or why not.
pub type Answer = Result<(), Refusal>;

/// Why a batch was not taken, in the terms in which the sender has to act on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The same batch may be accepted later, not before `after` where that is known.
    #[error("{reason}")]
    Retry {
        reason: String,
        after: Option<Duration>,
    },
    /// The same batch will never be accepted.
    #[error("{reason}")]
    Permanent { reason: String },
    /// The batch exceeds what the other side takes in one message; smaller pieces may pass.
    #[error("{reason}")]
    TooLarge { reason: String, limit_bytes: usize },
}

/// What a backend said about a batch that it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Profiles that the backend dropped although it answered with success; never sent again.
    pub rejected_profiles: u64,
    /// The backend's words, empty where it had none.
    pub message: String,
}

impl Refusal {
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: None,
        }
    }

    pub fn retry_after(reason: impl Into<String>, after: Duration) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: Some(after),
        }
    }

    pub fn permanent(reason: impl Into<String>) -> Self {
        Self::Permanent {
            reason: reason.into(),
        }
    }

    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Retry { .. })
    }

    /// What a refused batch has come to.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Retry { .. } => Outcome::Undelivered,
            Self::Permanent { .. } | Self::TooLarge { .. } => Outcome::Rejected,
        }
    }

    /// Of two refusals of copies of one batch, the one that the sender is to act on: while any
    /// copy can still be delivered, sending again is right.
    pub fn prevailing(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Retry { after: a, .. }, Self::Retry { after: b, .. }) if b > a => other,
            (Self::Retry { .. }, _) => self,
            (_, Self::Retry { .. }) => other,
            _ => self,
        }
    }
}
