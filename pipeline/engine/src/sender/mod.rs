//! Everything between a pipeline and an exporter: queue, batching, retry, timeout, counting.
//!
//! ```text
//!            full? refuse, wait, or drop (live sources)
//! consume ──► queue ──► dispatcher ──► (accumulator: merge, split) ──► up to num_consumers exports
//!                                                                       each: timeout, retry, split
//! ```
//!
//! Each exporter has its own sender, so that a slow or dead one does not affect others. With the queue disabled the
//! caller waits for the export and gets its answer; live batches always go through a queue, as their source cannot
//! wait, unless a connector has an alternative for them.

mod account;
mod balancer;
mod durable;
mod health;
mod log_schedule;
mod metrics;
mod overflow;
mod queue;
mod retry;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use profcol_component::{
    Answer, Batch, BatchId, ComponentStatus, Consumer, Delivered, Delivery, Exporter, Finalizers,
    Kind, Meter, Outcome, QueueSettings, Refusal, RetrySettings, Side, Source, StartError, Stop,
    Tap, TapPoint, Taps, Undelivered,
};
use profcol_profile::{Bound, Profiles};
use profcol_storage::Storage;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::account::{Account, Size};
pub use self::account::{DropReason, ExporterBalance, ExporterProgress};
use self::balancer::{Balancer, Common};
use self::durable::DurableQueue;
pub use self::durable::{InvalidRecord, batch_of};
use self::health::{DestinationHealth, Health};
use self::metrics::StorageMetrics;
use self::overflow::OverflowLog;
use self::queue::{Queue, QueueSlot};
use self::retry::Backoff;

/// How often a batch may be split because the destination finds it too large.
///
/// Each split at least halves the backend's limit, so a well-behaved backend never gets here.
const MAX_SPLITS: u32 = 16;

/// Maximum wait between attempts during shutdown, unless the destination asks for a longer one.
const MAX_SHUTDOWN_INTERVAL: Duration = Duration::from_secs(1);

/// Time reserved before the shutdown deadline for the final attempt.
const FINAL_ATTEMPT_TIME: Duration = Duration::from_millis(500);

/// Delivers batches to one exporter.
pub(crate) struct Sender {
    exporter: Arc<dyn Exporter>,
    name: String,
    delivery: Delivery,
    queue: Queue,
    storage: Option<StoredQueue>,
    account: Arc<Account>,
    overflow: Arc<OverflowLog>,
    health: DestinationHealth,
    /// `None` for one of several destinations.
    tap: Option<Arc<Tap>>,
    stopping: Stopping,
    /// For an exporter with several destinations: each has its own sender.
    balancer: Option<Arc<Balancer>>,
    /// For one of several destinations.
    removal: Option<Removal>,
}

/// Whether a destination was removed, and the balancer that passes its undelivered batches to others.
struct Removal {
    removed: Stop,
    balancer: Weak<Balancer>,
}

/// The storage of the queue, and the queue once open.
struct StoredQueue {
    storage: Arc<Storage>,
    metrics: StorageMetrics,
    opened: OnceLock<Arc<DurableQueue>>,
}

/// Interrupts waits between retries, and holds the deadline for attempts after that.
#[derive(Default)]
struct Stopping {
    stop: Stop,
    closing: OnceLock<Closing>,
}

/// Until when a closed sender delivers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    pub(crate) deadline: Instant,
    /// What happens to batches that are not delivered by then.
    pub(crate) reason: DropReason,
    /// Leaves a stored queue to the exporter's next instance, except for batches in flight.
    pub(crate) hands_over: bool,
}

/// The retries of a batch, and later of its undelivered part.
#[derive(Clone)]
struct Retries {
    backoff: Backoff,
    has_retried: bool,
}

/// Why a batch or a piece of it was not delivered.
struct Failed {
    refusal: Refusal,
    /// The batch is still in the stored queue, which delivers it later.
    stays_stored: bool,
}

// === impl Sender ===

