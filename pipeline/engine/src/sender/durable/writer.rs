//! The writer thread, with group commit: requests that arrive during a sync form the next group.

use std::sync::Arc;
use std::sync::atomic::Ordering;
#[cfg(test)]
use std::sync::mpsc::TryRecvError;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::{io, thread};

use profcol_component::{Batch, Finalizers, Outcome, QueueSettings, Refusal};
use profcol_storage::{
    AppendError, Counts, FsyncPolicy, FullCause, Log, RecordPosition, Storage, Unsynced, WhenFull,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Shared;
use super::record::{Record, size_in};
use crate::sender::account::{DropReason, Size};

/// Maximum group size. Its callers hold their batches in memory anyway.
pub(super) const MAX_GROUP: usize = 1024;

/// Time between turns on the runtime's clock.
#[cfg(test)]
pub(super) const TURN: std::time::Duration = std::time::Duration::from_millis(10);

pub(super) enum Request {
    Store {
        batch: Batch,
        record: Record,
        /// `None` for live batches.
        reply: Option<oneshot::Sender<Result<(), Box<RefusedBatch>>>>,
    },
    /// Delivered or dropped.
    Settle(RecordPosition),
    /// No further requests follow.
    Close,
    #[cfg(test)]
    Panic,
}

/// A batch that was not stored.
pub(super) struct RefusedBatch {
    pub batch: Batch,
    pub record: Record,
    pub refusal: Refusal,
    /// Refused because the queue is full: retryable.
    pub is_full: bool,
}

struct Writer {
    shared: Arc<Shared>,
    settings: QueueSettings,
    fsync: FsyncPolicy,
    when_full: WhenFull,
    requests: Receiver<Request>,
    /// When written batches must be synced.
    sync_due: Option<Instant>,
    /// Bytes of batches dropped to make room since one was stored.
    dropped_in_vain: u64,
    is_closed: bool,
}

pub(super) enum RunningWriter {
    Thread(thread::JoinHandle<()>),
    /// On a simulated disk, and on the paused clock.
    #[cfg(test)]
    Task(tokio::task::JoinSet<()>),
}

/// Written batches not yet accepted.
type Written = (
    RecordPosition,
    Batch,
    Record,
    Option<oneshot::Sender<Result<(), Box<RefusedBatch>>>>,
);

/// Writes a record to the log.
type Append = fn(&mut Log, Counts, &[u8], &[u8]) -> Result<RecordPosition, AppendError>;

/// Notifies the dispatcher if the writer panics.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.is_broken.store(true, Ordering::Relaxed);
            self.0.published.notify_one();
        }
    }
}

