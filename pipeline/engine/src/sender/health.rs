//! Shows in an exporter's status and in the log whether its deliveries fail.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{ComponentStatus, Delivered, Reason, Refusal};
use profcol_printable::line;
use tokio::time::Instant;

use super::log_schedule::LogSchedule;

/// Longer reasons are truncated: a destination may answer with a page.
const MAX_REASON_BYTES: usize = 1000;

/// The failing destinations of one exporter.
pub(super) struct Health {
    exporter: String,
    status: ComponentStatus,
    /// Why the last attempt failed, by destination.
    failing: Mutex<BTreeMap<u64, Reason>>,
    destinations: AtomicU64,
}

/// Whether one of its destinations fails.
pub(super) struct DestinationHealth {
    exporter: Arc<Health>,
    destination: u64,
    is_failing: AtomicBool,
    outage: Mutex<Option<Outage>>,
}

/// Further reasons of one outage are not logged.
const MAX_LOGGED_REASONS: usize = 8;

/// From the first attempt that failed to the next that succeeded.
struct Outage {
    began: Instant,
    failed_attempts: u64,
    /// Why the latest attempt failed, and how that is shown.
    latest: (Reason, String),
    logged_reasons: Vec<String>,
    log_schedule: LogSchedule,
}

// === impl Health ===

impl Health {
    pub(super) fn new(exporter: &str, status: &ComponentStatus) -> Arc<Self> {
        Arc::new(Self {
            exporter: exporter.to_owned(),
            status: status.clone(),
            failing: Mutex::default(),
            destinations: AtomicU64::new(0),
        })
    }

    pub(super) fn of_destination(self: &Arc<Self>) -> DestinationHealth {
        DestinationHealth {
            exporter: Arc::clone(self),
            destination: self.destinations.fetch_add(1, Ordering::Relaxed),
            is_failing: AtomicBool::new(false),
            outage: Mutex::default(),
        }
    }

    fn show(&self, failing: &BTreeMap<u64, Reason>) {
        let reason = failing
            .first_key_value()
            .map(|(_, reason)| match failing.len() {
                1 => reason.clone(),
                all => format!("{reason}; {all} destinations fail").into(),
            });
        self.status.set_undelivered(reason);
    }
}

// === impl DestinationHealth ===

impl DestinationHealth {
    /// Notes the outcome of an attempt.
    pub(super) fn note(&self, answer: &Result<Delivered, Refusal>) {
        let refusal = match answer {
            Ok(delivered) => delivered.undelivered.first().map(|part| &part.refusal),
            Err(refusal) => Some(refusal),
        };
        match refusal {
            None => self.recovered(),
            // The pieces follow.
            Some(Refusal::TooLarge { .. }) => {}
            Some(refusal) => self.failed(refusal.reason()),
        }
    }

    /// Logs that an attempt failed and another follows: each reason once, and then seldom, as an outage may last.
    pub(super) fn log_retry(&self, reason: &Reason, interval: Duration) {
        let Some(failed_attempts) = self.failed_attempts_to_log(reason) else {
            return;
        };
        tracing::info!(
            otelcol.component.id = %self.exporter.exporter,
            otelcol.component.kind = "exporter",
            error = %reason,
            interval = %profcol_config::Duration::from(interval),
            failed_attempts,
            "Exporting failed. Will retry the request after interval."
        );
    }

    /// `None` if there is nothing new, or another attempt has succeeded in the meantime.
    fn failed_attempts_to_log(&self, reason: &Reason) -> Option<u64> {
        let mut outage = self.outage.lock();
        let outage = outage.as_mut()?;
        let (latest, text) = &outage.latest;
        let text = match latest == reason {
            true => Cow::Borrowed(text),
            false => Cow::Owned(shown(reason).1),
        };
        let is_new = outage.logged_reasons.len() < MAX_LOGGED_REASONS
            && !outage.logged_reasons.contains(&text);
        if is_new {
            outage.logged_reasons.push(text.into_owned());
        }
        (is_new || outage.log_schedule.is_due()).then_some(outage.failed_attempts)
    }

    fn failed(&self, reason: &Reason) {
        let (shown, text) = shown(reason);
        let mut failing = self.exporter.failing.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        failing.insert(self.destination, shown);
        self.exporter.show(&failing);
        let latest = (reason.clone(), text);
        let mut outage = self.outage.lock();
        match &mut *outage {
            Some(outage) => {
                outage.failed_attempts += 1;
                outage.latest = latest;
            }
            None => {
                *outage = Some(Outage {
                    began: Instant::now(),
                    failed_attempts: 1,
                    latest,
                    logged_reasons: Vec::new(),
                    log_schedule: LogSchedule::new(),
                });
            }
        }
    }

    /// An atomic load, unless it was failing.
    fn recovered(&self) {
        if !self.is_failing.load(Ordering::Relaxed) {
            return;
        }
        let mut failing = self.exporter.failing.lock();
        self.is_failing.store(false, Ordering::Relaxed);
        failing.remove(&self.destination);
        self.exporter.show(&failing);
        let outage = self.outage.lock().take();
        if let Some(outage) = outage.filter(|it| !it.logged_reasons.is_empty()) {
            tracing::info!(
                otelcol.component.id = %self.exporter.exporter,
                otelcol.component.kind = "exporter",
                failed_attempts = outage.failed_attempts,
                lasted = ?outage.began.elapsed(),
                "Exporting succeeds again."
            );
        }
    }
}