impl Sender {
    /// `storage` is the extension named in the exporter's settings.
    pub(crate) fn new(
        exporter: Arc<dyn Exporter>,
        name: &str,
        meter: &Meter,
        status: &ComponentStatus,
        storage: Option<Arc<Storage>>,
        taps: &Taps,
    ) -> Arc<Self> {
        let delivery = exporter.delivery();
        let settings = delivery.queue.clone();
        let storage = storage
            .zip(settings.as_ref())
            .map(|(storage, settings)| StoredQueue {
                storage,
                metrics: StorageMetrics::new(settings, name, meter),
                opened: OnceLock::new(),
            });
        let queue = match settings {
            Some(settings) if storage.is_none() => Queue::new(settings, name, meter),
            _ => Queue::new(QueueSettings::for_live_sources(), name, &Meter::default()),
        };
        let account = Arc::new(Account::new(name, meter));
        let overflow = Arc::new(OverflowLog::new(name));
        let health = Health::new(name, status);
        let balancer = exporter.destinations().map(|destinations| {
            let (account, overflow) = (Arc::clone(&account), Arc::clone(&overflow));
            let is_stored = storage.is_some();
            let common = Common::new(
                name,
                delivery.clone(),
                account,
                overflow,
                Arc::clone(&health),
                meter,
                is_stored,
            );
            Balancer::new(destinations, common, meter)
        });
        let tap = taps.tap(TapPoint {
            kind: Kind::Exporter,
            id: name.to_owned(),
            pipeline: None,
            side: Side::Input,
        });
        Arc::new(Self {
            exporter,
            name: name.to_owned(),
            delivery,
            queue,
            storage,
            account,
            overflow,
            health: health.of_destination(),
            tap: Some(tap),
            stopping: Stopping::default(),
            balancer,
            removal: None,
        })
    }

