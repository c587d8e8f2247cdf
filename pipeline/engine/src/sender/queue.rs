//! The bounded queue in front of an exporter.
//!
//! Its capacity is a semaphore. A batch carries its permits as a finalizer, so that batches in flight or being merged
//! count too: memory stays bounded by `queue_size` whatever the backend does.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use profcol_component::{
    Accumulator, Answer, Batch, Finalizer, Gauge, Limits, Meter, Outcome, QueueBatchSettings,
    QueueSettings, Ready, Refusal, Sizer,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Sender;

pub(crate) struct Queue {
    settings: QueueSettings,
    capacity_permits: Arc<Semaphore>,
    /// `None` once the queue is closed.
    entrance: Mutex<Option<mpsc::UnboundedSender<Batch>>>,
    exit: Mutex<Option<mpsc::UnboundedReceiver<Batch>>>,
    size: Gauge,
    backlog: Backlog,
    /// Shared by all queues of one exporter.
    room: Option<Arc<SharedCapacity>>,
    /// Bounds the bytes of this queue.
    memory: Option<Arc<SharedCapacity>>,
}

/// Bounds what several queues hold together. A batch that moves from one to another takes nothing of the other's
/// capacity, but keeps its share of the room.
#[derive(Debug, Default)]
pub(super) struct SharedCapacity {
    limit: AtomicU64,
    used: AtomicU64,
    /// Notified when there is more room, or it is divided differently.
    changed: Notify,
}

/// A batch's share of the room until it is settled.
struct CapacityShare {
    size: u64,
    room: Arc<SharedCapacity>,
}

/// Batches not yet taken by a consumer.
pub(super) struct Backlog {
    batches: AtomicU64,
    taken: Notify,
    last_taken: Mutex<Instant>,
}

/// Up to this many waiting batches are not a backlog: they keep consumers busy.
const MIN_BACKLOG: u64 = 2;

/// Maximum wait of a sender while the backlog moves.
///
/// While exports merely lag, delaying the answer delays the client's next batch and keeps the queue, and with it
/// memory, small. Senders are released in FIFO order, one for each batch that leaves, so this must exceed the time to
/// export one batch of each sender. It must be well below client timeouts, which are 5 to 10 s by default.
pub(super) const MAX_BACKLOG_WAIT: Duration = Duration::from_secs(1);

/// Maximum wait of a sender while nothing leaves the queue: bounds the delay of clients when the destination is down.
pub(super) const MAX_STALLED_WAIT: Duration = Duration::from_millis(50);

/// A batch's share of the queue until it is settled.
pub(crate) struct QueueSlot {
    size: u32,
    /// Held until the slot is released.
    _held: Held,
}

/// `None` for a batch beyond the capacity. The share of the common room is released last, with a notification.
type Held = Option<(
    OwnedSemaphorePermit,
    Option<CapacityShare>,
    Option<CapacityShare>,
)>;

impl Queue {
    pub(crate) fn new(settings: QueueSettings, exporter: &str, meter: &Meter) -> Self {
        let size = meter.gauge(
            "otelcol_exporter_queue_size",
            "Current size of the sending queue, in units of its sizer.",
            &[("exporter", exporter)],
        );
        capacity_gauge(exporter, meter).set(settings.queue_size as f64);
        let (entrance, exit) = mpsc::unbounded_channel();
        Self {
            capacity_permits: Arc::new(Semaphore::new(capacity_permits(settings.queue_size))),
            settings,
            entrance: Mutex::new(Some(entrance)),
            exit: Mutex::new(Some(exit)),
            backlog: Backlog::holding(0),
            size,
            room: None,
            memory: None,
        }
    }

    /// Takes its capacity from the room, too.
    pub(super) fn within(self, room: &Arc<SharedCapacity>) -> Self {
        Self {
            room: Some(Arc::clone(room)),
            ..self
        }
    }

    /// Holds at most this many bytes, but always one batch.
    pub(super) fn with_memory(self, bytes: u64) -> Self {
        let memory = Arc::new(SharedCapacity::default());
        memory.set_limit(bytes);
        Self {
            memory: Some(memory),
            ..self
        }
    }

