//! The way of the batches of one kind of source through the processor.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profcol_component::{
    Accumulator, Answer, Batch, BatchId, BuildContext, Consumer, IntCounter, Limits, Ready,
    Refusal, Source, Stop,
};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long to wait before offering a refused batch again, unless the refusal says otherwise.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// How many merged batches may wait for the next consumer before senders have to wait too.
pub(super) const OUTBOX_LIMIT: usize = 8;

pub(super) struct Lane {
    source: Source,
    held: Mutex<Held>,
    /// Tells the processor's task that there is something to do.
    work: Notify,
    /// Tells waiting senders that the outbox has got shorter.
    room: Notify,
    counters: Counters,
}

struct Held {
    accumulator: Accumulator,
    /// Merged batches, oldest first; the first one may be on its way.
    outbox: VecDeque<Batch>,
    /// When the oldest one may be offered again, after it was refused.
    retry_at: Option<Instant>,
}

pub(super) struct Counters {
    sent_by_size: IntCounter,
    sent_by_timeout: IntCounter,
    dropped: IntCounter,
    /// As their source counts them.
    dropped_source_samples: AtomicU64,
}

// === impl Lane ===

impl Lane {
    pub(super) fn new(source: Source, limits: Limits, counters: Counters) -> Self {
        Self {
            source,
            held: Mutex::new(Held {
                accumulator: Accumulator::new(limits),
                outbox: VecDeque::new(),
                retry_at: None,
            }),
            work: Notify::new(),
            room: Notify::new(),
            counters,
        }
    }

    pub(super) async fn add(&self, batch: Batch) -> Answer {
        if let Err(refusal) = self.wait_for_room().await {
            return batch.refuse(refusal);
        }
        let ready = {
            let mut held = self.lock();
            if !held.accumulator.has_room_for(&batch) {
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

    pub(super) async fn run(&self, next: &dyn Consumer, stop: &Stop) {
        while !stop.is_cancelled() {
            self.deliver(next).await;
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
        self.deliver(next).await;
        self.give_up();
    }

    /// What was dropped, and what is still held, which nobody passes on any more.
    pub(super) fn lost_samples(&self) -> u64 {
        let held = self.lock();
        let waiting = held.outbox.iter().map(Batch::source_samples).sum::<u64>();
        let dropped = self.counters.dropped_source_samples.load(Ordering::Relaxed);
        dropped + waiting + held.accumulator.source_samples()
    }

    /// Makes the sender wait while what comes next is slow, and refuses while it refuses.
    async fn wait_for_room(&self) -> Answer {
        loop {
            let room = self.room.notified();
            {
                let held = self.lock();
                if held.outbox.len() < OUTBOX_LIMIT {
                    return Ok(());
                }
                let reason = "what comes after the batch processor refuses";
                if let Some(at) = held.retry_at {
                    let wait = at.saturating_duration_since(Instant::now());
                    return Err(Refusal::retry_after(reason, wait));
                }
                if self.source == Source::Live {
                    return Err(Refusal::retry_after(reason, RETRY_INTERVAL));
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
        let batches = ready.combine().into_iter();
        // From here on it is the processor that offers a batch again.
        let batches = batches.map(|batch| batch.with_id(BatchId::unique()));
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

    /// Those who wait for the batch stay with the one in the outbox.
    fn oldest(&self) -> Option<Batch> {
        let held = self.lock();
        if held.retry_at.is_some_and(|at| at > Instant::now()) {
            return None;
        }
        let oldest = held.outbox.front()?;
        Some(oldest.without_finalizers())
    }

    /// Hands a batch on; where it is refused for now, leaves it and says when to try again.
    async fn offer(&self, mut batch: Batch, next: &dyn Consumer) -> Option<Instant> {
        let waiting = match self.lock().outbox.front_mut() {
            Some(oldest) => std::mem::take(&mut oldest.finalizers),
            None => return None,
        };
        let (handed, attempt) = waiting.attempt();
        batch.finalizers = handed;
        let refusal = match next.consume(batch).await {
            Ok(()) => {
                self.lock().outbox.pop_front();
                attempt.accepted();
                return None;
            }
            Err(refusal) => refusal,
        };
        let waiting = attempt.refused();
        if let Refusal::Retry { after, .. } = refusal {
            if let Some(oldest) = self.lock().outbox.front_mut() {
                oldest.finalizers = waiting;
            }
            return Some(Instant::now() + after.unwrap_or(RETRY_INTERVAL));
        }
        let batch = self.lock().outbox.pop_front();
        if let Some(mut batch) = batch {
            batch.finalizers = waiting;
            self.drop_batch(batch, &refusal.to_string());
        }
        None
    }

    fn give_up(&self) {
        let rest = std::mem::take(&mut self.lock().outbox);
        for batch in rest {
            self.drop_batch(batch, "what comes next took nothing more before the stop");
        }
    }

    fn drop_batch(&self, batch: Batch, reason: &str) {
        let samples = batch.source_samples();
        self.counters
            .dropped
            .inc_by(batch.profiles.sample_count() as u64);
        self.counters
            .dropped_source_samples
            .fetch_add(samples, Ordering::Relaxed);
        tracing::error!(dropped_samples = samples, error = %reason, "Dropped a merged batch.");
        // Only the finalizers wait for this answer: the senders have had theirs.
        let _ = batch.refuse(Refusal::permanent(reason));
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counters ===

impl Counters {
    pub(super) fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        Self {
            sent_by_size: counter(
                "otelcol_processor_batch_batch_size_trigger_send",
                "Batches sent because the size limit was reached.",
            ),
            sent_by_timeout: counter(
                "otelcol_processor_batch_timeout_trigger_send",
                "Batches passed on because time was up.",
            ),
            dropped: counter(
                "profcol_processor_batch_dropped_profile_samples",
                "Samples that were held back and then refused for ever, or not taken before the stop.",
            ),
            dropped_source_samples: AtomicU64::new(0),
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