    /// A sender to one of several destinations.
    fn of_destination(
        exporter: Arc<dyn Exporter>,
        common: &Common,
        balancer: Weak<Balancer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            exporter,
            name: common.name.clone(),
            delivery: common.delivery.clone(),
            queue: common.queue(),
            storage: None,
            account: Arc::clone(&common.account),
            overflow: Arc::clone(&common.overflow),
            health: common.health.of_destination(),
            tap: None,
            stopping: Stopping::default(),
            balancer: None,
            removal: Some(Removal {
                removed: Stop::new(),
                balancer,
            }),
        })
    }

    /// Prepares for the first batch: opens the stored queue, if any.
    pub(crate) async fn open(&self) -> Result<(), StartError> {
        self.open_queue().await?;
        if let Some(balancer) = &self.balancer {
            balancer.open(self.durable().map(Arc::clone));
        }
        Ok(())
    }

    async fn open_queue(&self) -> Result<(), StartError> {
        let Some((stored, settings)) = self.storage.as_ref().zip(self.delivery.queue.clone())
        else {
            return Ok(());
        };
        let (storage, metrics) = (Arc::clone(&stored.storage), stored.metrics.clone());
        let (account, overflow) = (Arc::clone(&self.account), Arc::clone(&self.overflow));
        let name = self.name.clone();
        let opening = tokio::task::spawn_blocking(move || {
            DurableQueue::open(&storage, settings, &name, account, overflow, metrics)
        });
        let opened = match opening.await {
            Ok(opened) => opened.map_err(StartError::new)?,
            Err(error) => {
                return Err(StartError::new(format!(
                    "failed to open the stored queue: {error}"
                )));
            }
        };
        // Opened only once.
        let _ = stored.opened.set(Arc::new(opened));
        Ok(())
    }

    fn durable(&self) -> Option<&Arc<DurableQueue>> {
        self.storage.as_ref()?.opened.get()
    }

    /// The stored queue that its batches come from, its own or that of all destinations.
    fn origin(&self) -> Option<Arc<DurableQueue>> {
        let own = self.durable().map(Arc::clone);
        own.or_else(|| {
            let balancer = self.removal.as_ref()?.balancer.upgrade()?;
            balancer.durable().map(Arc::clone)
        })
    }

    pub(crate) fn exporter(&self) -> Arc<dyn Exporter> {
        Arc::clone(&self.exporter)
    }

    /// Whether it divides batches between several destinations.
    pub(crate) fn divides(&self) -> bool {
        self.balancer.is_some()
    }

    /// Delivers until it is closed and empty.
    pub(crate) async fn run(self: Arc<Self>) {
        match &self.balancer {
            Some(balancer) => balancer.run(&self.stopping).await,
            None => Arc::clone(&self).dispatch().await,
        }
    }

    async fn dispatch(self: Arc<Self>) {
        match self.durable() {
            Some(durable) => durable.dispatch(Arc::clone(&self), &self.stopping).await,
            None => self.queue.dispatch(Arc::clone(&self)).await,
        }
    }

    /// Whether the queue is on disk.
    pub(crate) fn is_stored(&self) -> bool {
        self.storage.is_some()
    }

    /// Stops accepting batches. Queued ones are tried immediately and retried until the deadline.
    pub(crate) fn close(&self, closing: Closing) {
        self.stopping.begin(closing);
        if let Some(balancer) = &self.balancer {
            balancer.close(closing);
        }
        self.queue.close();
        if let Some(durable) = self.durable() {
            if closing.hands_over {
                durable.leave_rest_stored();
            }
            durable.close();
        }
    }

    /// Call after [`run`](Self::run) has ended or was aborted: writes off accepted samples without an outcome, and
    /// returns the balance.
    pub(crate) fn balance(&self) -> ExporterBalance {
        if let Some(durable) = self.durable() {
            let (batches, samples) = (durable.stored_batches(), self.account.leave_stored());
            if batches > 0 {
                tracing::info!(
                    otelcol.component.id = %self.name,
                    otelcol.component.kind = "exporter",
                    stored_batches = batches,
                    stored_samples = samples,
                    "The stored queue keeps undelivered batches for the next start."
                );
            }
            return self.account.balance(&self.name, samples);
        }
        let reason = self.stopping.reason();
        let undelivered = self.account.write_off(reason);
        if undelivered > 0 {
            tracing::error!(
                otelcol.component.id = %self.name,
                otelcol.component.kind = "exporter",
                reason = reason.name(),
                error = "not delivered before the deadline",
                dropped_samples = undelivered,
                "Exporting failed. Dropping data."
            );
        }
        self.account.balance(&self.name, 0)
    }

    /// The outcomes so far.
    pub(crate) fn progress(&self) -> ExporterProgress {
        self.queue.wait_for_entrance();
        if let Some(balancer) = &self.balancer {
            balancer.wait_for_entrances();
        }
        self.account.progress(&self.name)
    }

    /// Delivers one batch and settles its finalizers.
    pub(crate) async fn deliver(&self, mut batch: Batch) -> Answer {
        if self.leaves_rest_stored() {
            // Without an outcome it stays in the stored queue.
            return Err(Refusal::retry(
                "the stored queue keeps it for the next start",
            ));
        }
        let finalizers = std::mem::take(&mut batch.finalizers);
        match self.attempt(batch, &finalizers, 0).await {
            Ok(()) => {
                finalizers.settle(Outcome::Delivered);
                Ok(())
            }
            Err(Failed {
                refusal,
                stays_stored,
            }) => {
                // Without an outcome it stays in the stored queue.
                if !stays_stored {
                    finalizers.settle(refusal.outcome());
                }
                Err(refusal)
            }
        }
    }

    /// For one of several destinations: another batch could not be delivered during the shutdown.
    fn leaves_rest_stored(&self) -> bool {
        self.removal.is_some()
            && self.stopping.has_begun()
            && self
                .origin()
                .is_some_and(|origin| origin.leaves_rest_stored())
    }

    /// `finalizers` are those of the whole batch, for a piece that another destination gets.
    async fn attempt(
        &self,
        batch: Batch,
        finalizers: &Finalizers,
        splits: u32,
    ) -> Result<(), Failed> {
        if self.is_removed() && self.is_queued(&batch) {
            self.hand_over_with(finalizers, batch).await;
            return Ok(());
        }
        let retries = self.retries_of(&batch);
        self.attempt_after(None, batch, finalizers, splits, retries)
            .await
    }

    /// Delivers a batch; if it was refused before, after the wait for that.
    async fn attempt_after(
        &self,
        refused: Option<Refusal>,
        batch: Batch,
        finalizers: &Finalizers,
        splits: u32,
        mut retries: Retries,
    ) -> Result<(), Failed> {
        let settled = self.retry_until_settled(&batch, refused, &mut retries);
        match settled.await {
            Err((Refusal::TooLarge { limit_bytes, .. }, _)) if splits < MAX_SPLITS => {
                self.deliver_in_pieces(batch, finalizers, limit_bytes, splits + 1)
                    .await
            }
            Err((Refusal::Retry { .. }, _)) if self.is_removed() && self.is_queued(&batch) => {
                self.hand_over_with(finalizers, batch).await;
                Ok(())
            }
            Ok((delivered, lost)) => {
                self.count_delivered(&batch, &delivered, lost);
                self.deliver_rest(batch, finalizers, delivered.undelivered, splits, retries)
                    .await
            }
            Err((refusal, reason)) => {
                let was_cut_off = matches!(reason, DropReason::Shutdown | DropReason::Reload);
                let durable = self.origin().filter(|_| was_cut_off);
                match &durable {
                    Some(durable) => durable.leave_rest_stored(),
                    None => self.count_failed(&batch, &refusal, reason),
                }
                let stays_stored = durable.is_some();
                Err(Failed {
                    refusal,
                    stays_stored,
                })
            }
        }
    }

    /// Continues with the parts of a batch that were not delivered. Those to be retried go together, except what may have
    /// arrived: only alone it is recognized.
    async fn deliver_rest(
        &self,
        batch: Batch,
        finalizers: &Finalizers,
        undelivered: Vec<Undelivered>,
        splits: u32,
        retries: Retries,
    ) -> Result<(), Failed> {
        let (again, alone): (Vec<_>, Vec<_>) = undelivered
            .into_iter()
            .partition(|part| part.refusal.is_retryable() && part.id.is_none());
        let retried = again.iter().map(|part| part.refusal.clone());
        let retried = retried.reduce(Refusal::prevailing).map(|refusal| {
            let profiles = Profiles::merge(again.into_iter().map(|part| part.profiles));
            Undelivered {
                id: None,
                profiles,
                refusal,
            }
        });
        let deliveries = alone.into_iter().chain(retried).map(|part| {
            let Undelivered {
                id,
                profiles,
                refusal,
            } = part;
            // Which part it is depends on what the destination took this time.
            let id = id.unwrap_or_else(BatchId::unique);
            let part = batch.clone().with_id(id).with_profiles(profiles);
            let refusal = Some(refusal);
            Box::pin(self.attempt_after(refusal, part, finalizers, splits, retries.clone()))
        });
        // At once: each waits before it is tried again.
        let answers = join_all(deliveries).await;
        answers.into_iter().fold(Ok(()), worse)
    }

    async fn deliver_in_pieces(
        &self,
        batch: Batch,
        finalizers: &Finalizers,
        limit_bytes: usize,
        splits: u32,
    ) -> Result<(), Failed> {
        // The limit applies to the message, whose size may differ from that of the batch.
        let bytes = batch.profiles.encoded_len();
        let limit_bytes = if limit_bytes < bytes {
            limit_bytes
        } else {
            bytes / 2
        };
        let split = batch.profiles.split(Bound::Bytes(limit_bytes));
        let ids = batch.id.of_pieces(&split);
        let mut answer = Ok(());
        if let Some(oversize) = split.oversize {
            let reason =
                format!("single samples exceed the message size limit of {limit_bytes} bytes");
            let refusal = Refusal::permanent(reason);
            let oversize = batch.clone().with_profiles(oversize);
            self.count_failed(&oversize, &refusal, DropReason::TooLarge);
            let stays_stored = false;
            answer = Err(Failed {
                refusal,
                stays_stored,
            });
        }
        for (id, profiles) in ids.into_iter().zip(split.pieces) {
            let piece = batch.clone().with_id(id).with_profiles(profiles);
            let next = Box::pin(self.attempt(piece, finalizers, splits)).await;
            answer = worse(answer, next);
        }
        answer
    }

    fn retries_of(&self, batch: &Batch) -> Retries {
        let is_live_inline = self.delivery.queue.is_none() && batch.is_dropped_on_overflow();
        let backoff = match is_live_inline {
            // A live batch is not resent, so it is retried even by an exporter without retries.
            true => Backoff::new(&RetrySettings::default()),
            false => Backoff::new(&self.delivery.retry),
        };
        Retries {
            backoff,
            has_retried: false,
        }
    }

    /// Retries until the batch or a part of it is delivered, it is permanently refused, or out of time. Returns the
    /// samples that the exporter failed to read, too.
    async fn retry_until_settled(
        &self,
        batch: &Batch,
        refused: Option<Refusal>,
        retries: &mut Retries,
    ) -> Result<(Delivered, Size), (Refusal, DropReason)> {
        if let Some(refusal) = refused {
            self.wait_before_retry(refusal, retries).await?;
        }
        loop {
            let profiles = batch.profiles.clone().tracked();
            let exported = batch.detached().with_profiles(profiles);
            match self.try_once(&exported).await {
                Ok(delivered) => return Ok((delivered, Size::lost(&exported))),
                Err(refusal) => self.wait_before_retry(refusal, retries).await?,
            }
        }
    }

    /// Waits before the next attempt, unless there is none.
    async fn wait_before_retry(
        &self,
        refusal: Refusal,
        retries: &mut Retries,
    ) -> Result<(), (Refusal, DropReason)> {
        let Refusal::Retry { reason, after } = &refusal else {
            let reason = match &refusal {
                Refusal::TooLarge { .. } => DropReason::TooLarge,
                _ => DropReason::Rejected,
            };
            return Err((refusal, reason));
        };
        // Another destination gets it, or its source sends it again.
        let next = match self.is_removed() {
            true => None,
            false => retries.backoff.next(*after),
        };
        let Some(wait) = next else {
            let given_up = match retries.has_retried {
                true => Refusal::retry(format!("no more retries left: {reason}")),
                false => refusal,
            };
            return Err((given_up, DropReason::RetriesExhausted));
        };
        let Some(wait) = self.within_deadline(wait, *after) else {
            let cause = self.stopping.reason();
            let interrupted = format!("interrupted due to {}: {reason}", cause.name());
            return Err((Refusal::retry(interrupted), cause));
        };
        self.health.log_retry(reason, wait);
        retries.has_retried = true;
        match self.stopping.deadline() {
            Some(_) => tokio::time::sleep(wait).await,
            None => tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stopping.stop.cancelled() => {}
                () = self.removed() => return Err((refusal, DropReason::RetriesExhausted)),
            },
        }
        Ok(())
    }

    /// The wait before the next attempt: short during shutdown, `None` if there is no time left.
    fn within_deadline(&self, wait: Duration, server_delay: Option<Duration>) -> Option<Duration> {
        let Some(deadline) = self.stopping.deadline() else {
            return Some(wait);
        };
        if self.origin().is_some() {
            // The next run continues with it.
            return None;
        }
        let left = deadline
            .saturating_duration_since(Instant::now())
            .checked_sub(FINAL_ATTEMPT_TIME)?;
        let wait = wait
            .min(MAX_SHUTDOWN_INTERVAL)
            .max(server_delay.unwrap_or_default());
        Some(wait.min(left)).filter(|wait| !wait.is_zero())
    }

    async fn try_once(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let _timer = self.account.duration.start_timer();
        let export = self.exporter.export(batch);
        let answer = match self.delivery.timeout {
            None | Some(Duration::ZERO) => export.await,
            Some(timeout) => tokio::time::timeout(timeout, export)
                .await
                .unwrap_or_else(|_| {
                    let timeout = profcol_config::Duration::from(timeout);
                    Err(Refusal::retry(format!(
                        "no response within the timeout of {timeout}"
                    )))
                }),
        };
        self.health.note(&answer);
        let delivered = answer?;
        if delivered.rejected_profiles > 0 || !delivered.message.is_empty() {
            tracing::warn!(
                otelcol.component.id = %self.name,
                otelcol.component.kind = "exporter",
                message_from_backend = %delivered.message,
                dropped_profiles = delivered.rejected_profiles,
                "Partial success response"
            );
        }
        Ok(delivered)
    }

    fn count_delivered(&self, batch: &Batch, delivered: &Delivered, lost: Size) {
        if lost.samples > 0 {
            self.account.failed(lost, self.is_queued(batch));
            self.account.dropped(lost, DropReason::DecodeFailed);
        }
        let parts = delivered.undelivered.iter();
        let left =
            parts.map(|part| Size::of(&batch.detached().with_profiles(part.profiles.clone())));
        let size = left.fold(Size::of(batch) - lost, |size, left| size - left);
        let rejected = size.share(delivered.rejected_profiles, batch.profiles.profile_count());
        self.account
            .delivered(size - rejected, self.is_queued(batch));
        if rejected.samples > 0 {
            self.account.failed(rejected, self.is_queued(batch));
            self.account.dropped(rejected, DropReason::PartialSuccess);
        }
    }

    fn count_failed(&self, batch: &Batch, refusal: &Refusal, reason: DropReason) {
        let size = Size::of(batch);
        self.account.failed(size, self.is_queued(batch));
        if batch.source == Source::Recorded {
            tracing::error!(
                otelcol.component.id = %self.name,
                otelcol.component.kind = "exporter",
                error = %refusal,
                samples = size.source_samples,
                "Exporting failed. The recording keeps the data."
            );
            return;
        }
        // A caller that gets the answer still holds the batch.
        let verb = if self.answers_with_outcome(batch) {
            "Rejecting"
        } else {
            self.account.dropped(size, reason);
            "Dropping"
        };
        tracing::error!(
            otelcol.component.id = %self.name,
            otelcol.component.kind = "exporter",
            error = %refusal,
            dropped_samples = size.source_samples,
            "Exporting failed. {verb} data."
        );
    }

    fn is_queued(&self, batch: &Batch) -> bool {
        self.delivery.queue.is_some() || batch.is_dropped_on_overflow()
    }

    fn answers_with_outcome(&self, batch: &Batch) -> bool {
        !batch.is_dropped_on_overflow()
            && (self.delivery.queue.is_none() || self.queue.waits_for_result())
    }

    /// Whether this is the sender to this instance of a destination.
    fn is_for(&self, exporter: &Arc<dyn Exporter>) -> bool {
        Arc::ptr_eq(&self.exporter, exporter)
    }

    /// Its destination is gone: undelivered batches go to others.
    fn remove(&self) {
        if let Some(removal) = &self.removal {
            removal.removed.cancel();
        }
        self.queue.close();
    }

    fn is_removed(&self) -> bool {
        let removal = self.removal.as_ref();
        removal.is_some_and(|removal| removal.removed.is_cancelled())
    }

    async fn removed(&self) {
        match &self.removal {
            Some(removal) => removal.removed.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Passes an accepted batch of a removed destination to others.
    fn hand_over(&self, batch: Batch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let removal = self.removal.as_ref();
            // It runs the tasks that call this, so it is there.
            if let Some(balancer) = removal.and_then(|removal| removal.balancer.upgrade()) {
                balancer.adopt(batch).await;
            }
        })
    }

    async fn hand_over_with(&self, finalizers: &Finalizers, batch: Batch) {
        let finalizers = finalizers.clone();
        self.hand_over(Batch {
            finalizers,
            ..batch
        })
        .await;
    }

    /// Reserves room for a batch. One that was divided before its destination was removed needs none here: it moves on.
    async fn reserve(&self, batch: &Batch) -> Result<QueueSlot, Refusal> {
        let reserved = match batch.source {
            // Its source cannot wait, but another exporter may have room.
            Source::Live => self.queue.try_reserve(batch),
            Source::Replayable | Source::Recorded => self.queue.reserve(batch).await,
        };
        match reserved {
            Err(Refusal::Retry { .. }) if self.is_removed() => Ok(self.queue.slot_beyond(batch)),
            reserved => reserved,
        }
    }

    /// Enqueues an accepted batch.
    async fn enqueue(&self, batch: Batch, slot: QueueSlot) -> oneshot::Receiver<Outcome> {
        self.accepted(Size::of(&batch));
        let (outcome, unsent) = self.queue.enqueue(batch, slot);
        match unsent {
            Some(batch) if self.is_removed() => self.hand_over(batch).await,
            // The queue was closed meanwhile: the batch counts as left by the shutdown.
            Some(batch) => batch.finalizers.settle(Outcome::Undelivered),
            None => {}
        }
        outcome
    }

    /// A batch the queue refuses is lost for this exporter; its source is not notified.
    async fn enqueue_live(&self, batch: Batch) {
        let size = Size::of(&batch);
        let refusal = match self.reserve(&batch).await {
            Ok(slot) => {
                self.enqueue(batch, slot).await;
                return;
            }
            Err(refusal) => refusal,
        };
        let reason = match &refusal {
            Refusal::Retry { .. } if self.stopping.has_begun() => self.stopping.reason(),
            Refusal::Retry { .. } => DropReason::QueueFull,
            Refusal::Permanent { .. } | Refusal::TooLarge { .. } => DropReason::TooLarge,
        };
        self.account.not_enqueued(size);
        self.account.dropped(size, reason);
        self.overflow.dropped(size.source_samples, &refusal);
        batch.finalizers.settle(refusal.outcome());
    }

    fn accepted(&self, size: Size) {
        self.account.accepted(size);
        self.overflow.ended();
    }
}

