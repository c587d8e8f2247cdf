//! Why nothing is uploaded for now, told while it runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profcol_component::{Status, StatusBoard};

use super::progress::{Progress, say_line};

/// A reason is told once in that long.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// More different reasons are not told in that time.
const MAX_REASONS: usize = 16;
/// How long a server may say nothing at first before that is told.
const QUIET_PERIOD: Duration = Duration::from_secs(3);
/// How often it is looked whether a reason still holds.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Options of a configuration that a reason advises to set, and what they are on the command line.
const OPTIONS: &[(&str, &str)] = &[
    ("set `tls::insecure: true`", "use grpc:// or --insecure"),
    ("set `tls::ca_file` to", "give by --ca-file"),
    (
        ", or set `tls::server_name_override`",
        ", or trust any by --insecure-skip-verify",
    ),
];

pub struct Reasons {
    address: String,
    told: Mutex<HashMap<String, Instant>>,
}

impl Reasons {
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            told: Mutex::default(),
        }
    }

    pub fn tell(&self, reason: &str) {
        if self.is_due(reason, Instant::now()) {
            say_line(&format!("Uploading fails: {}", on_command_line(reason)));
        }
    }

    /// Tells of a server that says nothing, and again of reasons that last.
    pub async fn repeat(&self, board: &StatusBoard, progress: &Progress) -> Infallible {
        tokio::time::sleep(QUIET_PERIOD).await;
        if !progress.has_begun() && self.is_unsaid() {
            say_line(&format!(
                "Uploading has not begun: {} has not answered for {} seconds; check the address, and firewalls on the way",
                self.address,
                QUIET_PERIOD.as_secs()
            ));
        }
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            for status in board.snapshot().values() {
                if let Status::RecoverableError(reason) = status {
                    self.tell(reason);
                }
            }
        }
    }

    fn is_unsaid(&self) -> bool {
        self.told().is_empty()
    }

    fn is_due(&self, reason: &str, now: Instant) -> bool {
        let mut told = self.told();
        told.retain(|_, when| now.saturating_duration_since(*when) < REPEAT_INTERVAL);
        let is_due = !told.contains_key(reason) && told.len() < MAX_REASONS;
        if is_due {
            told.insert(reason.to_owned(), now);
        }
        is_due
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn on_command_line(reason: &str) -> String {
    let options = OPTIONS.iter();
    options.fold(reason.to_owned(), |reason, (option, flag)| {
        reason.replace(option, flag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_a_minute_and_another_one_at_once() {
        let reasons = Reasons::new("parca:7070");
        let began = Instant::now();
        let check = |reason, seconds, is_due| {
            let now = began + Duration::from_secs(seconds);
            assert_eq!(
                reasons.is_due(reason, now),
                is_due,
                "{reason} at {seconds} s"
            );
        };
        check("refused", 0, true);
        check("refused", 59, false);
        check("no route", 59, true);
        check("refused", 60, true);
        check("no route", 61, false);
        check("refused", 119, false);
        check("refused", 120, true);
    }

    #[test]
    fn reasons_that_are_never_the_same_are_bounded() {
        let reasons = Reasons::new("parca:7070");
        let began = Instant::now();
        let due = (0..1000).filter(|number| reasons.is_due(&number.to_string(), began));
        assert_eq!(due.count(), MAX_REASONS);
        assert!(reasons.is_due("later", began + REPEAT_INTERVAL));
    }
}