    /// Whether it is open and has room for a batch of so many bytes.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let (room, memory) = (self.room.as_ref(), self.memory.as_ref());
        !self.capacity_permits.is_closed()
            && self.capacity_permits.available_permits() > 0
            && room.is_none_or(|it| it.has(1))
            && memory.is_none_or(|it| it.is_empty() || it.has(bytes))
    }

    pub(crate) fn waits_for_result(&self) -> bool {
        self.settings.wait_for_result
    }

    pub(crate) fn close(&self) {
        self.capacity_permits.close();
        self.entrance.lock().take();
    }

    /// Blocks while the entrance lock is held, so that the watchdog notices a deadlock.
    pub(crate) fn wait_for_entrance(&self) {
        drop(self.entrance.lock());
    }

    #[cfg(test)]
    pub(super) fn hold_entrance(&self) -> impl Sized {
        self.entrance.lock()
    }

    /// Reserves room for a batch; waits for it with `block_on_overflow`.
    pub(crate) async fn reserve(&self, batch: &Batch) -> Result<QueueSlot, Refusal> {
        if !self.settings.block_on_overflow {
            return self.try_reserve(batch);
        }
        let size = self.permits_for(batch)?;
        let capacity_permits = Arc::clone(&self.capacity_permits);
        let permit = capacity_permits.acquire_many_owned(size).await;
        let permit = permit.map_err(|_closed| shutting_down())?;
        self.slot(batch, size, permit)
    }

    fn slot(
        &self,
        batch: &Batch,
        size: u32,
        permit: OwnedSemaphorePermit,
    ) -> Result<QueueSlot, Refusal> {
        let room = self.room.as_ref();
        let share = room.map(|room| room.take(size.into())).transpose()?;
        let bytes = self.memory.as_ref();
        let bytes = bytes.map(|memory| memory.take_or_only(batch.profiles.encoded_len() as u64));
        let bytes = bytes.transpose()?;
        Ok(QueueSlot {
            size,
            _held: Some((permit, bytes, share)),
        })
    }

    /// A slot beyond the capacity, for a batch that does not stay in this queue.
    pub(super) fn slot_beyond(&self, batch: &Batch) -> QueueSlot {
        QueueSlot {
            size: self.permits_for(batch).unwrap_or_default(),
            _held: None,
        }
    }

    /// The answer to an enqueued batch; with `wait_for_result` its outcome.
    pub(crate) async fn answer(&self, outcome: oneshot::Receiver<Outcome>) -> Answer {
        if !self.settings.wait_for_result {
            self.backlog.pace().await;
            return Ok(());
        }
        match outcome.await {
            Ok(Outcome::Delivered) => Ok(()),
            Ok(Outcome::Rejected) => Err(Refusal::permanent("the destination refused the batch")),
            Ok(Outcome::Undelivered | Outcome::Lost) | Err(_) => {
                Err(Refusal::retry("the batch could not be delivered"))
            }
        }
    }

    /// Reserves room for a batch without waiting.
    pub(crate) fn try_reserve(&self, batch: &Batch) -> Result<QueueSlot, Refusal> {
        let size = self.permits_for(batch)?;
        let permit = Arc::clone(&self.capacity_permits).try_acquire_many_owned(size);
        let permit = permit.map_err(|full| match full {
            TryAcquireError::NoPermits => full_queue(),
            TryAcquireError::Closed => shutting_down(),
        })?;
        self.slot(batch, size, permit)
    }

    fn permits_for(&self, batch: &Batch) -> Result<u32, Refusal> {
        let size = self.settings.sizer.size(&batch.profiles);
        let count = permits(i64::try_from(size).unwrap_or(i64::MAX));
        if i64::from(count) > self.settings.queue_size {
            return Err(Refusal::permanent(format!(
                "batch of {size} {} exceeds the capacity of the sending queue",
                self.settings.sizer.unit()
            )));
        }
        Ok(count)
    }

    /// Enqueues a batch. The slot is released and the outcome sent when the batch is settled. Returns the batch, too, if
    /// the queue was closed meanwhile.
    pub(crate) fn enqueue(
        &self,
        mut batch: Batch,
        slot: QueueSlot,
    ) -> (oneshot::Receiver<Outcome>, Option<Batch>) {
        let size = slot.size;
        let gauge = self.size.clone();
        gauge.add(f64::from(size));
        let (report, outcome) = oneshot::channel();
        batch.finalizers.add(Finalizer::new(move |outcome| {
            gauge.sub(f64::from(size));
            // The receiver is dropped unless the caller waits for the result.
            let _ = report.send(outcome);
            drop(slot);
        }));
        (outcome, self.move_in(batch))
    }

    /// Adds a batch that has its slot already. Returns it if the queue is closed.
    pub(super) fn move_in(&self, batch: Batch) -> Option<Batch> {
        let entrance = self.entrance.lock();
        let Some(entrance) = entrance.as_ref() else {
            return Some(batch);
        };
        self.backlog.add();
        entrance.send(batch).err().map(|unsent| unsent.0)
    }

    /// Moves batches from the queue to the exporter, `num_consumers` at a time, until the queue is
    /// closed and everything in it is settled.
    pub(crate) async fn dispatch(&self, sender: Arc<Sender>) {
        let Some(mut exit) = self.exit.lock().take() else {
            return;
        };
        let mut consumers = Consumers::new(sender, self.settings.num_consumers);
        match &*self.settings.batch {
            None => {
                while let Some(batch) = exit.recv().await {
                    self.backlog.take();
                    consumers.dispatch_batch(batch).await;
                }
            }
            Some(settings) => {
                self.accumulate(&mut exit, limits(settings), &mut consumers)
                    .await;
            }
        }
        consumers.finish().await;
    }

    async fn accumulate(
        &self,
        exit: &mut mpsc::UnboundedReceiver<Batch>,
        limits: Limits,
        consumers: &mut Consumers,
    ) {
        let mut accumulator = Accumulator::new(limits);
        loop {
            let due = accumulator.next_flush();
            let ready = tokio::select! {
                next = exit.recv() => match next {
                    Some(batch) => {
                        self.backlog.take();
                        accumulator.add(batch, Instant::now()).into_iter().collect()
                    }
                    None => break,
                },
                () = sleep_until(due) => accumulator.flush_due(Instant::now()),
            };
            consumers.dispatch_all(ready).await;
        }
        consumers.dispatch_all(accumulator.flush_all()).await;
    }
}

