//! Delivers records, and moves the positions after that.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_admission::Reservation;
use profcol_component::{Batch, Finalizers, IntCounter, Outcome, Output, Refusal, RunError, Stop};
use profcol_profile::Received;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout_at;

use super::config::OtlpFileConfig;
use super::files::{Files, READ_BATCH_BYTES, Record};
use super::positions::{Positions, Span};
use crate::shared::{Memory, WhenUndelivered, offer_within};

/// Maximum delay between retries, unless the refusal has one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Delay before a record that the exporters gave up on is pushed again, and the longest.
const REPEAT_DELAY: Duration = Duration::from_secs(5);
const MAX_REPEAT_DELAY: Duration = Duration::from_secs(30);

/// How often to ask for memory to read on.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// How long records in flight may take after a stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Records in flight, each with the task that waits for its outcome.
#[derive(Default)]
pub(super) struct InFlight(JoinSet<()>);

/// Passes records on, until each is delivered.
pub(super) struct Delivery {
    output: Output,
    stop: Stop,
    memory: Memory,
    max_in_flight: usize,
    leaves_undelivered: bool,
    counters: Counters,
    positions: Arc<Mutex<Positions>>,
    totals: Mutex<Totals>,
}

#[derive(Clone)]
pub(super) struct Counters {
    pub(super) damaged: IntCounter,
    pub(super) undelivered: IntCounter,
    pub(super) repeated: IntCounter,
}

/// What was read, and the outcomes.
#[derive(Clone, Default)]
pub(super) struct Totals {
    records: u64,
    damaged_records: u64,
    samples: u64,
    /// Samples that failed validation.
    invalid_samples: u64,
    delivered_samples: u64,
    /// Samples permanently refused by a destination.
    refused_samples: u64,
    /// Records that exporters gave up on and that are not pushed again.
    left_records: u64,
}

/// A record without an outcome.
struct Pending {
    path: PathBuf,
    offset: u64,
    span: Span,
    samples: u64,
    batch: Batch,
}

// === impl Delivery ===

impl Delivery {
    pub(super) fn new(
        output: Output,
        stop: Stop,
        memory: Memory,
        config: &OtlpFileConfig,
        counters: Counters,
        positions: Arc<Mutex<Positions>>,
    ) -> Self {
        Self {
            output,
            stop,
            memory,
            max_in_flight: config.max_in_flight.into(),
            leaves_undelivered: config.when_undelivered == WhenUndelivered::Leave,
            counters,
            positions,
            totals: Mutex::default(),
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals.lock().clone()
    }

    /// Whether to read on.
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.is_cancelled() && self.totals.lock().left_records == 0
    }

    /// Waits for the memory of a portion of records while there are records in flight, which free some.
    pub(super) async fn memory_to_read(
        &self,
        in_flight: &mut InFlight,
    ) -> Result<Option<Reservation>, RunError> {
        loop {
            in_flight.reap()?;
            let memory = self.memory.to_read(READ_BATCH_BYTES);
            if memory.is_some() || in_flight.0.is_empty() {
                return Ok(memory);
            }
            tokio::select! {
                () = tokio::time::sleep(MEMORY_INTERVAL) => {}
                () = self.stop.cancelled() => return Ok(None),
            }
        }
    }

    /// Passes on a record once there is room for it; the records of a file in order.
    pub(super) async fn process(
        self: &Arc<Self>,
        record: Record,
        in_flight: &mut InFlight,
    ) -> Result<(), RunError> {
        in_flight.reap()?;
        while in_flight.0.len() >= self.max_in_flight {
            tokio::select! {
                Some(ended) = in_flight.0.join_next() => no_panic(ended)?,
                () = self.stop.cancelled() => return Ok(()),
            }
        }
        self.positions.lock().read(&record.span);
        let span = record.span;
        let Some(pending) = self.received(record) else {
            self.positions.lock().settle(&span);
            return Ok(());
        };
        self.totals.lock().samples += pending.samples;
        match self.push(&pending).await {
            Ok(outcome) => {
                let delivery = Arc::clone(self);
                in_flight
                    .0
                    .spawn(async move { delivery.settle(pending, outcome).await });
            }
            Err(refusal) => self.refused(&pending, &refusal),
        }
        Ok(())
    }

    /// The content of a record, unless it is damaged or empty.
    fn received(&self, record: Record) -> Option<Pending> {
        let Record {
            path,
            offset,
            span,
            content,
        } = record;
        let Received { profiles, repaired } = match content {
            Ok(received) => received,
            Err(damage) => {
                self.counters.damaged.inc();
                self.totals.lock().damaged_records += 1;
                tracing::error!(path = %path.display(), offset, error = %damage, "Skipping a damaged record.");
                return None;
            }
        };
        let dropped = repaired.values().sum::<usize>() as u64;
        let mut totals = self.totals.lock();
        totals.records += 1;
        totals.invalid_samples += dropped;
        drop(totals);
        if dropped > 0 {
            self.output.count_failed(dropped);
            tracing::warn!(path = %path.display(), offset, dropped, "Dropping invalid samples.");
        }
        (!profiles.is_empty()).then(|| Pending {
            path,
            offset,
            span,
            samples: profiles.sample_count() as u64,
            batch: Batch::recorded(profiles),
        })
    }

