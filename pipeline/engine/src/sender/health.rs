//! Shows in an exporter's status whether its deliveries fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use profcol_component::{ComponentStatus, Delivered, Reason, Refusal};
use profcol_printable::line;

/// Longer reasons are truncated: a destination may answer with a page.
const MAX_REASON_BYTES: usize = 1000;

/// The failing destinations of one exporter.
pub(super) struct Health {
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
}

// === impl Health ===

impl Health {
    pub(super) fn new(status: &ComponentStatus) -> Arc<Self> {
        Arc::new(Self {
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
            Some(refusal) => self.failed(shown(refusal.reason())),
        }
    }

    fn failed(&self, reason: Reason) {
        let mut failing = self.exporter.failing.lock();
        self.is_failing.store(true, Ordering::Relaxed);
        failing.insert(self.destination, reason);
        self.exporter.show(&failing);
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
    }
}

/// The destination is gone.
impl Drop for DestinationHealth {
    fn drop(&mut self) {
        self.recovered();
    }
}

/// The reason, or its text on one bounded line.
fn shown(reason: &Reason) -> Reason {
    let text = reason.to_string();
    let printable = line(&text);
    if printable == text && text.len() <= MAX_REASON_BYTES {
        // Commands look at the error itself.
        return reason.clone();
    }
    let mut text = printable.into_owned();
    if text.len() > MAX_REASON_BYTES {
        text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
        text.push('…');
    }
    text.into()
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
        let health = Health::new(&status);
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
        assert!(shown(&short).downcast_ref::<std::io::Error>().is_some());
        let hostile = shown(&"a\nb\u{202e}".into()).to_string();
        assert_eq!(hostile, r"a\nb\u{202e}");
        let long = shown(&"ä".repeat(1 << 20).into()).to_string();
        assert_eq!(long.len(), MAX_REASON_BYTES + '…'.len_utf8());
    }
}
