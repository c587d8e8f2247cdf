//! The sending queue on disk.
//!
//! ```text
//! consume ──► writer (a thread): append, group commit ──► log ──► dispatcher ──► exports
//!    ▲              │ answer                               ▲ window: the newest batches, also in memory
//!    └──────────────┘                        settled ──────┘
//! ```
//!
//! A batch is accepted when it is written, and with `fsync: always` when it is durable. From then on it is in the log until
//! it is delivered or dropped: what is under way when the process ends is sent again by the next one. No more is in memory
//! than the window and what is being exported, however much waits on disk.

mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use profcol_component::{
    Accumulator, Answer, Batch, Finalizer, Finalizers, Outcome, QueueSettings, Refusal, Source,
};
use profcol_storage::{Corrupt, Log, Next, Place, Storage};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub use self::record::{NoBatch, batch_of};
use self::record::{Record, size_in};
use self::writer::{Request, Unstored, Writer};
use super::account::{Account, DropReason, Size};
use super::metrics::StorageMetrics;
use super::overflow::OverflowLog;
use super::queue::{Backlog, Consumers, limits, sleep_until};
use super::{Sender, Stopping};

/// Batches that were just written are not read from disk again, up to so many and so large.
const WINDOW_BATCHES: usize = 64;
const WINDOW_BYTES: usize = 32 << 20;

/// Live batches that wait for the writer; more are dropped, since their source cannot wait.
const MAX_LIVE: u64 = 64;

/// How many combinations of metadata values are merged apart from each other; of more, what is held is sent on.
const MAX_PARTITIONS: usize = 64;

/// What is left of the time for a stop when exports under way are cut off: the log is closed in it.
const CLOSING_TIME: Duration = Duration::from_millis(300);

pub(super) struct DurableQueue {
    settings: QueueSettings,
    shared: Arc<Shared>,
    /// Taken away when the queue is closed.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the writer, the dispatcher and the exports share.
struct Shared {
    exporter: String,
    state: Mutex<State>,
    /// There is something to read.
    published: Notify,
    /// There may be room again.
    room: Notify,
    /// In units of the sizer.
    size: AtomicU64,
    live: AtomicU64,
    /// Something could not be delivered during the stop.
    has_kept: AtomicBool,
    /// The writer has panicked.
    is_broken: AtomicBool,
    backlog: Backlog,
    account: Arc<Account>,
    overflow: Arc<OverflowLog>,
    metrics: StorageMetrics,
}

struct State {
    log: Log,
    /// With the memory that each takes.
    window: VecDeque<(Place, Batch, usize)>,
    window_bytes: usize,
    /// Of batches that are in the log alone. Sources that wait for the outcome bound how many they have under way.
    waiting: HashMap<(u64, u32), Finalizers>,
}

/// A batch to be exported, and where it is stored.
struct Stored {
    place: Place,
    batch: Batch,
}

// === impl DurableQueue ===

impl DurableQueue {
    /// Opens the log of an exporter. Blocks.
    pub(super) fn open(
        storage: &Storage,
        settings: QueueSettings,
        exporter: &str,
        account: Arc<Account>,
        overflow: Arc<OverflowLog>,
        metrics: StorageMetrics,
    ) -> Result<Self, String> {
        let began = std::time::Instant::now();
        let opened = storage.open_queue(exporter);
        let (log, recovered) = opened.map_err(|error| error.to_string())?;
        let stored = recovered.stored;
        account.recovered(Size {
            samples: stored.samples,
            source_samples: stored.source_samples,
        });
        tracing::info!(
            otelcol.component.id = %exporter,
            otelcol.component.kind = "exporter",
            stored_batches = stored.batches,
            stored_samples = stored.source_samples,
            bytes = log.bytes(),
            torn_bytes = recovered.torn_bytes,
            took = ?began.elapsed(),
            "Opened the stored queue."
        );
        let shared = Arc::new(Shared {
            exporter: exporter.to_owned(),
            size: AtomicU64::new(size_in(settings.sizer, &stored)),
            state: Mutex::new(State {
                log,
                window: VecDeque::new(),
                window_bytes: 0,
                waiting: HashMap::new(),
            }),
            published: Notify::new(),
            room: Notify::new(),
            live: AtomicU64::new(0),
            has_kept: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            backlog: Backlog::holding(stored.batches),
            account,
            overflow,
            metrics,
        });
        if recovered.unreadable_segments > 0 {
            shared
                .metrics
                .corrupt_records
                .inc_by(recovered.unreadable_segments);
            tracing::error!(
                otelcol.component.id = %exporter,
                otelcol.component.kind = "exporter",
                segments = recovered.unreadable_segments,
                "Removed segments of the stored queue whose beginnings are damaged. Their batches are lost."
            );
        }
        shared.observe(&settings);
        let (requests, received) = mpsc::channel();
        let writer = Writer::new(
            Arc::clone(&shared),
            settings.clone(),
            storage.options(),
            received,
        );
        let thread = std::thread::Builder::new().name("storage".to_owned());
        let thread = thread.spawn(move || writer.run());
        Ok(Self {
            settings,
            shared,
            requests: Mutex::new(Some(requests)),
            writer: Mutex::new(Some(thread.map_err(|error| error.to_string())?)),
        })
    }

