//! Everything between a pipeline and an exporter: queue, batching, retry, timeout, counting.
//!
//! ```text
//!            full? refuse or wait
//! consume ──► queue ──► dispatcher ──► (accumulator: merge, split) ──► up to num_consumers exports
//!                                                                       each: timeout, retry, split
//! ```
//!
//! Each exporter has its own, so that a slow or dead one costs no other anything. With the queue
//! switched off the caller waits for the export and gets its answer.

mod queue;
mod retry;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, Consumer, Delivery, Exporter, Histogram, IntCounter, Meter, Outcome, Refusal,
    Stop,
};
use profcol_profile::Bound;

use self::queue::Queue;
use self::retry::Backoff;
use crate::telemetry::DURATIONS;

/// How often a batch may be split because the other side finds it too large.
///
/// Each split at least halves the limit that the backend names, so this is never reached by an
/// honest one.
const MAX_SPLITS: u32 = 16;

/// Delivers batches to one exporter.
pub(crate) struct Sender {
    exporter: Arc<dyn Exporter>,
    name: String,
    delivery: Delivery,
    queue: Option<Queue>,
    counters: Counters,
    /// Ends waits between retries.
    hurry: Stop,
    /// Samples that could have been delivered later, had there been no stop.
    given_up: AtomicU64,
}

struct Counters {
    sent: IntCounter,
    send_failed: IntCounter,
    enqueue_failed: IntCounter,
    duration: Histogram,
}

// === impl Sender ===

impl Sender {
    pub(crate) fn new(exporter: Arc<dyn Exporter>, name: &str, meter: &Meter) -> Arc<Self> {
        let delivery = exporter.delivery();
        let queue = delivery
            .queue
            .clone()
            .map(|settings| Queue::new(settings, name, meter));
        Arc::new(Self {
            exporter,
            name: name.to_owned(),
            delivery,
            queue,
            counters: Counters::new(name, meter),
            hurry: Stop::new(),
            given_up: AtomicU64::new(0),
        })
    }

    pub(crate) fn exporter(&self) -> Arc<dyn Exporter> {
        Arc::clone(&self.exporter)
    }

    /// Works off the queue until it is closed and empty; returns at once where there is none.
    pub(crate) async fn run(self: Arc<Self>) {
        if let Some(queue) = &self.queue {
            queue.dispatch(Arc::clone(&self)).await;
        }
    }

    /// Takes nothing new; what waits for a retry is tried once more and no more.
    pub(crate) fn close(&self) {
        self.hurry.cancel();
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }

    /// After [`run`](Self::run) has ended or was cut off: counts and tells what was accepted and is
    /// neither delivered nor refused for ever.
    pub(crate) fn count_lost(&self) -> u64 {
        let lost = self.queue.as_ref().map_or(0, Queue::lost_samples);
        if lost > 0 {
            self.count_loss(
                lost,
                &Refusal::retry("not delivered before the deadline of the stop"),
            );
        }
        self.given_up.load(Ordering::Relaxed)
    }

    /// Delivers one batch and tells whoever waits for it what became of it.
    pub(crate) async fn deliver(&self, mut batch: Batch) -> Answer {
        let finalizers = std::mem::take(&mut batch.finalizers);
        let answer = self.attempt(batch, 0).await;
        finalizers.settle(
            answer
                .as_ref()
                .map_or_else(Refusal::outcome, |()| Outcome::Delivered),
        );
        answer
    }

    async fn attempt(&self, batch: Batch, splits: u32) -> Answer {
        let answer = self.try_until_final(&batch).await;
        match answer {
            Err(Refusal::TooLarge { limit_bytes, .. }) if splits < MAX_SPLITS => {
                self.deliver_in_pieces(batch, limit_bytes, splits + 1).await
            }
            Ok(()) => {
                self.counters
                    .sent
                    .inc_by(batch.profiles.sample_count() as u64);
                Ok(())
            }
            Err(refusal) => {
                self.count_loss(batch.profiles.sample_count() as u64, &refusal);
                Err(refusal)
            }
        }
    }

    async fn deliver_in_pieces(&self, batch: Batch, limit_bytes: usize, splits: u32) -> Answer {
        // The limit is about the message, which need not be as long as the batch is here.
        let bytes = batch.profiles.encoded_len();
        let limit_bytes = if limit_bytes < bytes {
            limit_bytes
        } else {
            bytes / 2
        };
        let split = batch.profiles.split(Bound::Bytes(limit_bytes));
        let mut answer = Ok(());
        if let Some(oversize) = &split.oversize {
            let samples = oversize.sample_count();
            let reason =
                format!("samples that alone exceed the limit of {limit_bytes} bytes of a message");
            let refusal = Refusal::permanent(reason);
            self.count_loss(samples as u64, &refusal);
            answer = Err(refusal);
        }
        for profiles in split.pieces {
            let piece = batch.clone().with_profiles(profiles);
            let next = Box::pin(self.attempt(piece, splits)).await;
            answer = worse(answer, next);
        }
        answer
    }

