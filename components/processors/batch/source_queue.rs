//! The queue for the batches of one kind of source.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{
    Accumulator, Answer, Batch, BuildContext, Consumer, IntCounter, Limits, Ready, Refusal, Source,
    Stop,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::resent_recordings::ResentRecordings;

/// Delay between retries, unless the refusal has one.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Number of merged batches that may wait for the next consumer before senders have to wait too.
pub(super) const OUTBOX_LIMIT: usize = 8;

pub(super) struct SourceQueue {
    source: Source,
    held: Mutex<Held>,
    /// Wakes the processor's task.
    work: Notify,
    /// Wakes senders that wait for room in the outbox.
    room: Notify,
    counters: Counters,
    resent: Arc<ResentRecordings>,
}

struct Held {
    accumulator: Accumulator,
    /// Merged batches, oldest first; the first may be in flight.
    outbox: VecDeque<Batch>,
    /// When the oldest batch may be retried after a refusal.
    retry_at: Option<Instant>,
}

struct Counters {
    sent_by_size: IntCounter,
    sent_by_timeout: IntCounter,
    dropped: IntCounter,
    /// Dropped samples, as the source counts them.
    dropped_source_samples: AtomicU64,
}

// === impl SourceQueue ===

impl SourceQueue {
    pub(super) fn new(source: Source, limits: Limits, context: &BuildContext) -> Self {
        let (counters, forgotten) = Counters::new(context);
        Self {
            resent: ResentRecordings::new(forgotten),
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

    pub(super) async fn add(&self, mut batch: Batch) -> Answer {
        if let Err(refusal) = self.wait_for_room().await {
            return batch.refuse(refusal);
        }
        if let Some(pieces) = self.resent.resend(&mut batch) {
            self.held.lock().outbox.extend(pieces);
            self.work.notify_one();
            return Ok(());
        }
        let ready = {
            let mut held = self.held.lock();
            if !held.accumulator.has_room_for(&batch) {
                drop(held);
                let reason = "too many batcher metadata-value combinations";
                return batch.refuse(Refusal::permanent(reason));
            }
            // It is accepted here.
            batch.has_alternative = false;
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
            let due = self.held.lock().next_work();
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.work.notified() => {}
                () = sleep_until(due) => self.flush_due(),
            }
        }
        let rest = self.held.lock().accumulator.flush_all();
        rest.into_iter().for_each(|ready| self.put_out(ready));
        self.held.lock().retry_at = None;
        self.deliver(next).await;
        self.give_up();
    }

    /// Samples that were dropped, and those still held, which are lost now.
    pub(super) fn lost_samples(&self) -> u64 {
        let held = self.held.lock();
        let waiting = held.outbox.iter().map(Batch::source_samples).sum::<u64>();
        let dropped = self.counters.dropped_source_samples.load(Ordering::Relaxed);
        dropped + waiting + held.accumulator.source_samples()
    }

    /// Delays the sender while the next consumer is slow, and refuses while it refuses.
    async fn wait_for_room(&self) -> Answer {
        loop {
            let room = self.room.notified();
            {
                let held = self.held.lock();
                if held.outbox.len() < OUTBOX_LIMIT {
                    return Ok(());
                }
                let reason = "the component after the batch processor refuses batches";
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
        let due = self.held.lock().accumulator.flush_due(Instant::now());
        for ready in due {
            self.counters.sent_by_timeout.inc();
            self.put_out(ready);
        }
    }

    fn put_out(&self, ready: Ready) {
        let recorded = ready.recorded();
        let batches = ready.combine().into_iter();
        // From here on the processor retries.
        let mut batches: Vec<Batch> = batches.map(Batch::resent_as_itself).collect();
        if !recorded.is_empty() {
            batches = self.resent.follow(recorded, batches);
        }
        self.held.lock().outbox.extend(batches);
    }

    /// Delivers the outbox until the oldest batch is refused or has to wait for its retry.
    async fn deliver(&self, next: &dyn Consumer) {
        while let Some(batch) = self.oldest() {
            let refused = self.offer(batch, next).await;
            self.held.lock().retry_at = refused;
            self.room.notify_waiters();
        }
    }

    /// A copy of the oldest batch; its finalizers stay in the outbox.
    fn oldest(&self) -> Option<Batch> {
        let held = self.held.lock();
        if held.retry_at.is_some_and(|at| at > Instant::now()) {
            return None;
        }
        let oldest = held.outbox.front()?;
        Some(oldest.detached())
    }

    /// Passes a batch on; if it is refused for now, keeps it and returns when to retry.
    async fn offer(&self, mut batch: Batch, next: &dyn Consumer) -> Option<Instant> {
        let waiting = match self.held.lock().outbox.front_mut() {
            Some(oldest) => std::mem::take(&mut oldest.finalizers),
            None => return None,
        };
        let (handed, attempt) = waiting.attempt();
        batch.finalizers = handed;
        let refusal = match next.consume(batch).await {
            Ok(()) => {
                self.held.lock().outbox.pop_front();
                attempt.accepted();
                return None;
            }
            Err(refusal) => refusal,
        };
        let waiting = attempt.refused();
        if let Refusal::Retry { after, .. } = refusal {
            if let Some(oldest) = self.held.lock().outbox.front_mut() {
                oldest.finalizers = waiting;
            }
            return Some(Instant::now() + after.unwrap_or(RETRY_INTERVAL));
        }
        let batch = self.held.lock().outbox.pop_front();
        if let Some(mut batch) = batch {
            batch.finalizers = waiting;
            self.drop_batch(batch, refusal);
        }
        None
    }

    fn give_up(&self) {
        let rest = std::mem::take(&mut self.held.lock().outbox);
        for batch in rest {
            let reason = "the next component accepted no more batches before the stop";
            self.drop_batch(batch, Refusal::retry(reason));
        }
    }

    fn drop_batch(&self, batch: Batch, refusal: Refusal) {
        let samples = batch.source_samples();
        self.counters
            .dropped
            .inc_by(batch.profiles.sample_count() as u64);
        self.counters
            .dropped_source_samples
            .fetch_add(samples, Ordering::Relaxed);
        tracing::error!(dropped_samples = samples, error = %refusal, "Dropped a merged batch.");
        // Only the finalizers see this refusal: the senders already have their answer.
        let _ = batch.refuse(refusal);
    }
}

// === impl Counters ===

impl Counters {
    /// Also returns the counter of evicted recordings.
    fn new(context: &BuildContext) -> (Self, IntCounter) {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        let forgotten = counter(
            "profcol_processor_batch_forgotten_batches",
            "Merged recordings that exporters gave up on and that were evicted before their sources pushed them again; the other exporters get them twice.",
        );
        let counters = Self {
            sent_by_size: counter(
                "otelcol_processor_batch_batch_size_trigger_send",
                "Batches sent because the size limit was reached.",
            ),
            sent_by_timeout: counter(
                "otelcol_processor_batch_timeout_trigger_send",
                "Batches sent because the timeout expired.",
            ),
            dropped: counter(
                "profcol_processor_batch_dropped_profile_samples",
                "Samples held back and then permanently refused, or not accepted before the stop.",
            ),
            dropped_source_samples: AtomicU64::new(0),
        };
        (counters, forgotten)
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