    /// Answers when the batch is stored.
    pub(super) async fn store(&self, mut batch: Batch) -> Answer {
        let mut record = Record::of(&batch);
        loop {
            let room = self.shared.room.notified();
            let mut room = std::pin::pin!(room);
            room.as_mut().enable();
            let (reply, answer) = oneshot::channel();
            let request = Request::Store {
                batch,
                record,
                reply: Some(reply),
            };
            if let Some(Request::Store { batch, .. }) = self.send(request) {
                return batch.refuse(shutting_down());
            }
            let unstored = match answer.await {
                Ok(Ok(())) => break,
                Ok(Err(unstored)) => *unstored,
                // The writer has ended, and with it the queue.
                Err(_) => return Err(shutting_down()),
            };
            if !unstored.is_full || !self.settings.block_on_overflow {
                let Unstored { batch, refusal, .. } = unstored;
                let size = Size::of(&batch);
                self.shared.account.not_enqueued(size);
                self.shared.overflow.refused(size.source_samples, &refusal);
                return batch.refuse(refusal);
            }
            Unstored { batch, record, .. } = unstored;
            if self.requests().is_none() {
                return batch.refuse(shutting_down());
            }
            room.await;
        }
        self.shared.backlog.pace_while_it_moves().await;
        Ok(())
    }

    /// Stores the batch of a source that cannot wait, or drops it.
    pub(super) fn store_live(&self, batch: Batch) {
        let waiting = self.shared.live.fetch_add(1, Ordering::Relaxed);
        if waiting >= MAX_LIVE {
            self.shared.live.fetch_sub(1, Ordering::Relaxed);
            let refusal = Refusal::retry("the disk is too slow: batches wait to be written");
            self.shared.drop_new(batch, DropReason::QueueFull, &refusal);
            return;
        }
        let record = Record::of(&batch);
        let request = Request::Store {
            batch,
            record,
            reply: None,
        };
        if let Some(Request::Store { batch, .. }) = self.send(request) {
            self.shared
                .drop_new(batch, DropReason::Shutdown, &shutting_down());
        }
    }

    /// Takes nothing new.
    pub(super) fn close(&self) {
        self.shared.published.notify_one();
        self.shared.room.notify_waiters();
    }

    /// Something could not be delivered during the stop: the rest is not even tried.
    pub(super) fn keep(&self) {
        self.shared.has_kept.store(true, Ordering::Relaxed);
        self.shared.published.notify_one();
    }

    /// What is still stored: batches.
    pub(super) fn stored_batches(&self) -> u64 {
        self.shared.lock().log.stored().batches
    }

    /// Moves batches from the log to the exporter until the queue is closed; then as long as it is not empty, there is time
    /// and the destination takes them.
    pub(super) async fn dispatch(&self, sender: Arc<Sender>, stopping: &Stopping) {
        let mut consumers = Consumers::new(sender, self.settings.num_consumers);
        let in_time = async {
            self.dispatch_all(&mut consumers, stopping).await;
            consumers.finish().await;
        };
        tokio::select! {
            () = in_time => {}
            () = stopping.almost_over(CLOSING_TIME) => {}
        }
        // Cut off exports settle nothing: their batches stay.
        consumers.cut_off().await;
        if let Some(requests) = self.requests().take() {
            // The writer is there until it is told this.
            let _ = requests.send(Request::Close);
        }
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(writer) = writer {
            // Joined where blocking is allowed. A panic of it is the dispatcher's too, and so ends the process loudly.
            let joined = tokio::task::spawn_blocking(move || writer.join()).await;
            if let Ok(Err(panic)) = joined {
                std::panic::resume_unwind(panic);
            }
        }
    }

