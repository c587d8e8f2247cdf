//! Drops batches that crash the server.
//!
//! Some records crash Parca's server, and retries of such a batch would crash it repeatedly. A batch during which a
//! connection was lost is retried alone. If connections are lost again, although the server answers
//! other calls in between, the batch is dropped. If the server answers nothing, it is down, and no batch is to blame.

use std::hash::{DefaultHasher, Hasher};

use parking_lot::Mutex;
use profcol_net::grpc::Code;
use tokio::sync::RwLock;

use super::write_stream::SendError;

/// Maximum number of connections lost while a batch is sent alone.
const MAX_LOST: u32 = 3;

/// Higher than the number of concurrent exports.
const MAX_SUSPECTS: usize = 256;

#[derive(Default)]
pub struct PoisonDetector {
    /// Held while sending, exclusively by a suspect.
    send_permit: RwLock<()>,
    suspects: Mutex<Vec<Suspect>>,
}

/// A batch during which a connection was lost.
struct Suspect {
    fingerprint: u64,
    /// Connections lost while it was sent alone.
    lost: u32,
    /// Whether the server has answered a call since the last one was lost.
    is_server_alive: bool,
}

impl PoisonDetector {
    /// Sends the batch with this first message, alone if it is a suspect.
    pub async fn send(
        &self,
        message: &[u8],
        sending: impl Future<Output = Result<(), SendError>>,
    ) -> Result<(), SendError> {
        let fingerprint = fingerprint(message);
        let is_suspect = (self.suspects.lock().iter()).any(|it| it.fingerprint == fingerprint);
        let sent = if is_suspect {
            let _alone = self.send_permit.write().await;
            sending.await
        } else {
            let _shared = self.send_permit.read().await;
            sending.await
        };
        match &sent {
            Ok(()) => self.answered(fingerprint, is_suspect),
            Err(SendError::Refused { status, .. }) if status.is_connection_lost => {
                if self.connection_lost(fingerprint, is_suspect) {
                    let status = status.clone();
                    return Err(SendError::Poisoned { status });
                }
            }
            Err(SendError::Refused { status, .. }) if is_of_server(status.code) => {
                self.answered(fingerprint, is_suspect);
            }
            Err(_) => {}
        }
        sent
    }

    fn answered(&self, fingerprint: u64, is_alone: bool) {
        let mut suspects = self.suspects.lock();
        if is_alone {
            suspects.retain(|suspect| suspect.fingerprint != fingerprint);
        }
        for suspect in &mut *suspects {
            suspect.is_server_alive = true;
        }
    }

    /// Whether to drop the batch.
    fn connection_lost(&self, fingerprint: u64, is_alone: bool) -> bool {
        let mut suspects = self.suspects.lock();
        let index = suspects.iter().position(|it| it.fingerprint == fingerprint);
        let mut suspect = match index {
            Some(index) => suspects.remove(index),
            None => Suspect {
                fingerprint,
                lost: 0,
                is_server_alive: false,
            },
        };
        if is_alone && suspect.is_server_alive {
            suspect.lost += 1;
            suspect.is_server_alive = false;
        }
        let is_poison = suspect.lost >= MAX_LOST;
        if !is_poison {
            if suspects.len() == MAX_SUSPECTS {
                suspects.remove(0);
            }
            suspects.push(suspect);
        }
        is_poison
    }
}

/// Whether the status comes from the server itself, not from a proxy or a failed connection.
fn is_of_server(code: Code) -> bool {
    !matches!(
        code,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
    )
}

fn fingerprint(message: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(message);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use profcol_net::grpc::Status;

    use super::*;

    async fn answer(detector: &PoisonDetector, message: &[u8]) {
        detector.send(message, async { Ok(()) }).await.unwrap();
    }

    /// Sends a batch and loses the connection: returns whether it is sent alone, and whether it is dropped.
    async fn lose(detector: &PoisonDetector, message: &[u8]) -> (bool, bool) {
        let mut is_alone = false;
        let sent = detector.send(message, async {
            is_alone = detector.send_permit.try_read().is_err();
            let mut status = Status::new(Code::Unavailable, "transport: broken pipe");
            status.is_connection_lost = true;
            Err(SendError::Refused { status, bytes: 1 })
        });
        let sent = sent.await;
        (is_alone, matches!(sent, Err(SendError::Poisoned { .. })))
    }

    #[tokio::test]
    async fn drops_a_batch_if_the_server_answers_other_calls() {
        let detector = PoisonDetector::default();
        for expected in [
            (false, false),
            (true, false),
            (true, false),
            (true, true),
            // Its record is removed.
            (false, false),
        ] {
            answer(&detector, b"other").await;
            assert_eq!(lose(&detector, b"batch").await, expected);
        }
    }

    #[tokio::test]
    async fn drops_nothing_while_the_server_is_down() {
        let detector = PoisonDetector::default();
        for round in 0..10 {
            assert_eq!(lose(&detector, b"batch").await, (round > 0, false));
        }
        answer(&detector, b"batch").await;
        assert_eq!(lose(&detector, b"batch").await, (false, false));
    }

    #[tokio::test]
    async fn a_refusal_is_an_answer_and_a_failed_connection_is_not() {
        for (code, is_answer) in [
            (Code::InvalidArgument, true),
            (Code::Unavailable, false),
            (Code::DeadlineExceeded, false),
        ] {
            let detector = PoisonDetector::default();
            for round in 0..4 {
                let given_up = is_answer && round == 3;
                assert_eq!(
                    lose(&detector, b"batch").await,
                    (round > 0, given_up),
                    "{code}"
                );
                let status = Status::new(code, "no");
                let refused = Err(SendError::Refused { status, bytes: 1 });
                let sent = detector.send(b"other", async { refused }).await;
                assert!(matches!(sent, Err(SendError::Refused { .. })));
            }
        }
    }

    #[tokio::test]
    async fn the_number_of_suspects_is_bounded() {
        let detector = PoisonDetector::default();
        for number in 0..=MAX_SUSPECTS {
            let lost = lose(&detector, &number.to_be_bytes()).await;
            assert_eq!(lost, (false, false));
        }
        assert_eq!(detector.suspects.lock().len(), MAX_SUSPECTS);
        let first = lose(&detector, &0_usize.to_be_bytes()).await;
        assert_eq!(first, (false, false), "evicted");
    }
}
