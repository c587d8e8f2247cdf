//! Detects batches that crash the server.
//!
//! Some records crash Parca's server, and retries of such a batch would crash it repeatedly.
//! Batches in flight when a connection breaks are retried without concurrent calls. If that breaks
//! the connection again, although the server answers other calls in between, the batch is dropped.
//! If the server answers nothing, it is down, and no batch is to blame.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use profcol_net::grpc::{Code, Status};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Broken connections after which an exclusively sent batch is dropped.
const MAX_BROKEN_CONNECTIONS: u32 = 3;

/// More than the number of concurrent exports.
const MAX_SUSPECTS: usize = 256;

#[derive(Default)]
pub struct PoisonDetector {
    /// Held while sending.
    others: RwLock<()>,
    /// Calls that the server has answered.
    answers: AtomicU64,
    known: Mutex<VecDeque<SuspectBatch>>,
}

struct SuspectBatch {
    fingerprint: u64,
    /// Connections that broke while it was sent exclusively.
    ends: u32,
    /// Number of answered calls when the last connection broke.
    answers: u64,
}

/// Permission to send a batch, shared or exclusive.
pub enum SendPermit<'a> {
    Shared { _others: RwLockReadGuard<'a, ()> },
    Exclusive { _others: RwLockWriteGuard<'a, ()> },
}

impl SendPermit<'_> {
    fn is_exclusive(&self) -> bool {
        matches!(self, Self::Exclusive { .. })
    }
}

impl PoisonDetector {
    /// Waits until the batch with this first message may be sent.
    pub async fn permit(&self, message: &[u8]) -> SendPermit<'_> {
        let is_suspect = {
            let known = self.known();
            !known.is_empty() && position(&known, fingerprint(message)).is_some()
        };
        if is_suspect {
            let _others = self.others.write().await;
            return SendPermit::Exclusive { _others };
        }
        let _others = self.others.read().await;
        SendPermit::Shared { _others }
    }

    /// Records that the connection broke. Returns whether to drop the batch.
    pub fn connection_broke(&self, permit: &SendPermit<'_>, message: &[u8]) -> bool {
        let fingerprint = fingerprint(message);
        let answers = self.answers.load(Ordering::Relaxed);
        let mut known = self.known();
        let Some(place) = position(&known, fingerprint) else {
            if known.len() == MAX_SUSPECTS {
                known.pop_front();
            }
            known.push_back(SuspectBatch {
                fingerprint,
                ends: 0,
                answers,
            });
            return false;
        };
        let Some(suspect) = known.get_mut(place) else {
            return false;
        };
        if permit.is_exclusive() && suspect.answers < answers {
            suspect.ends += 1;
            suspect.answers = answers;
        }
        let is_guilty = suspect.ends >= MAX_BROKEN_CONNECTIONS;
        if is_guilty {
            known.remove(place);
        }
        is_guilty
    }

    /// Records a response of the server.
    pub fn answered(&self, permit: &SendPermit<'_>, message: &[u8]) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if permit.is_exclusive() {
            let mut known = self.known();
            let place = position(&known, fingerprint(message));
            place.map(|place| known.remove(place));
        }
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<SuspectBatch>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the connection broke after the server may have received the call.
pub fn is_broken_connection(status: &Status) -> bool {
    const WORDS: [&str; 2] = ["transport: ", "server closed the stream"];
    status.code == Code::Unavailable && WORDS.iter().any(|words| status.message.starts_with(words))
}

/// Whether the status was returned by the server.
pub fn is_server_response(status: &Status) -> bool {
    !matches!(
        status.code,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
    )
}

fn position(known: &VecDeque<SuspectBatch>, fingerprint: u64) -> Option<usize> {
    known
        .iter()
        .position(|suspect| suspect.fingerprint == fingerprint)
}

fn fingerprint(message: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(message);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a batch under which the connection ends, after others were answered or not.
    async fn end(poison_detector: &PoisonDetector, is_answering: bool) -> (bool, bool) {
        if is_answering {
            let permit = poison_detector.permit(b"other").await;
            poison_detector.answered(&permit, b"other");
        }
        let permit = poison_detector.permit(b"batch").await;
        let is_given_up = poison_detector.connection_broke(&permit, b"batch");
        (permit.is_exclusive(), is_given_up)
    }

    #[tokio::test]
    async fn gives_up_what_the_server_answers_others_beside() {
        let poison_detector = PoisonDetector::default();
        assert_eq!(end(&poison_detector, true).await, (false, false));
        assert_eq!(end(&poison_detector, true).await, (true, false));
        assert_eq!(end(&poison_detector, true).await, (true, false));
        assert_eq!(end(&poison_detector, true).await, (true, true));
        // It is forgotten.
        assert_eq!(end(&poison_detector, true).await, (false, false));
    }

    #[tokio::test]
    async fn blames_nothing_while_the_server_is_away() {
        let poison_detector = PoisonDetector::default();
        for round in 0..10 {
            assert_eq!(end(&poison_detector, false).await, (round > 0, false));
        }
        let permit = poison_detector.permit(b"batch").await;
        poison_detector.answered(&permit, b"batch");
        drop(permit);
        assert!(!poison_detector.permit(b"batch").await.is_exclusive());
    }

    #[tokio::test]
    async fn remembers_only_so_many() {
        let poison_detector = PoisonDetector::default();
        for number in 0..=MAX_SUSPECTS {
            let message = number.to_be_bytes();
            let permit = poison_detector.permit(&message).await;
            assert!(!poison_detector.connection_broke(&permit, &message));
        }
        assert_eq!(poison_detector.known().len(), MAX_SUSPECTS);
        assert!(
            !poison_detector
                .permit(&0_usize.to_be_bytes())
                .await
                .is_exclusive()
        );
    }
}
