//! Merges small batches into large ones and cuts what is too large.
//!
//! What it holds back it has accepted, so it must not lose it. Merged batches wait in an outbox that
//! only the processor's own task empties: a sender that hangs up takes nothing with it. While what
//! comes next refuses, new batches are refused at the door; while it is slow, senders wait.
//!
//! ```text
//! process ──► accumulator ──(enough, or time is up: merge, cut)──► outbox ──run──► next
//! ```

mod config;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    Accumulator, Answer, Batch, BuildContext, BuildError, Consumer, Factory, IntCounter, Limits,
    Processor, Ready, Refusal, RunError, Sizer, Stability, Stop,
};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::config::BatchConfig;

/// How long to wait before offering a refused batch again, unless the refusal says otherwise.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// How many merged batches may wait for the next consumer before senders have to wait too.
const OUTBOX_LIMIT: usize = 8;

pub struct BatchProcessor {
    held: Mutex<Held>,
    /// Tells the processor's task that there is something to do.
    work: Notify,
    /// Tells waiting senders that the outbox has got shorter.
    room: Notify,
    counters: Counters,
}

struct Held {
    accumulator: Accumulator,
    /// Merged batches, oldest first.
    outbox: VecDeque<Batch>,
    /// When the oldest one may be offered again, after it was refused.
    retry_at: Option<Instant>,
}

struct Counters {
    sent_by_size: IntCounter,
    sent_by_timeout: IntCounter,
    dropped: IntCounter,
}

// === impl BatchProcessor ===

impl Factory for BatchProcessor {
    const NAME: &'static str = "batch";
    const STABILITY: Stability = Stability::Beta;
    type Config = BatchConfig;
    type Component = dyn Processor;

    fn build(
        config: &BatchConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(BatchProcessor {
            held: Mutex::new(Held {
                accumulator: Accumulator::new(limits(config)),
                outbox: VecDeque::new(),
                retry_at: None,
            }),
            work: Notify::new(),
            room: Notify::new(),
            counters: Counters::new(context),
        }))
    }
}

fn limits(config: &BatchConfig) -> Limits {
    let bound = |size: u32| NonZeroUsize::new(size as usize);
    Limits {
        sizer: Sizer::Items,
        min_size: match (config.timeout.is_zero(), config.send_batch_size) {
            (true, _) => 0,
            (false, 0) => u64::MAX,
            (false, size) => u64::from(size),
        },
        max_samples: bound(config.send_batch_max_size),
        max_bytes: bound(config.send_batch_max_bytes),
        flush_after: (!config.timeout.is_zero()).then(|| config.timeout.into()),
        keys: config.metadata_keys.clone(),
        max_partitions: match config.metadata_cardinality_limit {
            0 => usize::MAX,
            limit => limit as usize,
        },
    }
}

#[async_trait]
impl Processor for BatchProcessor {
    async fn process(&self, batch: Batch, _next: &dyn Consumer) -> Answer {
        if let Err(refusal) = self.wait_for_room().await {
            return batch.refuse(refusal);
        }
        let ready = {
            let mut held = self.lock();
            if !held.accumulator.has_room_for(&batch.metadata) {
                drop(held);
                let reason = "too many batcher metadata-value combinations";
                return batch.refuse(Refusal::permanent(reason));
            }
            held.accumulator.add(batch, Instant::now())
        };
        if let Some(ready) = ready {
            self.counters.sent_by_size.inc();
            self.put_out(ready);
        }
        self.work.notify_one();
        Ok(())
    }

    async fn run(self: Arc<Self>, next: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        while !stop.is_cancelled() {
            self.deliver(&*next).await;
            let due = self.lock().next_work();
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.work.notified() => {}
                () = sleep_until(due) => self.flush_due(),
            }
        }
        let rest = self.lock().accumulator.flush_all();
        rest.into_iter().for_each(|ready| self.put_out(ready));
        self.lock().retry_at = None;
        self.deliver(&*next).await;
        self.give_up();
        Ok(())
    }
}

impl BatchProcessor {
    /// Makes the sender wait while what comes next is slow, and refuses while it refuses.
    async fn wait_for_room(&self) -> Answer {
        loop {
            let room = self.room.notified();
            {
                let held = self.lock();
                if held.outbox.len() < OUTBOX_LIMIT {
                    return Ok(());
                }
                if let Some(at) = held.retry_at {
                    let wait = at.saturating_duration_since(Instant::now());
                    return Err(Refusal::retry_after(
                        "what comes after the batch processor refuses",
                        wait,
                    ));
                }
            }
            room.await;
        }
    }

    fn flush_due(&self) {
        let due = self.lock().accumulator.flush_due(Instant::now());
        for ready in due {
            self.counters.sent_by_timeout.inc();
            self.put_out(ready);
        }
    }

    fn put_out(&self, ready: Ready) {
        let batches = ready.combine();
        self.lock().outbox.extend(batches);
    }

    /// Empties the outbox, until the oldest batch is refused or has to wait for its next try.
    async fn deliver(&self, next: &dyn Consumer) {
        while let Some(batch) = self.oldest() {
            let refused = self.offer(batch, next).await;
            self.lock().retry_at = refused;
            self.room.notify_waiters();
        }
    }

    fn oldest(&self) -> Option<Batch> {
        let mut held = self.lock();
        if held.retry_at.is_some_and(|at| at > Instant::now()) {
            return None;
        }
        held.outbox.pop_front()
    }

    /// Hands a batch on; where it is refused for now, puts it back and says when to try again.
    async fn offer(&self, mut batch: Batch, next: &dyn Consumer) -> Option<Instant> {
        let (handed, attempt) = std::mem::take(&mut batch.finalizers).attempt();
        let copy = Batch {
            finalizers: handed,
            ..batch.clone()
        };
        match next.consume(copy).await {
            Ok(()) => {
                attempt.accepted();
                None
            }
            Err(Refusal::Retry { after, .. }) => {
                batch.finalizers = attempt.refused();
                self.lock().outbox.push_front(batch);
                Some(Instant::now() + after.unwrap_or(RETRY_INTERVAL))
            }
            Err(refusal) => {
                batch.finalizers = attempt.refused();
                self.drop_batch(batch, &refusal.to_string());
                None
            }
        }
    }

    fn give_up(&self) {
        let rest = std::mem::take(&mut self.lock().outbox);
        for batch in rest {
            self.drop_batch(batch, "what comes next took nothing more before the stop");
        }
    }

    fn drop_batch(&self, batch: Batch, reason: &str) {
        let samples = batch.profiles.sample_count() as u64;
        self.counters.dropped.inc_by(samples);
        tracing::error!(dropped_samples = samples, error = %reason, "A merged batch was dropped.");
        // The answer is for whoever waits on the finalizers; the senders have theirs.
        let _ = batch.refuse(Refusal::permanent(reason));
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counters ===

impl Counters {
    fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        Self {
            sent_by_size: counter(
                "otelcol_processor_batch_batch_size_trigger_send",
                "Batches passed on because there was enough.",
            ),
            sent_by_timeout: counter(
                "otelcol_processor_batch_timeout_trigger_send",
                "Batches passed on because time was up.",
            ),
            dropped: counter(
                "profcol_processor_batch_dropped_profile_samples",
                "Samples that were held back and then refused for ever, or not taken before the stop.",
            ),
        }
    }
}

// === impl Held ===

impl Held {
    fn next_work(&self) -> Option<Instant> {
        match (self.accumulator.next_flush(), self.retry_at) {
            (Some(flush), Some(retry)) => Some(flush.min(retry)),
            (flush, retry) => flush.or(retry),
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