    /// Pushes a record until it is accepted, permanently refused, or a stop is requested.
    async fn push(&self, pending: &Pending) -> Result<oneshot::Receiver<Outcome>, Refusal> {
        let (waiting, outcome) = Finalizers::watched();
        // For processors that decode the batch, until the exporters' queues have it.
        let undecoded = pending.batch.profiles.counts().undecoded_size;
        offer_within(
            || self.memory.reserve(undecoded),
            &self.output,
            &self.stop,
            &pending.batch,
            waiting,
            MAX_RETRY_DELAY,
        )
        .await?;
        Ok(outcome)
    }

    /// Waits for the outcome of a record, and pushes it again if exporters gave up on it. After a stop it may end
    /// without an outcome; then the position stays before the record.
    async fn settle(&self, pending: Pending, mut outcome: oneshot::Receiver<Outcome>) {
        let mut delay = REPEAT_DELAY;
        loop {
            match outcome.await.unwrap_or(Outcome::Lost) {
                Outcome::Delivered => {
                    self.totals.lock().delivered_samples += pending.samples;
                    return self.positions.lock().settle(&pending.span);
                }
                Outcome::Rejected => return self.refused(&pending, &"by a destination"),
                Outcome::Undelivered | Outcome::Lost => {}
            }
            if self.leaves_undelivered {
                return self.leave(&pending);
            }
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.stop.cancelled() => return,
            }
            self.counters.repeated.inc();
            delay = (delay * 2).min(MAX_REPEAT_DELAY);
            outcome = match self.push(&pending).await {
                Ok(outcome) => outcome,
                Err(refusal) => return self.refused(&pending, &refusal),
            };
        }
    }

    /// Skips a record.
    fn refused(&self, pending: &Pending, reason: &dyn Display) {
        let Pending {
            path,
            offset,
            samples,
            ..
        } = pending;
        self.counters.undelivered.inc_by(*samples);
        self.totals.lock().refused_samples += samples;
        self.positions.lock().settle(&pending.span);
        tracing::error!(path = %path.display(), offset, samples, error = %reason, "Record permanently refused.");
    }

    /// Leaves a record to the next run.
    fn leave(&self, pending: &Pending) {
        let Pending {
            path,
            offset,
            samples,
            ..
        } = pending;
        self.totals.lock().left_records += 1;
        if !self.stop.is_cancelled() {
            self.counters.undelivered.inc_by(*samples);
            tracing::error!(path = %path.display(), offset, samples, "The exporters gave up on a record.");
        }
    }

    /// Waits for the outcome of all records; after a stop, for some seconds.
    pub(super) async fn finish(&self, mut in_flight: InFlight) -> Result<(), RunError> {
        tokio::select! {
            ended = in_flight.settled() => return ended,
            () = self.stop.cancelled() => {}
        }
        let deadline = self.stop.finish_within(SHUTDOWN_GRACE);
        match timeout_at(deadline, in_flight.settled()).await {
            Ok(ended) => ended,
            Err(_) => {
                tracing::info!(
                    records = in_flight.0.len(),
                    "Records without an outcome are left to the next run."
                );
                Ok(())
            }
        }
    }
}

// === impl InFlight ===

impl InFlight {
    /// Removes records that have an outcome.
    fn reap(&mut self) -> Result<(), RunError> {
        while let Some(ended) = self.0.try_join_next() {
            no_panic(ended)?;
        }
        Ok(())
    }

    async fn settled(&mut self) -> Result<(), RunError> {
        while let Some(ended) = self.0.join_next().await {
            no_panic(ended)?;
        }
        Ok(())
    }
}

fn no_panic(ended: Result<(), JoinError>) -> Result<(), RunError> {
    ended.map_err(RunError::new)
}

// === impl Totals ===

impl Totals {
    fn undelivered_samples(&self) -> u64 {
        self.samples - self.delivered_samples - self.refused_samples
    }

    pub(super) fn log(&self, files: &Files) {
        tracing::info!(
            files = files.read_files(),
            unreadable_files = files.unreadable_files(),
            records = self.records,
            damaged_records = self.damaged_records,
            samples = self.samples,
            invalid_samples = self.invalid_samples,
            delivered_samples = self.delivered_samples,
            refused_samples = self.refused_samples,
            undelivered_samples = self.undelivered_samples(),
            "Finished reading files."
        );
    }

    pub(super) fn to_result(&self, files: &Files) -> Result<(), RunError> {
        let failures = [
            ("unreadable files", files.unreadable_files() as u64),
            ("damaged records", self.damaged_records),
            ("invalid samples", self.invalid_samples),
            ("refused samples", self.refused_samples),
            ("undelivered samples", self.undelivered_samples()),
        ];
        let failures = failures.iter().filter(|(_, count)| *count > 0);
        let failures: Vec<String> = failures
            .map(|(failure, count)| format!("{failure}: {count}"))
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        let failures = failures.join(", ");
        Err(RunError::new(format!(
            "not everything was delivered ({failures})"
        )))
    }
}
