//! Accounts for the samples sent to an exporter.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

use profcol_component::{Batch, Histogram, IntCounter, Meter};
use profcol_storage::Counts;

use crate::telemetry::DURATIONS;

/// Counts each accepted sample exactly once: as delivered, or as dropped by reason.
pub(super) struct Account {
    sent: IntCounter,
    send_failed: IntCounter,
    enqueue_failed: IntCounter,
    pub(super) duration: Histogram,
    delivered: IntCounter,
    dropped: [IntCounter; DropReason::ALL.len()],
    /// Source samples accepted into the queue but not yet delivered or dropped.
    outstanding: AtomicU64,
    /// Part of `outstanding` that an earlier run accepted.
    recovered: AtomicU64,
}

/// Number of samples in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// As counted by OTLP.
    pub samples: u64,
    /// As counted by [their source](Batch::source_samples).
    pub source_samples: u64,
}

/// Why an exporter's samples were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The sending queue was full, and the source cannot wait.
    QueueFull,
    /// A batch larger than the queue, or a sample larger than the destination accepts.
    TooLarge,
    /// The destination refused the batch permanently.
    Rejected,
    /// The destination accepted the batch without these samples.
    PartialSuccess,
    /// `retry_on_failure` allows no further attempt.
    RetriesExhausted,
    /// Not delivered before the shutdown deadline.
    Shutdown,
    /// Not delivered before the deadline of a reload that replaced or removed the exporter.
    Reload,
    /// Evicted from a stored queue to make room for newer batches.
    Evicted,
    /// Corrupt or missing on disk in a stored queue.
    Corrupt,
    /// The stored queue failed to write them, and the source cannot wait.
    StorageFailed,
    /// Their bytes passed validation but failed to decode, due to a bug in profcol.
    DecodeFailed,
}

/// Outcomes of one exporter's samples, as their sources count them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExporterBalance {
    pub exporter: String,
    pub delivered: u64,
    /// By reason, without zero counts.
    pub dropped: Vec<(&'static str, u64)>,
    /// Found on disk at startup, from an earlier run.
    pub recovered: u64,
    /// Left on disk for the next run.
    pub stored: u64,
}

/// Outcomes of one exporter's samples so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExporterProgress {
    pub exporter: String,
    pub delivered: u64,
    pub waiting: u64,
    pub dropped: u64,
}

// === impl DropReason ===

impl DropReason {
    const ALL: [Self; 11] = [
        Self::QueueFull,
        Self::TooLarge,
        Self::Rejected,
        Self::PartialSuccess,
        Self::RetriesExhausted,
        Self::Shutdown,
        Self::Reload,
        Self::Evicted,
        Self::Corrupt,
        Self::StorageFailed,
        Self::DecodeFailed,
    ];

    /// The metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::TooLarge => "too_large",
            Self::Rejected => "rejected",
            Self::PartialSuccess => "partial_success",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Shutdown => "shutdown",
            Self::Reload => "reload",
            Self::Evicted => "evicted",
            Self::Corrupt => "corrupt",
            Self::StorageFailed => "storage_failed",
            Self::DecodeFailed => "decode_failed",
        }
    }
}

// === impl Size ===

impl Size {
    pub(super) fn of(batch: &Batch) -> Self {
        Self {
            samples: batch.profiles.sample_count() as u64,
            source_samples: batch.source_samples(),
        }
    }

    pub(super) fn stored(counts: &Counts) -> Self {
        Self {
            samples: counts.samples,
            source_samples: counts.source_samples,
        }
    }

    /// Those that an exporter could not get, of a batch as it read it.
    pub(super) fn lost(exported: &Batch) -> Self {
        let lost = exported.profiles.lost_samples() as u64;
        Self {
            samples: lost,
            source_samples: lost,
        }
    }

    /// The samples of `profiles` of its profiles. Backends report how many profiles they rejected but not which, so
    /// this is an estimate, rounded up, unless all were rejected.
    pub(super) fn share(self, profiles: u64, all: usize) -> Self {
        let all = all.max(1) as u64;
        let part = |samples: u64| match profiles < all {
            true => samples.saturating_mul(profiles).div_ceil(all),
            false => samples,
        };
        Self {
            samples: part(self.samples),
            source_samples: part(self.source_samples),
        }
    }
}

impl Sub for Size {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            samples: self.samples.saturating_sub(other.samples),
            source_samples: self.source_samples.saturating_sub(other.source_samples),
        }
    }
}

// === impl Account ===

