//! Pushes batches to the pipelines and retries refused ones.
//!
//! Batches are retried independently, so a refused one does not delay others. Exporters do not refuse
//! them (they are [live](profcol_component::Source::Live)), unless behind the connector `failover`; a `memory_limiter` may.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use profcol_component::{Batch, Output, Refusal, Stop};
use profcol_profile::Profiles;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::metrics::Metrics;

/// Delay before the first retry, unless the refusal has one.
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(250);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Attempts per batch during shutdown.
const SHUTDOWN_ATTEMPTS: u32 = 3;

/// The queue for new batches.
pub struct BatchQueue {
    batches: Sender<Profiles>,
    metrics: Metrics,
}

pub struct Delivery {
    batches: Receiver<Profiles>,
    output: Output,
    metrics: Metrics,
    stop: Stop,
    limit: usize,
}

/// Samples that count as dropped unless accepted.
struct Pending<'a> {
    samples: u64,
    metrics: &'a Metrics,
}

/// A queue of at most `limit` batches; a new batch replaces the oldest.
pub fn queue(output: Output, limit: usize, metrics: Metrics, stop: Stop) -> (BatchQueue, Delivery) {
    let (into, batches) = mpsc::channel(limit);
    let queue = BatchQueue {
        batches: into,
        metrics: metrics.clone(),
    };
    let delivery = Delivery {
        batches,
        output,
        metrics,
        stop,
        limit,
    };
    (queue, delivery)
}

impl BatchQueue {
    pub fn add(&self, profiles: Profiles) {
        if profiles.is_empty() {
            return;
        }
        if let Err(unsent) = self.batches.try_send(profiles) {
            let samples = unsent.into_inner().observation_count();
            self.metrics.dropped.inc_by(samples);
            tracing::warn!(
                dropped_samples = samples,
                "Dropping samples: the queue of batches is full."
            );
        }
    }
}

impl Delivery {
    /// Runs until the queue is closed.
    pub async fn run(mut self) {
        let Self {
            batches,
            output,
            metrics,
            stop,
            limit,
        } = &mut self;
        let pusher = Pusher {
            output,
            metrics,
            stop,
        };
        let mut offers = FuturesUnordered::new();
        // Keyed by sequence number: the first is the oldest.
        let mut give_up: BTreeMap<u64, Stop> = BTreeMap::new();
        let mut number = 0;
        let mut more = true;
        while more || !offers.is_empty() {
            tokio::select! {
                batch = batches.recv(), if more => {
                    let Some(profiles) = batch else {
                        more = false;
                        continue;
                    };
                    if give_up.len() >= *limit
                        && let Some((_, oldest)) = give_up.pop_first()
                    {
                        oldest.cancel();
                    }
                    number += 1;
                    let given_up = Stop::new();
                    give_up.insert(number, given_up.clone());
                    offers.push(async move {
                        pusher.offer(profiles, given_up).await;
                        number
                    });
                }
                Some(done) = offers.next() => {
                    give_up.remove(&done);
                }
            }
        }
    }
}

impl Drop for Delivery {
    /// Batches left here were cut off by the shutdown.
    fn drop(&mut self) {
        self.batches.close();
        while let Ok(profiles) = self.batches.try_recv() {
            self.metrics.dropped.inc_by(profiles.observation_count());
        }
    }
}

#[derive(Clone, Copy)]
struct Pusher<'a> {
    output: &'a Output,
    metrics: &'a Metrics,
    stop: &'a Stop,
}

impl Pusher<'_> {
    /// Pushes a batch until it is accepted, permanently refused, or dropped for newer ones.
    async fn offer(self, profiles: Profiles, given_up: Stop) {
        let pending = Pending {
            samples: profiles.observation_count(),
            metrics: self.metrics,
        };
        let batch = Batch::live(profiles);
        let mut wait = INITIAL_RETRY_DELAY;
        let mut shutdown_attempts = SHUTDOWN_ATTEMPTS;
        loop {
            // A clone shares its tables.
            let refusal = match self.output.push(batch.clone()).await {
                Ok(()) => return pending.taken(),
                Err(refusal) => refusal,
            };
            let Refusal::Retry { after, .. } = &refusal else {
                return pending.drop_for(&refusal);
            };
            if self.stop.is_cancelled() {
                shutdown_attempts -= 1;
                if shutdown_attempts == 0 {
                    return pending.drop_for(&refusal);
                }
                tokio::time::sleep(INITIAL_RETRY_DELAY).await;
                continue;
            }
            tracing::debug!(error = %refusal, "Batch refused; retrying.");
            tokio::select! {
                () = tokio::time::sleep(after.unwrap_or(wait)) => {}
                () = self.stop.cancelled() => {}
                () = given_up.cancelled() => return pending.drop_for(&refusal),
            }
            wait = (wait * 2).min(MAX_RETRY_DELAY);
        }
    }
}

impl Pending<'_> {
    fn taken(mut self) {
        self.samples = 0;
    }

    fn drop_for(self, refusal: &Refusal) {
        tracing::error!(
            dropped_samples = self.samples,
            error = %refusal,
            "Dropping samples refused by the pipelines."
        );
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.metrics.dropped.inc_by(self.samples);
    }
}