#[async_trait]
impl Consumer for Sender {
    async fn consume(&self, mut batch: Batch) -> Answer {
        if let Some(tap) = &self.tap {
            tap.pass(&batch);
        }
        if let Some(balancer) = &self.balancer {
            return balancer.consume(batch).await;
        }
        batch.profiles.keep_for(self.delivery.passthrough_encoding);
        if let Some(durable) = self.durable() {
            if batch.is_dropped_on_overflow() {
                durable.store_live(batch);
                return Ok(());
            }
            return durable.store(batch).await;
        }
        if batch.is_dropped_on_overflow() {
            self.enqueue_live(batch).await;
            return Ok(());
        }
        if self.delivery.queue.is_none() {
            return self.deliver(batch).await;
        }
        let size = Size::of(&batch);
        let slot = match self.reserve(&batch).await {
            Ok(slot) => slot,
            Err(refusal) => {
                self.account.not_enqueued(size);
                self.overflow.refused(size.source_samples, &refusal);
                return batch.refuse(refusal);
            }
        };
        let outcome = self.enqueue(batch, slot).await;
        self.queue.answer(outcome).await
    }
}

// === impl Stopping ===

impl Stopping {
    fn begin(&self, closing: Closing) {
        // The first deadline wins.
        let _ = self.closing.set(closing);
        self.stop.cancel();
    }

    fn has_begun(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn deadline(&self) -> Option<Instant> {
        self.closing.get().map(|closing| closing.deadline)
    }

    fn reason(&self) -> DropReason {
        let closing = self.closing.get();
        closing.map_or(DropReason::Shutdown, |closing| closing.reason)
    }

    /// Resolves `before` the deadline.
    async fn almost_over(&self, before: Duration) {
        self.stop.cancelled().await;
        if let Some(deadline) = self.deadline() {
            tokio::time::sleep_until(deadline.checked_sub(before).unwrap_or(deadline)).await;
        }
    }
}

/// Of the results for two pieces of one batch, the one its sender must act on.
fn worse(a: Result<(), Failed>, b: Result<(), Failed>) -> Result<(), Failed> {
    match (a, b) {
        (Err(a), Err(b)) => Err(Failed {
            refusal: a.refusal.prevailing(b.refusal),
            stays_stored: a.stays_stored || b.stays_stored,
        }),
        (Err(a), Ok(())) => Err(a),
        (Ok(()), b) => b,
    }
}
