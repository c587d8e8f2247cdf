//! The sending queue on disk.
//!
//! ```text
//! consume ──► writer (a thread): append, group commit ──► log ──► dispatcher ──► exports
//!    ▲              │ answer                               ▲ window: the newest batches, also in memory
//!    └──────────────┘                        settled ──────┘
//! ```
//!
//! A batch is accepted once written, or with `fsync: always` once durable. It stays in the log until it is delivered or
//! dropped: batches in flight when the process ends are resent by the next run. Memory holds only the window and
//! batches being exported, however much waits on disk.

mod divide;
mod parked;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::{
    Accumulator, Answer, Batch, Finalizer, Finalizers, Outcome, QueueSettings, Refusal, Source,
};
use profcol_storage::{
    Corrupt, Counts, Damage, Log, Next, Purpose, RecordPosition, Storage, StorageError,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::parked::{Evicted, ParkedBatches};
pub use self::record::{InvalidRecord, batch_of};
use self::record::{Record, size_in};
use self::writer::{RefusedBatch, Request, RunningWriter};
use super::account::{Account, DropReason, Size};
use super::metrics::StorageMetrics;
use super::overflow::OverflowLog;
use super::queue::{Backlog, Consumers, limits, sleep_until};
use super::{Sender, Stopping};

/// The newest batches stay in memory up to this count and size, to avoid reading them back.
const WINDOW_BATCHES: usize = 64;
const WINDOW_BYTES: usize = 32 << 20;

/// Maximum live batches waiting for the writer; more are dropped, as their source cannot wait.
const MAX_LIVE: u64 = 64;

/// Maximum number of metadata partitions when merging; beyond it, held batches are flushed.
const MAX_PARTITIONS: usize = 64;

/// Exports in flight are aborted this long before the shutdown deadline, to close the log.
const CLOSING_TIME: Duration = Duration::from_millis(300);

pub(super) struct DurableQueue {
    settings: QueueSettings,
    shared: Arc<Shared>,
    /// `None` once the queue is closed.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    writer: Mutex<Option<RunningWriter>>,
}

/// State shared by the writer, the dispatcher and the exports.
struct Shared {
    exporter: String,
    state: Mutex<State>,
    /// Notified when there is a batch to read.
    published: Notify,
    /// Notified when there may be room.
    room: Notify,
    /// Queue size in units of the sizer.
    size: AtomicU64,
    live: AtomicU64,
    max_live: AtomicU64,
    is_closed: AtomicBool,
    /// No further batch is exported: they stay for the next run or the exporter's next instance.
    leaves_rest_stored: AtomicBool,
    /// The writer has panicked.
    is_broken: AtomicBool,
    backlog: Backlog,
    account: Arc<Account>,
    overflow: Arc<OverflowLog>,
    metrics: StorageMetrics,
}

struct State {
    log: Log,
    /// Newest batches with their memory size.
    window: VecDeque<(RecordPosition, Batch, usize)>,
    window_bytes: usize,
    /// Of several destinations.
    parked: ParkedBatches,
    /// Finalizers of batches only in the log. Bounded, as sources that wait for outcomes limit their batches in flight.
    waiting: HashMap<(u64, u32), Finalizers>,
}

/// A batch to export and its place in the log.
struct Stored {
    place: RecordPosition,
    batch: Batch,
}

/// Why a stored queue cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("failed to start the thread of the stored queue: {0}")]
    Thread(#[source] io::Error),
}

// === impl DurableQueue ===

impl DurableQueue {
    /// Opens an exporter's log. Blocking.
    pub(super) fn open(
        storage: &Storage,
        settings: QueueSettings,
        exporter: &str,
        account: Arc<Account>,
        overflow: Arc<OverflowLog>,
        metrics: StorageMetrics,
    ) -> Result<Self, OpenError> {
        let began = std::time::Instant::now();
        let (log, recovered) = storage.open(Purpose::Queue, exporter)?;
        let stored = recovered.stored;
        account.recovered(Size::stored(&stored));
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
                parked: ParkedBatches::default(),
                waiting: HashMap::new(),
            }),
            published: Notify::new(),
            room: Notify::new(),
            live: AtomicU64::new(0),
            max_live: AtomicU64::new(MAX_LIVE),
            is_closed: AtomicBool::new(false),
            leaves_rest_stored: AtomicBool::new(false),
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
                "Removed segments of the stored queue with damaged headers. Their batches are lost."
            );
        }
        if recovered.missing.batches > 0 {
            shared.lost_bodies(&recovered.missing, storage);
        }
        shared.observe(&settings);
        let (requests, received) = mpsc::channel();
        let writer = RunningWriter::start(Arc::clone(&shared), settings.clone(), storage, received);
        Ok(Self {
            settings,
            shared,
            requests: Mutex::new(Some(requests)),
            writer: Mutex::new(Some(writer.map_err(OpenError::Thread)?)),
        })
    }

    /// Returns once the batch is stored.
    pub(super) async fn store(&self, mut batch: Batch) -> Answer {
        let mut record = Record::of(&batch);
        loop {
            let room = self.shared.room.notified();
            let mut room = pin!(room);
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
                // The writer has ended.
                Err(_) => return Err(shutting_down()),
            };
            let may_wait = self.settings.block_on_overflow && unstored.batch.source != Source::Live;
            if !unstored.is_full || !may_wait {
                let RefusedBatch { batch, refusal, .. } = unstored;
                let size = Size::of(&batch);
                self.shared.account.not_enqueued(size);
                self.shared.overflow.refused(size.source_samples, &refusal);
                return batch.refuse(refusal);
            }
            RefusedBatch { batch, record, .. } = unstored;
            if self.shared.is_closed.load(Ordering::Relaxed) {
                return batch.refuse(shutting_down());
            }
            room.await;
        }
        self.shared.backlog.pace_while_it_moves().await;
        Ok(())
    }

    /// Stores a live batch, or drops it.
    pub(super) fn store_live(&self, batch: Batch) {
        let waiting = self.shared.live.fetch_add(1, Ordering::Relaxed);
        if waiting >= self.shared.max_live.load(Ordering::Relaxed) {
            self.shared.live.fetch_sub(1, Ordering::Relaxed);
            let refusal =
                Refusal::retry("the disk is too slow: too many batches waiting to be written");
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

    /// Each batch comes in up to so many parts.
    pub(super) fn expect_parts(&self, parts: usize) {
        let max_live = MAX_LIVE.saturating_mul(parts.max(1) as u64);
        self.shared.max_live.store(max_live, Ordering::Relaxed);
    }

    /// Stops waiting for room: sources send again what has none.
    pub(super) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.shared.published.notify_one();
        self.shared.room.notify_waiters();
    }

    /// Exports no further batch once the sender stops, as one could not be delivered, or another instance takes over.
    pub(super) fn leave_rest_stored(&self) {
        self.shared
            .leaves_rest_stored
            .store(true, Ordering::Relaxed);
        self.shared.published.notify_one();
    }

    pub(super) fn leaves_rest_stored(&self) -> bool {
        self.shared.leaves_rest_stored.load(Ordering::Relaxed)
    }

    /// Number of stored batches.
    pub(super) fn stored_batches(&self) -> u64 {
        self.shared.state.lock().log.stored().batches
    }

    #[cfg(test)]
    pub(super) fn failed_syncs(&self) -> u64 {
        self.shared.metrics.failed_syncs.get()
    }

    /// Whether nothing uses the log any more, after the queue was dropped.
    #[cfg(test)]
    pub(super) fn ended(&self) -> impl FnMut() -> bool + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.strong_count() == 0
    }

    /// Moves batches from the log to the exporter until the queue is closed; then until it is empty, time is up, or the
    /// destination refuses.
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
        // Aborted exports settle nothing: their batches stay stored.
        consumers.abort().await;
        self.end().await;
    }

    /// Ends the writer.
    async fn end(&self) {
        if let Some(requests) = self.requests.lock().take() {
            // The writer runs until `Close`.
            let _ = requests.send(Request::Close);
        }
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // Its panic so ends the process.
            writer.join().await;
        }
    }

    async fn dispatch_all(&self, consumers: &mut Consumers, stopping: &Stopping) {
        let Some(settings) = &*self.settings.batch else {
            while let Some(stored) = self.next(stopping).await {
                let batch = self.tracked(stored, &Evicted::default());
                consumers.dispatch_batch(batch).await;
            }
            return;
        };
        let mut limits = limits(settings);
        limits.max_partitions = MAX_PARTITIONS;
        let mut accumulator = Accumulator::new(limits);
        // Not dropped when a flush is due: a batch that it has taken from the log would wait for the next run.
        let mut next = pin!(self.next(stopping));
        loop {
            let due = accumulator.next_flush();
            let ready = tokio::select! {
                stored = &mut next => {
                    let Some(stored) = stored else { break };
                    next.set(self.next(stopping));
                    let batch = self.tracked(stored, &Evicted::default());
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

    /// The oldest batch not being exported. `None` if the queue is closed and no more may be tried.
    async fn next(&self, stopping: &Stopping) -> Option<Stored> {
        loop {
            let published = self.shared.published.notified();
            if self.shared.is_broken() || stopping.has_begun() && self.leaves_rest_stored() {
                return None;
            }
            if let Some(next) = self.take_next().await {
                return Some(next);
            }
            if stopping.has_begun() {
                return None;
            }
            published.await;
        }
    }

    /// The oldest batch not being exported, if there is one.
    async fn take_next(&self) -> Option<Stored> {
        let next = match self.shared.next_in_memory() {
            Some(next) => next,
            None => {
                let shared = Arc::clone(&self.shared);
                let read = tokio::task::spawn_blocking(move || shared.next_on_disk());
                read.await.ok().flatten()?
            }
        };
        self.shared.backlog.take();
        Some(next)
    }

    /// Attaches a finalizer that settles the batch in the log once it is delivered or dropped.
    fn tracked(&self, stored: Stored, evicted: &Evicted) -> Batch {
        let Stored { place, mut batch } = stored;
        let requests = self.requests.lock().clone();
        let shared = Arc::clone(&self.shared);
        let size = size_in(self.settings.sizer, &place.counts);
        let evicted = evicted.clone();
        batch.finalizers.add(Finalizer::new(move |outcome| {
            if outcome == Outcome::Lost {
                // Aborted by the shutdown, or left stored for the next run.
                return;
            }
            shared.size.fetch_sub(size, Ordering::Relaxed);
            if let Some(requests) = requests
                && !evicted.is_set()
            {
                // If the writer has ended, the next run delivers the batch again.
                let _ = requests.send(Request::Settle(place));
            }
            shared.room.notify_waiters();
        }));
        batch
    }

    /// Returns the request if the queue is closed.
    fn send(&self, request: Request) -> Option<Request> {
        match &*self.requests.lock() {
            Some(requests) => requests.send(request).err().map(|unsent| unsent.0),
            None => Some(request),
        }
    }
}

// === impl Shared ===

impl Shared {
    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// The next batch, if in memory.
    fn next_in_memory(&self) -> Option<Stored> {
        self.state.try_lock()?.take_from_window()
    }

    /// The next batch. Skips and counts corrupt records.
    fn next_on_disk(&self) -> Option<Stored> {
        loop {
            let mut state = self.state.lock();
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
                            self.state.lock().log.settle(&[place]);
                            self.backlog.lose(1);
                            let corrupt = Corrupt::of(&place, Damage::Checksum);
                            self.lost(&corrupt, &error.to_string(), finalizers);
                        }
                    }
                }
                Next::Corrupt(corrupt) => {
                    let finalizers = state.forget_passed();
                    drop(state);
                    self.backlog.lose(corrupt.counts.batches);
                    self.lost(&corrupt, &corrupt.damage.to_string(), Some(finalizers));
                }
            }
        }
    }

    fn lost(&self, corrupt: &Corrupt, reason: &str, finalizers: Option<Finalizers>) {
        match corrupt.damage {
            Damage::MissingBody => &self.metrics.missing_batches,
            Damage::Checksum | Damage::Unreadable => &self.metrics.corrupt_records,
        }
        .inc_by(corrupt.counts.batches.max(1));
        let size = Size::stored(&corrupt.counts);
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

    /// Batches of an earlier run whose records are intact, but not what they refer to.
    fn lost_bodies(&self, missing: &Counts, storage: &Storage) {
        self.metrics.missing_batches.inc_by(missing.batches);
        let size = Size::stored(missing);
        self.account.recovered(size);
        self.account.failed(size, true);
        self.account.dropped(size, DropReason::Corrupt);
        tracing::error!(
            otelcol.component.id = %self.exporter,
            otelcol.component.kind = "exporter",
            directory = %storage.shared_folder().display(),
            batches = missing.batches,
            dropped_samples = size.source_samples,
            "What stored batches share with the queues of other exporters is missing: files were removed or truncated, or the host lost power. Dropping data."
        );
    }

    /// Drops a batch that was not stored and will not be resent.
    fn drop_new(&self, batch: Batch, reason: DropReason, refusal: &Refusal) {
        let size = Size::of(&batch);
        self.account.not_enqueued(size);
        self.account.dropped(size, reason);
        self.overflow.dropped(size.source_samples, refusal);
        batch.finalizers.settle(refusal.outcome());
    }

    fn observe(&self, settings: &QueueSettings) {
        let state = self.state.lock();
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

    /// Keeps the batch in memory if there is room; keeps its finalizers in any case.
    fn remember(&mut self, place: RecordPosition, mut batch: Batch) {
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

    /// Forgets a dropped batch; returns its finalizers.
    fn forget(&mut self, place: &RecordPosition) -> Finalizers {
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

    /// Removes and returns finalizers of batches that the reader skipped.
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