    async fn dispatch_all(&self, consumers: &mut Consumers, stopping: &Stopping) {
        let Some(settings) = &*self.settings.batch else {
            while let Some(stored) = self.next(stopping).await {
                consumers.dispatch_batch(self.tracked(stored)).await;
            }
            return;
        };
        let mut limits = limits(settings);
        limits.max_partitions = MAX_PARTITIONS;
        let mut accumulator = Accumulator::new(limits);
        loop {
            let due = accumulator.next_flush();
            let ready = tokio::select! {
                next = self.next(stopping) => {
                    let Some(stored) = next else { break };
                    let batch = self.tracked(stored);
                    let mut ready = Vec::new();
                    if !accumulator.has_room_for(&batch) {
                        ready = accumulator.flush_all();
                    }
                    ready.extend(accumulator.add(batch, Instant::now()));
                    ready
                }
                () = sleep_until(due) => accumulator.flush_due(Instant::now()),
            };
            consumers.dispatch_all(ready).await;
        }
        consumers.dispatch_all(accumulator.flush_all()).await;
    }

    /// The oldest batch that is not being exported. `None` when the queue is closed and no more is to be tried.
    async fn next(&self, stopping: &Stopping) -> Option<Stored> {
        loop {
            let published = self.shared.published.notified();
            if self.shared.is_broken.load(Ordering::Relaxed) {
                return None;
            }
            if stopping.has_begun() && self.shared.has_kept.load(Ordering::Relaxed) {
                return None;
            }
            let next = match self.shared.next_in_memory() {
                Some(next) => Some(next),
                None => {
                    let shared = Arc::clone(&self.shared);
                    let read = tokio::task::spawn_blocking(move || shared.next_on_disk());
                    read.await.ok().flatten()
                }
            };
            if let Some(next) = next {
                self.shared.backlog.take();
                return Some(next);
            }
            if stopping.has_begun() {
                return None;
            }
            published.await;
        }
    }

    /// The batch, which is settled in the log when it is delivered or dropped.
    fn tracked(&self, stored: Stored) -> Batch {
        let Stored { place, mut batch } = stored;
        let requests = self.requests().clone();
        let shared = Arc::clone(&self.shared);
        let size = size_in(self.settings.sizer, &place.counts);
        let requests = Mutex::new(requests);
        batch.finalizers.add(Finalizer::new(move |outcome| {
            if outcome == Outcome::Lost {
                // Cut off by the stop, or kept for the next start.
                return;
            }
            shared.size.fetch_sub(size, Ordering::Relaxed);
            let requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(requests) = &*requests {
                // Where the writer has ended, the batch is delivered again after the next start.
                let _ = requests.send(Request::Settle(place));
            }
            shared.room.notify_waiters();
        }));
        batch
    }

    /// Gives the request back where the queue is closed.
    fn send(&self, request: Request) -> Option<Request> {
        match &*self.requests() {
            Some(requests) => requests.send(request).err().map(|unsent| unsent.0),
            None => Some(request),
        }
    }

