//! Delivers a file and tracks its progress.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use profcol_component::{Batch, BatchId, Finalizer, Finalizers, Outcome, Output, Stop};
use profcol_padata::Delivered;
use profcol_profile::Profiles;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::shared::offer;

/// Maximum delay between retries, unless the refusal has one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Pushes the batches of a file into the pipelines.
pub struct Delivery {
    output: Output,
    stop: Stop,
    in_flight: Arc<Semaphore>,
    max_in_flight: u32,
}

/// The outcome of a batch.
struct Report {
    number: u16,
    samples: u64,
    outcome: Outcome,
}

/// Number of batches, and of samples in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub batches: u64,
    pub samples: u64,
}

/// What was read, and the outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What was read, without what had been delivered before.
    pub read: Tally,
    pub delivered: Tally,
    /// Permanently refused by a destination.
    pub refused: Tally,
}

/// The progress of one file. A file has up to 65,535 batches, which bounds the queue of reports.
pub struct Ledger {
    /// The ID of the file. Its batches derive theirs from it, and so keep them when the file is read again.
    id: BatchId,
    reports: UnboundedReceiver<Report>,
    sender: UnboundedSender<Report>,
    /// All batches before this one are settled.
    settled: u16,
    /// Settled batches after it.
    beyond: BTreeSet<u16>,
    /// Batches permanently refused by a destination.
    refused: BTreeSet<u16>,
    /// Refused batches that are pushed once more.
    again: BTreeSet<u16>,
    /// The first batch not read yet.
    unread: u16,
    /// Totals since the last call of `take_totals`.
    totals: Totals,
    /// Batches that the exporters gave up on since the last call.
    undelivered: u64,
}

impl Ledger {
    pub fn new(settled: u16, refused: BTreeSet<u16>, offers_refused: bool) -> Self {
        let (sender, reports) = unbounded_channel();
        let again = if offers_refused {
            refused.clone()
        } else {
            BTreeSet::new()
        };
        Self {
            id: BatchId::unique(),
            reports,
            sender,
            settled,
            beyond: BTreeSet::new(),
            refused,
            again,
            unread: 0,
            totals: Totals::default(),
            undelivered: 0,
        }
    }

    /// A batch of the file.
    fn batch(&self, number: u16, profiles: Profiles) -> Batch {
        let id = self.id.within(&number.to_string());
        Batch::recorded(profiles).with_id(id).resent_as_itself()
    }

    pub fn is_settled(&self, number: u16) -> bool {
        let is_known = number < self.settled || self.beyond.contains(&number);
        is_known && !self.again.contains(&number)
    }

    /// Counts a batch that is about to be pushed; once, even if the file is read again.
    pub fn read(&mut self, number: u16, samples: u64) {
        if number >= self.unread {
            self.unread = number.saturating_add(1);
            self.totals.read.add(samples);
        }
    }

    /// The progress to store against a crash.
    pub fn progress(&self) -> Delivered {
        Delivered::Batches {
            settled: self.settled,
            refused: self.refused.clone(),
        }
    }

    pub fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    pub fn has_undelivered(&self) -> bool {
        self.undelivered > 0
    }

    /// The totals since the last call.
    pub fn take_totals(&mut self) -> Totals {
        std::mem::take(&mut self.totals)
    }

    pub fn take_undelivered(&mut self) -> u64 {
        std::mem::take(&mut self.undelivered)
    }

    /// Processes the reports since the last call. Returns true if the progress must be stored.
    pub fn update(&mut self) -> bool {
        let before = (self.settled, self.refused.len());
        while let Ok(report) = self.reports.try_recv() {
            let number = report.number;
            match report.outcome {
                Outcome::Delivered => {
                    self.totals.delivered.add(report.samples);
                    self.refused.remove(&number);
                    self.again.remove(&number);
                    self.settle(number);
                }
                Outcome::Rejected => {
                    self.totals.refused.add(report.samples);
                    self.again.remove(&number);
                    self.refuse(number);
                }
                Outcome::Undelivered | Outcome::Lost => self.undelivered += 1,
            }
        }
        (self.settled, self.refused.len()) != before
    }

    pub fn refuse(&mut self, number: u16) {
        self.refused.insert(number);
        self.settle(number);
    }

    pub fn settle(&mut self, number: u16) {
        if number < self.settled {
            return;
        }
        self.beyond.insert(number);
        while self.beyond.remove(&self.settled) {
            self.settled += 1;
        }
    }
}

impl Tally {
    fn add(&mut self, samples: u64) {
        self.batches += 1;
        self.samples += samples;
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.samples += other.samples;
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.delivered += other.delivered;
        self.refused += other.refused;
    }
}

impl Delivery {
    pub fn new(output: Output, stop: Stop, max_in_flight: usize) -> Self {
        let max_in_flight = u32::try_from(max_in_flight).unwrap_or(u32::MAX);
        Self {
            output,
            stop,
            in_flight: Arc::new(Semaphore::new(max_in_flight as usize)),
            max_in_flight,
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Counts unreadable samples.
    pub fn count_failed(&self, samples: u64) {
        self.output.count_failed(samples);
    }

    /// Pushes a batch until it is accepted, permanently refused, or a stop is requested.
    pub async fn deliver(&self, ledger: &Ledger, number: u16, profiles: Profiles) {
        let permit = tokio::select! {
            permit = Arc::clone(&self.in_flight).acquire_owned() => permit,
            () = self.stop.cancelled() => return,
        };
        let Ok(permit) = permit else {
            return;
        };
        let samples = profiles.sample_count() as u64;
        let waiting = watch(ledger.sender.clone(), number, samples, permit);
        let batch = ledger.batch(number, profiles);
        let offered = offer(&self.output, &self.stop, &batch, waiting, MAX_RETRY_DELAY).await;
        if let Err(refusal) = offered {
            tracing::error!(batch = number, error = %refusal, "Batch permanently refused.");
        }
    }

    /// Waits until every batch is delivered or given up; after a stop, for `grace` at most.
    pub async fn settle(&self, grace: Duration) {
        let mut settled = pin!(self.in_flight.acquire_many(self.max_in_flight));
        tokio::select! {
            // Fails only if closed, which never happens.
            _ = &mut settled => return,
            () = self.stop.cancelled() => {}
        }
        let _ = timeout_at(self.stop.finish_within(grace), settled).await;
    }
}

fn watch(
    reports: UnboundedSender<Report>,
    number: u16,
    samples: u64,
    permit: OwnedSemaphorePermit,
) -> Finalizers {
    let mut finalizers = Finalizers::default();
    finalizers.add(Finalizer::new(move |outcome| {
        // Fails if the receiver has ended.
        let _ = reports.send(Report {
            number,
            samples,
            outcome,
        });
        drop(permit);
    }));
    finalizers
}
