//! A consumer's answer to a batch.

use std::time::Duration;

use profcol_profile::Profiles;

use crate::{BatchId, Outcome, Reason};

/// Accepted, or the refusal.
pub type Answer = Result<(), Refusal>;

/// Why a batch was refused, and how the sender must react. Senders in other processes get the text of the reason only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The same batch may be accepted later, not before `after` if given.
    #[error("{reason}")]
    Retry {
        reason: Reason,
        after: Option<Duration>,
    },
    /// The same batch will never be accepted.
    #[error("{reason}")]
    Permanent { reason: Reason },
    /// The batch exceeds the peer's message size limit; smaller pieces may be accepted.
    #[error("{reason}")]
    TooLarge { reason: Reason, limit_bytes: usize },
}

/// A backend's response to an accepted batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Profiles the backend dropped despite responding with success; never resent.
    pub rejected_profiles: u64,
    /// The backend's message, possibly empty.
    pub message: String,
    /// Parts that were not delivered, for exporters that send a batch in several messages. Each is treated like a
    /// batch with this refusal; the others are not resent.
    pub undelivered: Vec<Undelivered>,
}

/// A part of a batch that was not delivered.
#[derive(Clone, Debug)]
pub struct Undelivered {
    /// Of the message with which it may have arrived without an answer: sent again, it keeps this id. `None` if it was not
    /// sent.
    pub id: Option<BatchId>,
    pub profiles: Profiles,
    pub refusal: Refusal,
}

impl PartialEq for Undelivered {
    fn eq(&self, other: &Self) -> bool {
        (self.id, &self.refusal) == (other.id, &other.refusal)
            && self.profiles.to_wire() == other.profiles.to_wire()
    }
}

impl Eq for Undelivered {}

impl Refusal {
    pub fn retry(reason: impl Into<Reason>) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: None,
        }
    }

    pub fn retry_after(reason: impl Into<Reason>, after: Duration) -> Self {
        Self::Retry {
            reason: reason.into(),
            after: Some(after),
        }
    }

    pub fn permanent(reason: impl Into<Reason>) -> Self {
        Self::Permanent {
            reason: reason.into(),
        }
    }

    pub fn reason(&self) -> &Reason {
        match self {
            Self::Retry { reason, .. }
            | Self::Permanent { reason }
            | Self::TooLarge { reason, .. } => reason,
        }
    }

    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Retry { .. })
    }

    /// The outcome of a refused batch.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Retry { .. } => Outcome::Undelivered,
            Self::Permanent { .. } | Self::TooLarge { .. } => Outcome::Rejected,
        }
    }

    /// Combines the refusals of two copies of a batch into the one the sender acts on: a retryable one wins, as that
    /// copy can still be delivered.
    pub fn prevailing(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Retry { after: a, .. }, Self::Retry { after: b, .. }) if b > a => other,
            (Self::Retry { .. }, _) => self,
            (_, Self::Retry { .. }) => other,
            _ => self,
        }
    }
}