/// The destination is gone.
impl Drop for DestinationHealth {
    fn drop(&mut self) {
        self.outage.lock().take();
        self.recovered();
    }
}

/// The reason, if its text is one bounded line; and such a text.
fn shown(reason: &Reason) -> (Reason, String) {
    let text = reason.to_string();
    let printable = line(&text);
    if printable == text && text.len() <= MAX_REASON_BYTES {
        // Commands look at the error itself.
        return (reason.clone(), text);
    }
    let mut text = printable.into_owned();
    if text.len() > MAX_REASON_BYTES {
        text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
        text.push('…');
    }
    (text.clone().into(), text)
}

#[cfg(test)]
mod tests {
    use profcol_component::{Status, StatusBoard};

    use super::*;

    /// The error that the status shows.
    fn error(board: &StatusBoard) -> Option<String> {
        board.snapshot().values().find_map(|status| match status {
            Status::RecoverableError(reason) => Some(reason.to_string()),
            _ => None,
        })
    }

    #[test]
    fn the_status_shows_failing_destinations_until_they_recover_or_are_gone() {
        let board = StatusBoard::default();
        let status = board.component("exporter divided".to_owned());
        status.started();
        let health = Health::new("divided", &status);
        let [a, b, c] = [(); 3].map(|()| health.of_destination());
        let refuse = |by: &DestinationHealth, reason: &str| by.note(&Err(Refusal::retry(reason)));
        refuse(&b, "b is away");
        refuse(&b, "b is full");
        a.note(&Ok(Delivered::default()));
        assert_eq!(error(&board).as_deref(), Some("b is full"));
        refuse(&c, "c is away");
        c.note(&Err(Refusal::TooLarge {
            reason: "4 MiB".into(),
            limit_bytes: 1,
        }));
        let both = Some("b is full; 2 destinations fail");
        assert_eq!(error(&board).as_deref(), both);
        b.note(&Ok(Delivered::default()));
        assert_eq!(error(&board).as_deref(), Some("c is away"));
        drop(c);
        assert_eq!(error(&board), None);
    }

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let short = Reason::new(std::io::Error::other("no route"));
        assert!(shown(&short).0.downcast_ref::<std::io::Error>().is_some());
        let (hostile, text) = shown(&"a\nb\u{202e}".into());
        assert_eq!(text, r"a\nb\u{202e}");
        assert_eq!(hostile.to_string(), text);
        let longest = format!("\n{}", "a".repeat(MAX_REASON_BYTES - r"\n".len()));
        let longest = shown(&longest.into()).1;
        assert_eq!(longest.len(), MAX_REASON_BYTES);
        let long = shown(&"ä".repeat(1 << 20).into()).1;
        assert_eq!(long.len(), MAX_REASON_BYTES + '…'.len_utf8());
    }

    #[derive(Debug, Default)]
    struct CountsFormatting(Arc<AtomicU64>);

    impl std::error::Error for CountsFormatting {}

    impl std::fmt::Display for CountsFormatting {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fetch_add(1, Ordering::Relaxed);
            f.write_str("no route")
        }
    }

    /// A destination may be asked thousands of times.
    #[test]
    fn the_reason_of_an_attempt_is_formatted_once() {
        let board = StatusBoard::default();
        let health = Health::new("away", &board.component("exporter away".to_owned()));
        let destination = health.of_destination();
        let formatted = Arc::new(AtomicU64::new(0));
        for attempt in 1..=3 {
            let reason = Reason::new(CountsFormatting(Arc::clone(&formatted)));
            destination.note(&Err(Refusal::retry(reason.clone())));
            let logged = destination.failed_attempts_to_log(&reason);
            assert_eq!(logged.is_some(), attempt == 1);
            assert_eq!(formatted.load(Ordering::Relaxed), attempt);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_at_its_begin_and_then_seldom() {
        let board = StatusBoard::default();
        let health = Health::new("away", &board.component("exporter away".to_owned()));
        let destination = health.of_destination();
        let fail = |reason: &str| {
            destination.note(&Err(Refusal::retry(reason)));
            destination.failed_attempts_to_log(&reason.into())
        };
        let mut logged = Vec::new();
        for second in 0..600 {
            let reason = match second {
                300.. => "certificate expired",
                _ => "connection refused",
            };
            logged.extend(fail(reason));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [1, 61, 181, 301, 421]);
        let others: Vec<_> = (0..100).filter_map(|it| fail(&it.to_string())).collect();
        assert_eq!(others.len(), MAX_LOGGED_REASONS - 2);
        destination.note(&Ok(Delivered::default()));
        assert_eq!(destination.failed_attempts_to_log(&"late".into()), None);
        assert_eq!(fail("connection refused"), Some(1));
    }
}