    async fn try_until_final(&self, batch: &Batch) -> Answer {
        let mut backoff = Backoff::new(&self.delivery.retry);
        loop {
            let refusal = match self.try_once(batch).await {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            };
            let Refusal::Retry { reason, after } = &refusal else {
                return Err(refusal);
            };
            let Some(wait) = backoff.next(*after) else {
                return Err(Refusal::retry(format!("no more retries left: {reason}")));
            };
            if self.hurry.is_cancelled() {
                return Err(Refusal::retry(format!(
                    "interrupted due to shutdown: {reason}"
                )));
            }
            tracing::info!(
                otelcol.component.id = %self.name,
                otelcol.component.kind = "exporter",
                error = %reason,
                interval = ?wait,
                "Exporting failed. Will retry the request after interval."
            );
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.hurry.cancelled() => {}
            }
        }
    }

    async fn try_once(&self, batch: &Batch) -> Answer {
        let _timer = self.counters.duration.start_timer();
        let export = self.exporter.export(batch);
        let result = match self.delivery.timeout {
            None | Some(Duration::ZERO) => export.await,
            Some(timeout) => tokio::time::timeout(timeout, export)
                .await
                .unwrap_or_else(|_| {
                    Err(Refusal::retry(format!(
                        "no answer within the timeout of {timeout:?}"
                    )))
                }),
        };
        let delivered = result?;
        if delivered.rejected_profiles > 0 || !delivered.message.is_empty() {
            tracing::warn!(
                otelcol.component.id = %self.name,
                otelcol.component.kind = "exporter",
                message_from_backend = %delivered.message,
                dropped_profiles = delivered.rejected_profiles,
                "Partial success response"
            );
        }
        Ok(())
    }

    fn count_loss(&self, samples: u64, refusal: &Refusal) {
        self.counters.send_failed.inc_by(samples);
        if self.hurry.is_cancelled() && refusal.is_retryable() {
            self.given_up.fetch_add(samples, Ordering::Relaxed);
        }
        let verb = if self.queue.is_some() {
            "Dropping"
        } else {
            "Rejecting"
        };
        tracing::error!(
            otelcol.component.id = %self.name,
            otelcol.component.kind = "exporter",
            error = %refusal,
            dropped_samples = samples,
            "Exporting failed. {verb} data."
        );
    }
}

#[async_trait]
impl Consumer for Sender {
    async fn consume(&self, mut batch: Batch) -> Answer {
        batch.profiles.keep_for(self.delivery.passes);
        let Some(queue) = &self.queue else {
            return self.deliver(batch).await;
        };
        let samples = batch.profiles.sample_count() as u64;
        let answer = queue.push(batch).await;
        if let Err(refusal) = &answer
            && !queue.waits_for_result()
        {
            self.counters.enqueue_failed.inc_by(samples);
            tracing::warn!(
                otelcol.component.id = %self.name,
                otelcol.component.kind = "exporter",
                error = %refusal,
                refused_samples = samples,
                "The queue did not take a batch."
            );
        }
        answer
    }
}

/// Of the answers for two pieces of one batch, the one that its sender has to act on.
fn worse(a: Answer, b: Answer) -> Answer {
    match (a, b) {
        (Err(a), Err(b)) => Err(a.prevailing(b)),
        (Err(a), Ok(())) => Err(a),
        (Ok(()), b) => b,
    }
}

// === impl Counters ===

impl Counters {
    fn new(exporter: &str, meter: &Meter) -> Self {
        let labels: &[(&str, &str)] = &[("exporter", exporter)];
        Self {
            sent: meter.counter(
                "otelcol_exporter_sent_profile_samples",
                "Samples that the destination took.",
                labels,
            ),
            send_failed: meter.counter(
                "otelcol_exporter_send_failed_profile_samples",
                "Samples that could not be delivered.",
                labels,
            ),
            enqueue_failed: meter.counter(
                "otelcol_exporter_enqueue_failed_profile_samples",
                "Samples that the sending queue did not take.",
                labels,
            ),
            duration: meter.histogram(
                "otelcol_exporter_send_duration_seconds",
                "What one try to deliver a batch takes.",
                DURATIONS,
                labels,
            ),
        }
    }
}