// === impl SharedCapacity ===

impl SharedCapacity {
    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Waits until there is more room, or it is divided differently.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn note_change(&self) {
        self.changed.notify_one();
    }

    fn is_empty(&self) -> bool {
        self.used.load(Ordering::Relaxed) == 0
    }

    fn has(&self, size: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        used.saturating_add(size) <= self.limit.load(Ordering::Relaxed)
    }

    /// Like [`take`](Self::take), but a batch of any size fits into an empty room.
    fn take_or_only(self: &Arc<Self>, size: u64) -> Result<CapacityShare, Refusal> {
        let taken = self
            .used
            .compare_exchange(0, size, Ordering::Relaxed, Ordering::Relaxed);
        match taken {
            Ok(_) => Ok(CapacityShare {
                size,
                room: Arc::clone(self),
            }),
            Err(_) => self.take(size),
        }
    }

    fn take(self: &Arc<Self>, size: u64) -> Result<CapacityShare, Refusal> {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(size).filter(|used| *used <= limit);
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let share = |_| CapacityShare {
            size,
            room: Arc::clone(self),
        };
        taken.map(share).map_err(|_| full_queue())
    }
}

impl Drop for CapacityShare {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.size, Ordering::Relaxed);
        self.room.note_change();
    }
}

// === impl Backlog ===