impl Account {
    pub(super) fn new(exporter: &str, meter: &Meter) -> Self {
        let labels: &[(&str, &str)] = &[("exporter", exporter)];
        let counter = |name, help| meter.counter(name, help, labels);
        Self {
            sent: counter(
                "otelcol_exporter_sent_profile_samples",
                "Samples delivered to the destination.",
            ),
            send_failed: counter(
                "otelcol_exporter_send_failed_profile_samples",
                "Samples that could not be delivered.",
            ),
            enqueue_failed: counter(
                "otelcol_exporter_enqueue_failed_profile_samples",
                "Samples refused by the sending queue.",
            ),
            duration: meter.histogram(
                "otelcol_exporter_send_duration_seconds",
                "Duration of an export attempt.",
                DURATIONS,
                labels,
            ),
            delivered: counter(
                "profcol_exporter_delivered_samples",
                "Samples delivered to the destination, as counted by their source.",
            ),
            dropped: DropReason::ALL.map(|reason| {
                meter.counter(
                    "profcol_exporter_dropped_samples",
                    "Samples dropped by this exporter, as counted by their source, by reason.",
                    &[("exporter", exporter), ("reason", reason.name())],
                )
            }),
            outstanding: AtomicU64::new(0),
            recovered: AtomicU64::new(0),
        }
    }

    /// The queue accepted a batch.
    pub(super) fn accepted(&self, size: Size) {
        self.outstanding
            .fetch_add(size.source_samples, Ordering::Relaxed);
    }

    /// The queue holds batches of an earlier run.
    pub(super) fn recovered(&self, size: Size) {
        self.recovered
            .fetch_add(size.source_samples, Ordering::Relaxed);
        self.accepted(size);
    }

    /// The queue refused a batch.
    pub(super) fn not_enqueued(&self, size: Size) {
        self.enqueue_failed.inc_by(size.samples);
    }

    pub(super) fn delivered(&self, size: Size, was_queued: bool) {
        self.sent.inc_by(size.samples);
        self.delivered.inc_by(size.source_samples);
        self.settled(size, was_queued);
    }

    /// An export failed permanently.
    pub(super) fn failed(&self, size: Size, was_queued: bool) {
        self.send_failed.inc_by(size.samples);
        self.settled(size, was_queued);
    }

    pub(super) fn dropped(&self, size: Size, reason: DropReason) {
        self.dropped_by(reason).inc_by(size.source_samples);
    }

    /// At the end: drops samples without an outcome.
    pub(super) fn write_off(&self, reason: DropReason) -> u64 {
        let undelivered = self.outstanding.swap(0, Ordering::Relaxed);
        self.send_failed.inc_by(undelivered);
        self.dropped_by(reason).inc_by(undelivered);
        undelivered
    }

    /// At the end: samples without an outcome stay on disk.
    pub(super) fn leave_stored(&self) -> u64 {
        self.outstanding.swap(0, Ordering::Relaxed)
    }

    pub(super) fn balance(&self, exporter: &str, stored: u64) -> ExporterBalance {
        let reasons = DropReason::ALL.iter().zip(&self.dropped);
        let dropped = reasons.map(|(reason, counter)| (reason.name(), counter.get()));
        ExporterBalance {
            exporter: exporter.to_owned(),
            delivered: self.delivered.get(),
            dropped: dropped.filter(|&(_, samples)| samples > 0).collect(),
            recovered: self.recovered.load(Ordering::Relaxed),
            stored,
        }
    }

    pub(super) fn progress(&self, exporter: &str) -> ExporterProgress {
        ExporterProgress {
            exporter: exporter.to_owned(),
            delivered: self.delivered.get(),
            waiting: self.outstanding.load(Ordering::Relaxed),
            dropped: self.dropped.iter().map(IntCounter::get).sum(),
        }
    }

    fn settled(&self, size: Size, was_queued: bool) {
        if was_queued {
            self.outstanding
                .fetch_sub(size.source_samples, Ordering::Relaxed);
        }
    }

    fn dropped_by(&self, reason: DropReason) -> &IntCounter {
        &self.dropped[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let account = Account::new("test", &Meter::default());
        for (position, reason) in DropReason::ALL.into_iter().enumerate() {
            let size = Size {
                samples: 1,
                source_samples: position as u64 + 1,
            };
            account.dropped(size, reason);
        }
        let dropped = account.balance("test", 0).dropped;
        assert_eq!(dropped[0], ("queue_full", 1));
        assert_eq!(dropped[5], ("shutdown", 6));
    }

    #[test]
    fn rejected_profiles_count_their_share_of_the_samples() {
        let size = Size {
            samples: 10,
            source_samples: 100,
        };
        let share = |profiles, all| size.share(profiles, all).source_samples;
        assert_eq!(share(0, 4), 0);
        assert_eq!(share(1, 3), 34);
        assert_eq!(share(3, 3), 100);
        // A backend may count samples instead of profiles.
        assert_eq!(share(u64::MAX, 3), 100);
    }
}