    fn requests(&self) -> MutexGuard<'_, Option<mpsc::Sender<Request>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, if it is at hand.
    fn next_in_memory(&self) -> Option<Stored> {
        match self.state.try_lock() {
            Ok(mut state) => state.take_from_window(),
            Err(TryLockError::Poisoned(state)) => state.into_inner().take_from_window(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The next batch. What is corrupt on the way to it is counted and left out.
    fn next_on_disk(&self) -> Option<Stored> {
        loop {
            let mut state = self.lock();
            if let Some(next) = state.take_from_window() {
                return Some(next);
            }
            match state.log.read()? {
                Next::Record { place, head, body } => {
                    let finalizers = state.waiting.remove(&(place.segment, place.index));
                    drop(state);
                    let batch = batch_of(&head, body, &place.counts);
                    match batch {
                        Ok(mut batch) => {
                            batch.finalizers = finalizers.unwrap_or_default();
                            return Some(Stored { place, batch });
                        }
                        Err(error) => {
                            self.lock().log.settle(&[place]);
                            let corrupt = Corrupt::of(&place);
                            self.lost(&corrupt, &error.to_string(), finalizers);
                        }
                    }
                }
                Next::Corrupt(corrupt) => {
                    let finalizers = state.forget_passed();
                    drop(state);
                    self.lost(&corrupt, "the checksum differs", Some(finalizers));
                }
            }
        }
    }

    fn lost(&self, corrupt: &Corrupt, reason: &str, finalizers: Option<Finalizers>) {
        self.metrics
            .corrupt_records
            .inc_by(corrupt.counts.batches.max(1));
        let size = Size {
            samples: corrupt.counts.samples,
            source_samples: corrupt.counts.source_samples,
        };
        self.account.failed(size, true);
        self.account.dropped(size, DropReason::Corrupt);
        tracing::error!(
            otelcol.component.id = %self.exporter,
            otelcol.component.kind = "exporter",
            segment = corrupt.segment,
            at = corrupt.at,
            error = reason,
            dropped_samples = size.source_samples,
            "A batch in the stored queue is damaged. Dropping data."
        );
        if let Some(finalizers) = finalizers {
            finalizers.settle(Outcome::Undelivered);
        }
    }

    /// A batch that was not stored and that nobody offers again.
    fn drop_new(&self, batch: Batch, reason: DropReason, refusal: &Refusal) {
        let size = Size::of(&batch);
        self.account.not_enqueued(size);
        self.account.dropped(size, reason);
        self.overflow.dropped(size.source_samples, refusal);
        batch.finalizers.settle(refusal.outcome());
    }

    fn observe(&self, settings: &QueueSettings) {
        let state = self.lock();
        let stored = state.log.stored();
        self.metrics.bytes.set(state.log.bytes() as f64);
        self.metrics.batches.set(stored.batches as f64);
        self.metrics
            .queue_size
            .set(size_in(settings.sizer, &stored) as f64);
    }
}

// === impl State ===

impl State {
    fn take_from_window(&mut self) -> Option<Stored> {
        let (place, _, _) = self.window.front()?;
        if !self.log.take(place) {
            return None;
        }
        let (place, mut batch, bytes) = self.window.pop_front()?;
        self.window_bytes -= bytes;
        if let Some(finalizers) = self.waiting.remove(&(place.segment, place.index)) {
            batch.finalizers.append(finalizers);
        }
        Some(Stored { place, batch })
    }

    /// Keeps the batch at hand where there is room for it; whoever waits for it waits in any case.
    fn remember(&mut self, place: Place, mut batch: Batch) {
        let finalizers = std::mem::take(&mut batch.finalizers);
        if !finalizers.is_empty() {
            self.waiting
                .insert((place.segment, place.index), finalizers);
        }
        let bytes = batch.profiles.heap_size();
        if self.window.len() < WINDOW_BATCHES && self.window_bytes + bytes <= WINDOW_BYTES {
            self.window_bytes += bytes;
            self.window.push_back((place, batch, bytes));
        }
    }

    /// Lets go of a batch that is dropped.
    fn forget(&mut self, place: &Place) -> Finalizers {
        if self
            .window
            .front()
            .is_some_and(|(first, _, _)| first == place)
            && let Some((_, _, bytes)) = self.window.pop_front()
        {
            self.window_bytes -= bytes;
        }
        let finalizers = self.waiting.remove(&(place.segment, place.index));
        finalizers.unwrap_or_default()
    }

    /// Those who wait for batches that the reader has passed without finding them.
    fn forget_passed(&mut self) -> Finalizers {
        let position = self.log.position();
        let mut passed = Finalizers::default();
        self.waiting.retain(|place, finalizers| {
            let is_passed = *place < position;
            if is_passed {
                passed.append(std::mem::take(finalizers));
            }
            !is_passed
        });
        self.window
            .retain(|(place, _, _)| (place.segment, place.index) >= position);
        self.window_bytes = self.window.iter().map(|(_, _, bytes)| bytes).sum();
        passed
    }
}

fn shutting_down() -> Refusal {
    Refusal::retry("the sending queue is closed: shutting down")
}

/// Whether a batch is of a source that cannot wait.
fn is_live(batch: &Batch) -> bool {
    batch.source == Source::Live
}
