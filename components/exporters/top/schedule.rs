//! When tables are printed: at a steady interval, independent of the arrival of batches.

use std::time::Duration;

use tokio::time::Instant;

/// Delay of the first table after the first batch: a user is waiting for it.
const FIRST_TABLE_DELAY: Duration = Duration::from_secs(1);

/// The times of the tables, relative to the first one.
pub(super) struct Schedule {
    interval: Duration,
    first: Option<Instant>,
}

impl Schedule {
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            first: None,
        }
    }

    /// The next time after `now`, if there is something to print. The first call fixes all later ones.
    pub fn next(&mut self, now: Instant) -> Instant {
        let first = *self
            .first
            .get_or_insert_with(|| now + FIRST_TABLE_DELAY.min(self.interval));
        let Some(since) = now.checked_duration_since(first) else {
            return first;
        };
        let into = since.as_nanos() % self.interval.as_nanos().max(1);
        now + self.interval.saturating_sub(nanoseconds(into))
    }
}

fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}
