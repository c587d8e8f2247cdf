//! Delivers a file and knows how far it has come.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use profcol_component::{Finalizer, Finalizers, Outcome, Output, Source, Stop};
use profcol_profile::Profiles;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use super::folder::Delivered;
use crate::shared::offer;

/// No wait before a refused batch is offered again is longer, unless the refusal says so.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The way from a file into the pipelines.
pub struct Delivery {
    output: Output,
    stop: Stop,
    in_flight: Arc<Semaphore>,
    most_in_flight: u32,
}

/// What became of a batch.
struct Report {
    number: u16,
    samples: u64,
    outcome: Outcome,
}

/// Batches, and the samples in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub batches: u64,
    pub samples: u64,
}

/// What was read, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// What had not been delivered before.
    pub read: Tally,
    pub delivered: Tally,
    /// What a destination refused for ever.
    pub refused: Tally,
}

/// How far one file has come. A file has up to 65,535 batches, and no more reports wait.
pub struct Ledger {
    reports: UnboundedReceiver<Report>,
    sender: UnboundedSender<Report>,
    /// All before this one have been delivered, or will never be.
    settled: u16,
    /// Those behind it.
    beyond: BTreeSet<u16>,
    /// Those that a destination refused for ever.
    refused: BTreeSet<u16>,
    /// Those of them that are offered once more.
    again: BTreeSet<u16>,
    /// The first one that was not read yet.
    unread: u16,
    /// Since that was last asked.
    totals: Totals,
    /// How many the exporters gave up since that was last asked.
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

    pub fn is_settled(&self, number: u16) -> bool {
        let is_known = number < self.settled || self.beyond.contains(&number);
        is_known && !self.again.contains(&number)
    }

    /// Counts a batch that is about to be offered, once however often the file is read.
    pub fn read(&mut self, number: u16, samples: u64) {
        if number >= self.unread {
            self.unread = number.saturating_add(1);
            self.totals.read.add(samples);
        }
    }

    /// What is to be known after a crash.
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

    /// What was read and settled since this was last asked.
    pub fn take_totals(&mut self) -> Totals {
        std::mem::take(&mut self.totals)
    }

    pub fn take_undelivered(&mut self) -> u64 {
        std::mem::take(&mut self.undelivered)
    }

    /// Hears what came to its end since the last time; true where that is to be noted.
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
    pub fn new(output: Output, stop: Stop, most_in_flight: usize) -> Self {
        let most_in_flight = u32::try_from(most_in_flight).unwrap_or(u32::MAX);
        Self {
            output,
            stop,
            in_flight: Arc::new(Semaphore::new(most_in_flight as usize)),
            most_in_flight,
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Counts samples that cannot be read.
    pub fn count_failed(&self, samples: u64) {
        self.output.count_failed(samples);
    }

    /// Offers a batch until it is taken, refused for ever, or a stop is asked for.
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
        let offered = offer(
            &self.output,
            &self.stop,
            &profiles,
            Source::Recorded,
            waiting,
            MAX_RETRY_DELAY,
        )
        .await;
        if let Err(refusal) = offered {
            tracing::error!(batch = number, error = %refusal, "Batch permanently refused.");
        }
    }

    /// Waits until every batch is delivered or given up, after a stop for `grace` at most.
    pub async fn settle(&self, grace: Duration) {
        let mut settled = pin!(self.in_flight.acquire_many(self.most_in_flight));
        tokio::select! {
            // It fails only when it is closed, which it is not.
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
    let permit = std::sync::Mutex::new(Some(permit));
    let mut finalizers = Finalizers::default();
    finalizers.add(Finalizer::new(move |outcome| {
        let permit = permit
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(permit) = permit {
            // Nobody listens once the receiver has ended.
            let _ = reports.send(Report {
                number,
                samples,
                outcome,
            });
            drop(permit);
        }
    }));
    finalizers
}