impl Backlog {
    pub(super) fn holding(batches: u64) -> Self {
        Self {
            batches: AtomicU64::new(batches),
            taken: Notify::new(),
            last_taken: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn add(&self) {
        self.batches.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn take(&self) {
        let before = self.batches.fetch_sub(1, Ordering::SeqCst);
        *self.last_taken() = Instant::now();
        match before > MIN_BACKLOG + 1 {
            true => self.taken.notify_one(),
            // More senders may wait than batches are left to release them.
            false => self.taken.notify_waiters(),
        }
    }

    /// Batches that will not be taken.
    pub(super) fn lose(&self, batches: u64) {
        let before = self.batches.fetch_sub(batches, Ordering::SeqCst);
        if before <= batches.saturating_add(MIN_BACKLOG) {
            self.taken.notify_waiters();
        }
    }

    /// Waits until a batch is taken, if there is a backlog.
    async fn pace(&self) {
        let taken = self.taken.notified();
        let mut taken = std::pin::pin!(taken);
        // Before the look at the backlog, so as not to miss its end.
        taken.as_mut().enable();
        if self.batches.load(Ordering::SeqCst) > MIN_BACKLOG {
            let moves = self.last_taken().elapsed() < MAX_BACKLOG_WAIT;
            let longest = if moves {
                MAX_BACKLOG_WAIT
            } else {
                MAX_STALLED_WAIT
            };
            // On timeout, proceed.
            let _ = tokio::time::timeout(longest, taken).await;
        }
    }

    /// Like [`pace`](Self::pace), for a queue larger than memory: does not wait if nothing moves.
    pub(super) async fn pace_while_it_moves(&self) {
        if self.last_taken().elapsed() < MAX_BACKLOG_WAIT {
            self.pace().await;
        }
    }

    fn last_taken(&self) -> MutexGuard<'_, Instant> {
        self.last_taken.lock()
    }
}

pub(super) fn limits(settings: &QueueBatchSettings) -> Limits {
    let max_size = usize::try_from(settings.max_size)
        .ok()
        .and_then(NonZeroUsize::new);
    Limits {
        sizer: settings.sizer,
        min_size: u64::try_from(settings.min_size).unwrap_or(0),
        max_samples: max_size.filter(|_| settings.sizer == Sizer::Items),
        max_bytes: max_size.filter(|_| settings.sizer == Sizer::Bytes),
        flush_after: Some(settings.flush_timeout.into()),
        keys: settings.partition.metadata_keys.clone(),
        // Bounded by the queue size.
        max_partitions: usize::MAX,
    }
}

pub(super) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Exports in flight, at most `num_consumers`; aborted on drop.
pub(super) struct Consumers {
    sender: Arc<Sender>,
    slots: Arc<Semaphore>,
    running: JoinSet<()>,
}

impl Consumers {
    pub(super) fn new(sender: Arc<Sender>, limit: i64) -> Self {
        let slots = Arc::new(Semaphore::new(permits(limit) as usize));
        Self {
            sender,
            slots,
            running: JoinSet::new(),
        }
    }

    pub(super) async fn dispatch_all(&mut self, ready: Vec<Ready>) {
        for batch in ready.into_iter().flat_map(Ready::combine) {
            self.dispatch_batch(batch).await;
        }
    }

    pub(super) async fn dispatch_batch(&mut self, batch: Batch) {
        let slot = tokio::select! {
            slot = Arc::clone(&self.slots).acquire_owned() => {
                slot.expect("the consumers' semaphore is never closed")
            }
            // Those in flight may hang.
            () = self.sender.removed() => return self.sender.hand_over(batch).await,
        };
        while let Some(done) = self.running.try_join_next() {
            propagate(done);
        }
        let sender = Arc::clone(&self.sender);
        self.running.spawn(async move {
            // Counters, log and finalizers have the outcome.
            let _ = sender.deliver(batch).await;
            drop(slot);
        });
    }

    /// Aborts exports in flight.
    pub(super) async fn abort(mut self) {
        self.running.shutdown().await;
    }

    pub(super) async fn finish(&mut self) {
        while let Some(done) = self.running.join_next().await {
            propagate(done);
        }
    }
}

/// Propagates an exporter's panic, which ends the process.
pub(super) fn propagate(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

pub(super) fn capacity_gauge(exporter: &str, meter: &Meter) -> Gauge {
    meter.gauge(
        "otelcol_exporter_queue_capacity",
        "Capacity of the sending queue, in units of its sizer.",
        &[("exporter", exporter)],
    )
}

fn capacity_permits(queue_size: i64) -> usize {
    usize::try_from(queue_size.max(1))
        .unwrap_or(usize::MAX)
        .min(Semaphore::MAX_PERMITS)
}

fn permits(size: i64) -> u32 {
    u32::try_from(size.max(1)).unwrap_or(u32::MAX)
}

fn full_queue() -> Refusal {
    Refusal::retry("sending queue is full")
}

fn shutting_down() -> Refusal {
    Refusal::retry("the sending queue is closed: shutting down")
}
