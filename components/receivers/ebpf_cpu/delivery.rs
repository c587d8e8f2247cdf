//! Hands batches on, one after the other, and offers again those that are not taken for now.

use std::time::Duration;

use profcol_component::{Batch, Output, Refusal, Stop};
use profcol_profile::Profiles;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::metrics::Metrics;

/// How long to wait before a refused batch is offered again, unless the refusal says so.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often a batch is offered once a stop is asked for, when nobody may wait for long.
const LAST_TRIES: u32 = 3;

/// Where new batches go in.
pub struct Waiting {
    batches: Sender<Profiles>,
    metrics: Metrics,
}

pub struct Delivery {
    batches: Receiver<Profiles>,
    output: Output,
    metrics: Metrics,
    stop: Stop,
}

/// At most `limit` batches wait.
pub fn queue(output: Output, limit: usize, metrics: Metrics, stop: Stop) -> (Waiting, Delivery) {
    let (into, batches) = mpsc::channel(limit);
    let waiting = Waiting {
        batches: into,
        metrics: metrics.clone(),
    };
    let delivery = Delivery {
        batches,
        output,
        metrics,
        stop,
    };
    (waiting, delivery)
}

impl Waiting {
    pub fn add(&self, profiles: Profiles) {
        if profiles.is_empty() {
            return;
        }
        if let Err(full) = self.batches.try_send(profiles) {
            let samples = full.into_inner().sample_count();
            self.metrics.dropped.inc_by(samples as u64);
            tracing::warn!(
                samples,
                "Dropping samples: too many batches wait for the pipelines to take them."
            );
        }
    }
}

impl Delivery {
    /// Works until no batch comes any more.
    pub async fn run(mut self) {
        while let Some(profiles) = self.batches.recv().await {
            self.deliver(&profiles).await;
        }
    }

    /// Offers a batch until it is taken or refused for ever.
    async fn deliver(&self, profiles: &Profiles) {
        let mut wait = FIRST_WAIT;
        let mut last_tries = LAST_TRIES;
        loop {
            // A clone shares its tables.
            let refusal = match self.output.push(Batch::new(profiles.clone())).await {
                Ok(()) => return,
                Err(refusal) => refusal,
            };
            let Refusal::Retry { after, .. } = &refusal else {
                return self.drop_batch(profiles, &refusal);
            };
            if self.stop.is_cancelled() {
                last_tries -= 1;
                if last_tries == 0 {
                    return self.drop_batch(profiles, &refusal);
                }
                tokio::time::sleep(FIRST_WAIT).await;
                continue;
            }
            tracing::debug!(error = %refusal, "A batch was refused. Offering it again.");
            tokio::select! {
                () = tokio::time::sleep(after.unwrap_or(wait)) => {}
                () = self.stop.cancelled() => {}
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn drop_batch(&self, profiles: &Profiles, refusal: &Refusal) {
        let samples = profiles.sample_count();
        self.metrics.dropped.inc_by(samples as u64);
        tracing::error!(samples, error = %refusal, "Dropping samples that the pipelines did not take.");
    }
}
