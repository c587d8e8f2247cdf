//! Reports why uploading fails while it runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profcol_component::{Status, StatusBoard};

use super::progress::{Progress, print_line};

/// Repeats the same reason at most this often.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of distinct reasons per interval.
const MAX_REASONS: usize = 16;
/// Grace period before an unresponsive server is reported.
const QUIET_PERIOD: Duration = Duration::from_secs(3);
/// How often to check whether a reason persists.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Translates advice on configuration options to command-line flags.
const OPTIONS: &[(&str, &str)] = &[
    ("set `tls::insecure: true`", "use grpc:// or --insecure"),
    ("set `tls::ca_file` to", "pass it with --ca-file"),
    (
        ", or set `tls::server_name_override`",
        ", or trust any certificate with --insecure-skip-verify",
    ),
];

pub struct Reasons {
    address: String,
    reported: Mutex<HashMap<String, Instant>>,
}

impl Reasons {
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            reported: Mutex::default(),
        }
    }

    pub fn report(&self, reason: &str) {
        if self.is_due(reason, Instant::now()) {
            print_line(&format!("Upload failing: {}", on_command_line(reason)));
        }
    }

    /// Reports an unresponsive server, and repeats lasting reasons.
    pub async fn repeat(&self, board: &StatusBoard, progress: &Progress) -> Infallible {
        tokio::time::sleep(QUIET_PERIOD).await;
        if !progress.has_begun() && self.is_silent() {
            print_line(&format!(
                "Upload has not started: no response from {} for {} seconds; check the address and firewalls",
                self.address,
                QUIET_PERIOD.as_secs()
            ));
        }
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            for status in board.snapshot().values() {
                if let Status::RecoverableError(reason) = status {
                    self.report(reason);
                }
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.reported.lock().is_empty()
    }

    fn is_due(&self, reason: &str, now: Instant) -> bool {
        let mut reported = self.reported.lock();
        reported.retain(|_, when| now.saturating_duration_since(*when) < REPEAT_INTERVAL);
        let is_due = !reported.contains_key(reason) && reported.len() < MAX_REASONS;
        if is_due {
            reported.insert(reason.to_owned(), now);
        }
        is_due
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
    fn a_reason_is_repeated_after_a_minute_and_a_new_one_reported_at_once() {
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
    fn distinct_reasons_are_bounded() {
        let reasons = Reasons::new("parca:7070");
        let began = Instant::now();
        let due = (0..1000).filter(|number| reasons.is_due(&number.to_string(), began));
        assert_eq!(due.count(), MAX_REASONS);
        assert!(reasons.is_due("later", began + REPEAT_INTERVAL));
    }
}