/// Why a batch does not fit.
#[derive(Debug, thiserror::Error)]
enum NoRoom {
    #[error("sending queue is full")]
    QueueFull,
    #[error("batch of {size} {unit} exceeds the capacity of the sending queue")]
    BatchTooLarge { size: u64, unit: &'static str },
    #[error(transparent)]
    Storage(#[from] AppendError),
}

impl NoRoom {
    /// Whether dropping other batches makes room.
    fn is_full(&self) -> bool {
        self.drop_reason() == DropReason::QueueFull
    }

    fn drop_reason(&self) -> DropReason {
        match self {
            NoRoom::QueueFull | NoRoom::Storage(AppendError::Full(_)) => DropReason::QueueFull,
            NoRoom::BatchTooLarge { .. } | NoRoom::Storage(AppendError::TooLarge { .. }) => {
                DropReason::TooLarge
            }
            NoRoom::Storage(AppendError::Io(_)) => DropReason::StorageFailed,
        }
    }
}

impl From<NoRoom> for Refusal {
    fn from(no_room: NoRoom) -> Self {
        match no_room.drop_reason() {
            DropReason::TooLarge => Refusal::permanent(no_room),
            _ => Refusal::retry(no_room),
        }
    }
}

impl RunningWriter {
    pub(super) fn start(
        shared: Arc<Shared>,
        settings: QueueSettings,
        storage: &Storage,
        requests: Receiver<Request>,
    ) -> io::Result<Self> {
        let writer = Writer::new(shared, settings, storage, requests);
        #[cfg(test)]
        if storage.is_simulated() {
            let mut task = tokio::task::JoinSet::new();
            task.spawn_on(writer.run_on_clock(), &tokio::runtime::Handle::current());
            return Ok(Self::Task(task));
        }
        let thread = thread::Builder::new().name("storage".to_owned());
        Ok(Self::Thread(thread.spawn(move || writer.run())?))
    }

    /// Waits for its end, and propagates its panic.
    pub(super) async fn join(self) {
        match self {
            Self::Thread(thread) => {
                let joined = tokio::task::spawn_blocking(move || thread.join()).await;
                if let Ok(Err(panic)) = joined {
                    std::panic::resume_unwind(panic);
                }
            }
            #[cfg(test)]
            Self::Task(task) => drop(task.join_all().await),
        }
    }
}

impl Writer {
    fn new(
        shared: Arc<Shared>,
        settings: QueueSettings,
        storage: &Storage,
        requests: Receiver<Request>,
    ) -> Self {
        let options = storage.options();
        let mut writer = Self {
            shared,
            settings,
            fsync: options.fsync,
            when_full: options.when_full,
            requests,
            sync_due: None,
            dropped_in_vain: 0,
            is_closed: false,
        };
        // A killed run may have left batches that are not synced.
        writer.plan_sync();
        writer
    }

    /// Runs until the queue is closed and earlier requests are done.
    fn run(mut self) {
        let _guard = PanicGuard(Arc::clone(&self.shared));
        while !self.is_closed {
            let first = match self.sync_due {
                None => self.requests.recv().map_err(RecvTimeoutError::from),
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    self.requests.recv_timeout(left)
                }
            };
            match first {
                Ok(first) => self.turn(Some(first)),
                Err(RecvTimeoutError::Timeout) => self.turn(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.finish();
    }

    /// The same on the runtime's clock, which a thread does not see when it is paused.
    #[cfg(test)]
    async fn run_on_clock(mut self) {
        let _guard = PanicGuard(Arc::clone(&self.shared));
        while !self.is_closed {
            match self.requests.try_recv() {
                Ok(first) => self.turn(Some(first)),
                Err(TryRecvError::Empty) => self.turn(None),
                Err(TryRecvError::Disconnected) => break,
            }
            tokio::time::sleep(TURN).await;
        }
        self.finish();
    }

    /// Handles a request with those that wait behind it, then syncs what is due.
    fn turn(&mut self, first: Option<Request>) {
        if let Some(first) = first {
            self.work(first);
        }
        if self.sync_due.is_some_and(|due| due <= Instant::now()) {
            self.sync_or_seal();
        }
        self.shared.observe(&self.settings);
    }

    fn finish(mut self) {
        // Truncates the log of an empty queue.
        self.shared.state.lock().log.reclaim_active();
        if self.fsync != FsyncPolicy::Never {
            self.sync_or_seal();
        }
        self.shared.observe(&self.settings);
    }

    fn work(&mut self, first: Request) {
        let mut settled = Vec::new();
        let mut written = Vec::new();
        let mut next = Some(first);
        let mut requests = 0;
        while let Some(request) = next {
            match request {
                Request::Close => self.is_closed = true,
                #[cfg(test)]
                Request::Panic => panic!("requested by the test"),
                Request::Settle(place) => settled.push(place),
                Request::Store {
                    batch,
                    record,
                    reply,
                } => {
                    // Settling may make room.
                    self.settle(&mut settled);
                    written.extend(self.write(batch, record, reply));
                }
            }
            requests += 1;
            next = match requests < MAX_GROUP {
                true => self.requests.try_recv().ok(),
                false => None,
            };
        }
        self.settle(&mut settled);
        if !written.is_empty() {
            self.commit(written);
        }
    }

    fn settle(&self, settled: &mut Vec<RecordPosition>) {
        if !settled.is_empty() {
            self.shared.state.lock().log.settle(settled);
            settled.clear();
            self.shared.room.notify_waiters();
        }
    }

    fn write(
        &mut self,
        batch: Batch,
        record: Record,
        reply: Option<oneshot::Sender<Result<(), Box<RefusedBatch>>>>,
    ) -> Option<Written> {
        if batch.is_dropped_on_overflow() {
            self.shared.live.fetch_sub(1, Ordering::Relaxed);
        }
        self.write_as(batch, record, reply, Log::append)
    }

    fn write_as(
        &mut self,
        batch: Batch,
        record: Record,
        reply: Option<oneshot::Sender<Result<(), Box<RefusedBatch>>>>,
        append: Append,
    ) -> Option<Written> {
        let mut stored = self.append(&record, append);
        while self.when_full == WhenFull::DropOldest
            && stored.as_ref().is_err_and(|full| self.may_drop(full))
            && let Some(bytes) = self.drop_oldest()
        {
            self.dropped_in_vain += bytes;
            stored = self.append(&record, append);
        }
        let no_room = match stored {
            Ok(place) => {
                self.dropped_in_vain = 0;
                return Some((place, batch, record, reply));
            }
            Err(no_room) => no_room,
        };
        let (reason, is_full) = (no_room.drop_reason(), no_room.is_full());
        let refusal = Refusal::from(no_room);
        match reply {
            Some(reply) if is_full && self.when_full == WhenFull::DropNewest => {
                self.shared.drop_new(batch, reason, &refusal);
                let _ = reply.send(Ok(()));
            }
            Some(reply) => {
                // A caller that hung up still has the batch.
                let _ = reply.send(Err(Box::new(RefusedBatch {
                    batch,
                    record,
                    refusal,
                    is_full,
                })));
            }
            None => self.shared.drop_new(batch, reason, &refusal),
        }
        None
    }

    fn append(&self, record: &Record, append: Append) -> Result<RecordPosition, NoRoom> {
        let size = size_in(self.settings.sizer, &record.counts);
        let capacity = u64::try_from(self.settings.queue_size).unwrap_or(0);
        if size > capacity {
            let unit = self.settings.sizer.unit();
            return Err(NoRoom::BatchTooLarge { size, unit });
        }
        if self
            .shared
            .size
            .load(Ordering::Relaxed)
            .saturating_add(size)
            > capacity
        {
            return Err(NoRoom::QueueFull);
        }
        let mut state = self.shared.state.lock();
        let place = append(&mut state.log, record.counts, &record.head, &record.body)?;
        self.shared.size.fetch_add(size, Ordering::Relaxed);
        Ok(place)
    }

    /// Whether dropping another batch may make room.
    fn may_drop(&self, no_room: &NoRoom) -> bool {
        match no_room {
            // What another queue has too takes as much of the disk as before: it is not worth all batches.
            NoRoom::Storage(AppendError::Full(FullCause::Disk)) => {
                let state = self.shared.state.lock();
                let enough = 2 * state.log.limits().segment_bytes;
                !state.log.holds_shared_bodies() || self.dropped_in_vain <= enough
            }
            no_room => no_room.is_full(),
        }
    }

    /// Drops the oldest batch, and returns its bytes. `None` if all remaining batches are being exported.
    fn drop_oldest(&self) -> Option<u64> {
        let mut state = self.shared.state.lock();
        if let Some(parked) = state.parked.take_oldest_whole() {
            state.log.settle(&[parked.place]);
            drop(state);
            parked.evicted.set();
            self.evicted(parked.size, parked.finalizers);
            return Some(parked.place.bytes());
        }
        let dropped = state.log.drop_oldest()?;
        let bytes = dropped.as_ref().map_or(0, RecordPosition::bytes);
        match dropped {
            Ok(place) => {
                let finalizers = state.forget(&place);
                drop(state);
                let size = Size::stored(&place.counts);
                let units = size_in(self.settings.sizer, &place.counts);
                self.shared.size.fetch_sub(units, Ordering::Relaxed);
                self.shared.backlog.take();
                self.evicted(size, finalizers);
            }
            Err(corrupt) => {
                let finalizers = state.forget_passed();
                drop(state);
                self.shared.backlog.lose(corrupt.counts.batches);
                self.shared
                    .lost(&corrupt, &corrupt.damage.to_string(), Some(finalizers));
            }
        }
        Some(bytes)
    }

    fn evicted(&self, size: Size, finalizers: Finalizers) {
        self.shared.account.failed(size, true);
        self.shared.account.dropped(size, DropReason::Evicted);
        let refusal = Refusal::retry("dropped to make room for newer batches");
        self.shared.overflow.dropped(size.source_samples, &refusal);
        finalizers.settle(Outcome::Undelivered);
    }

    /// Accepts the written batches.
    fn commit(&mut self, mut written: Vec<Written>) {
        if self.fsync == FsyncPolicy::Always {
            let unsynced = self.shared.state.lock().log.unsynced();
            let mut synced = self.sync(&unsynced);
            if synced.is_err() && unsynced.has_bodies() {
                // It may be the fault of a file that is not needed.
                written = self.write_copies(written);
                let unsynced = self.shared.state.lock().log.unsynced();
                synced = self.sync(&unsynced);
            }
            if let Err(error) = synced {
                self.withdraw(written, &error);
                return;
            }
        }
        let mut state = self.shared.state.lock();
        state.log.publish();
        let reused = state.log.take_reused_bytes();
        self.shared.metrics.shared_bytes.inc_by(reused);
        let mut replies = Vec::with_capacity(written.len());
        for (place, batch, record, reply) in written {
            let size = Size::stored(&record.counts);
            self.shared.account.accepted(size);
            self.shared.metrics.stored_batches.inc();
            self.shared
                .metrics
                .stored_bytes
                .inc_by(record.body.len() as u64);
            self.shared.backlog.add();
            state.remember(place, batch);
            replies.extend(reply);
        }
        drop(state);
        self.shared.overflow.ended();
        self.shared.published.notify_one();
        for reply in replies {
            // The caller may have hung up.
            let _ = reply.send(Ok(()));
        }
        self.plan_sync();
    }

    /// Plans the next sync, unless one is planned.
    fn plan_sync(&mut self) {
        if let FsyncPolicy::Interval(interval) = self.fsync {
            self.sync_due
                .get_or_insert_with(|| Instant::now() + interval);
        }
    }

    /// Writes batches again, without bodies that other queues share.
    fn write_copies(&mut self, written: Vec<Written>) -> Vec<Written> {
        self.shared.state.lock().log.withdraw();
        let copies = written.into_iter().filter_map(|(_, batch, record, reply)| {
            let units = size_in(self.settings.sizer, &record.counts);
            self.shared.size.fetch_sub(units, Ordering::Relaxed);
            self.write_as(batch, record, reply, Log::append_copy)
        });
        copies.collect()
    }

    /// Refuses batches that could not be made durable.
    fn withdraw(&self, written: Vec<Written>, error: &io::Error) {
        self.shared.state.lock().log.withdraw();
        for (_, batch, record, reply) in written {
            let units = size_in(self.settings.sizer, &record.counts);
            self.shared.size.fetch_sub(units, Ordering::Relaxed);
            let refusal = Refusal::retry(format!("failed to make the batch durable: {error}"));
            match reply {
                Some(reply) => {
                    let _ = reply.send(Err(Box::new(RefusedBatch {
                        batch,
                        record,
                        refusal,
                        is_full: false,
                    })));
                }
                None => self
                    .shared
                    .drop_new(batch, DropReason::StorageFailed, &refusal),
            }
        }
    }

    fn sync_or_seal(&mut self) {
        self.sync_due = None;
        let unsynced = self.shared.state.lock().log.unsynced();
        if self.sync(&unsynced).is_err() {
            // After a failed fsync the kernel may have dropped dirty pages; append to a new segment.
            self.shared.state.lock().log.seal();
        }
    }

    fn sync(&self, unsynced: &Unsynced) -> io::Result<()> {
        if unsynced.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let synced = match self.fsync {
            FsyncPolicy::Always => unsynced.sync_or_stop(),
            FsyncPolicy::Interval(_) | FsyncPolicy::Never => unsynced.sync(),
        };
        self.shared
            .metrics
            .fsync
            .observe(began.elapsed().as_secs_f64());
        if let Err(error) = &synced {
            self.shared.metrics.failed_syncs.inc();
            tracing::error!(
                otelcol.component.id = %self.shared.exporter,
                otelcol.component.kind = "exporter",
                %error,
                "Failed to make the stored queue durable; batches may be lost if the host loses power."
            );
        }
        synced
    }
}
