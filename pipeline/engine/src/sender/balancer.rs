//! Divides the batches of an exporter with several destinations. Each has a sender of its own, so that a slow or dead
//! one does not affect the others.
//!
//! ```text
//!            ┌─► sender of a destination: queue, batching, retry, export
//! consume ───┼─► sender of another one
//!            └─► a removed one ──► its undelivered batches are divided again
//! ```
//!
//! A source that resends a batch, because one sender refused its part, sends nothing twice: the resources that were
//! accepted are remembered by position, since other destinations may get them by now.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use profcol_component::{
    Answer, Batch, BatchId, Consumer, Delivery, Destinations, Exporter, Gauge, Meter, Outcome,
    QueueSettings, Sizer,
};
use profcol_profile::Profiles;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::durable::DurableQueue;
use super::queue::{Queue, SharedCapacity, capacity_gauge, propagate};
use super::{Account, Closing, Health, OverflowLog, Sender, Stopping};
use crate::resends::{Resends, worst};

/// Maximum size of the batches from a stored queue that are in memory for one destination; larger ones go alone.
const MEMORY_BYTES: u64 = 32 << 20;

/// Maximum number of these batches if they are merged before they are sent.
const MERGED_BATCHES: i64 = 64;

pub(super) struct Balancer {
    destinations: watch::Receiver<Arc<Destinations>>,
    table: RwLock<Arc<Table>>,
    resends: Resends<Positions>,
    shutdown: Mutex<Shutdown>,
    common: Common,
    /// The stored queue of all destinations, once it is open.
    durable: OnceLock<Arc<DurableQueue>>,
    own: Weak<Self>,
}

/// Shared by the senders of one exporter, which count as one in metrics and status.
pub(super) struct Common {
    pub(super) name: String,
    pub(super) delivery: Delivery,
    pub(super) account: Arc<Account>,
    pub(super) overflow: Arc<OverflowLog>,
    pub(super) health: Arc<Health>,
    queue: QueueSettings,
    /// For metrics of the queues.
    meter: Meter,
    room: Arc<SharedCapacity>,
    capacity: Gauge,
    /// The queues of the destinations hold only what a stored queue hands out.
    is_stored: bool,
}

/// The destinations and their senders.
pub(super) struct Table {
    destinations: Arc<Destinations>,
    pub(super) senders: Vec<Arc<Sender>>,
}

#[derive(Default)]
struct Shutdown {
    /// Senders of former destinations; most have ended.
    removed: Vec<Weak<Sender>>,
    closing: Option<Closing>,
}

/// A part of a batch: some of its resources, and who gets them.
pub(super) struct Part {
    /// The position of the sender.
    pub(super) destination: usize,
    sender: Arc<Sender>,
    pub(super) positions: Positions,
}

/// The positions of resources in a batch.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Positions {
    pub(super) resources: Arc<[usize]>,
    /// How many resources the batch has.
    total: usize,
}

/// Stores a part for whichever destination is responsible when it is sent.
struct StoreConsumer<'a>(&'a DurableQueue);

// === impl Common ===

impl Common {
    pub(super) fn new(
        name: &str,
        delivery: Delivery,
        account: Arc<Account>,
        overflow: Arc<OverflowLog>,
        health: Arc<Health>,
        meter: &Meter,
        is_stored: bool,
    ) -> Self {
        let (queue, meter) = match delivery.queue.clone() {
            // The stored queue has the metrics.
            Some(queue) if is_stored => (in_memory(queue), Meter::default()),
            Some(queue) => (queue, meter.clone()),
            None => (QueueSettings::for_live_sources(), Meter::default()),
        };
        Self {
            name: name.to_owned(),
            delivery,
            account,
            overflow,
            health,
            queue,
            room: Arc::default(),
            capacity: capacity_gauge(name, &meter),
            meter,
            is_stored,
        }
    }

    /// The queue of one sender.
    pub(super) fn queue(&self) -> Queue {
        let queue = Queue::new(self.queue.clone(), &self.name, &self.meter).within(&self.room);
        match self.is_stored {
            true => queue.with_memory(MEMORY_BYTES),
            false => queue,
        }
    }

    fn sender(&self, exporter: &Arc<dyn Exporter>, balancer: &Weak<Balancer>) -> Arc<Sender> {
        Sender::of_destination(Arc::clone(exporter), self, Weak::clone(balancer))
    }

    fn resize_for(&self, destinations: usize) {
        let size = u64::try_from(self.queue.queue_size).unwrap_or(0);
        let all = size.saturating_mul(destinations as u64);
        self.room.set_limit(all);
        self.capacity.set(all as f64);
    }
}

// === impl Balancer ===

impl Balancer {
    pub(super) fn new(
        destinations: watch::Receiver<Arc<Destinations>>,
        common: Common,
        meter: &Meter,
    ) -> Arc<Self> {
        let owner = format!("exporter {}", common.name);
        let resends = Resends::new(&owner, meter);
        resends.count_forgotten();
        let first = Arc::clone(&destinations.borrow());
        Arc::new_cyclic(|own| {
            let sender = |exporter| common.sender(exporter, own);
            let table = Table {
                senders: first.exporters().iter().map(sender).collect(),
                destinations: first,
            };
            Self {
                destinations,
                table: RwLock::new(Arc::new(table)),
                resends,
                shutdown: Mutex::default(),
                common,
                durable: OnceLock::new(),
                own: Weak::clone(own),
            }
        })
    }

    /// Call before the first batch: applies changes of the destinations since the build.
    pub(super) fn open(&self, durable: Option<Arc<DurableQueue>>) {
        if let Some(durable) = durable {
            // Opened only once.
            let _ = self.durable.set(durable);
        }
        let started = Arc::clone(&self.destinations.borrow());
        self.change_destinations(started);
    }

    /// The stored queue, if any.
    pub(super) fn durable(&self) -> Option<&Arc<DurableQueue>> {
        self.durable.get()
    }

    /// Delivers until it is closed and empty.
    pub(super) async fn run(&self, stopping: &Stopping) {
        let mut running = JoinSet::new();
        match self.durable() {
            Some(durable) => durable.dispatch_to(self, &mut running, stopping).await,
            None => self.run_senders(&mut running, stopping).await,
        }
    }

    /// Runs the senders, and follows changes until `stopping`; then waits until the senders have ended.
    pub(super) async fn run_senders(&self, running: &mut JoinSet<()>, stopping: &Stopping) {
        let mut destinations = self.destinations.clone();
        destinations.mark_changed();
        for sender in self.table().senders.iter().map(Arc::clone) {
            running.spawn(sender.dispatch());
        }
        loop {
            tokio::select! {
                changed = destinations.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let new = Arc::clone(&destinations.borrow_and_update());
                    for sender in self.change_destinations(new) {
                        running.spawn(sender.dispatch());
                    }
                }
                Some(ended) = running.join_next() => propagate(ended),
                () = stopping.stop.cancelled() => break,
            }
        }
        while let Some(ended) = running.join_next().await {
            propagate(ended);
        }
    }

    /// Changes the destinations; those that stay keep their senders. Returns the new senders.
    fn change_destinations(&self, destinations: Arc<Destinations>) -> Vec<Arc<Sender>> {
        let mut shutdown = self.shutdown.lock();
        if shutdown.closing.is_some() {
            return Vec::new();
        }
        let before = self.table();
        let mut new = Vec::new();
        let senders = destinations.exporters().iter().map(|exporter| {
            let known = before.senders.iter().find(|it| it.is_for(exporter));
            known.map(Arc::clone).unwrap_or_else(|| {
                let sender = self.common.sender(exporter, &self.own);
                new.push(Arc::clone(&sender));
                sender
            })
        });
        let senders: Vec<_> = senders.collect();
        self.common.resize_for(senders.len());
        let after = Table {
            destinations: Arc::clone(&destinations),
            senders,
        };
        *self.table.write() = Arc::new(after);
        if let Some(durable) = self.durable() {
            durable.expect_parts(destinations.exporters().len());
        }
        shutdown.removed.retain(|sender| sender.strong_count() > 0);
        let stays = |sender: &Sender| destinations.exporters().iter().any(|it| sender.is_for(it));
        for sender in before.senders.iter().filter(|sender| !stays(sender)) {
            shutdown.removed.push(Arc::downgrade(sender));
            // After the new table is set: its batches are divided by that.
            sender.remove();
        }
        self.common.room.note_change();
        new
    }

    pub(super) fn close(&self, closing: Closing) {
        let mut shutdown = self.shutdown.lock();
        shutdown.closing = Some(closing);
        for sender in self.all_senders(&shutdown) {
            match self.durable() {
                // Stored batches still pass through its queue.
                Some(_) => sender.stopping.begin(closing),
                None => sender.close(closing),
            }
        }
        self.common.room.note_change();
    }

    /// The stored queue hands out no more.
    pub(super) fn close_queues(&self) {
        for sender in self.all_senders(&self.shutdown.lock()) {
            sender.queue.close();
        }
    }

    fn all_senders(&self, shutdown: &Shutdown) -> Vec<Arc<Sender>> {
        let removed = shutdown.removed.iter().filter_map(Weak::upgrade);
        let senders = self.table().senders.clone();
        removed.chain(senders).collect()
    }

    /// Waits until a sender has more room, or there are other senders.
    pub(super) async fn changed(&self) {
        self.common.room.changed().await;
    }

    /// See [`Queue::wait_for_entrance`].
    pub(super) fn wait_for_entrances(&self) {
        for sender in &self.table().senders {
            sender.queue.wait_for_entrance();
        }
    }

    /// Takes a batch that the sender of a removed destination has accepted and not delivered.
    pub(super) async fn adopt(&self, batch: Batch) {
        let mut left = vec![batch];
        while let Some(batch) = left.pop() {
            for (sender, part) in self.table().pieces(batch) {
                let Some(part) = sender.queue.move_in(part) else {
                    continue;
                };
                match sender.is_removed() {
                    true => left.push(part),
                    // The service stops. Counters, log and finalizers have the outcome.
                    false => drop(sender.deliver(part).await),
                }
            }
        }
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    async fn consume_part(&self, batch: Batch, part: &Part) -> Answer {
        match self.durable() {
            Some(durable) => StoreConsumer(durable).consume(batch).await,
            None => part.sender.consume(batch).await,
        }
    }

    async fn push_once(&self, batch: Batch, parts: Vec<Part>) -> Answer {
        let answers = parts.iter().map(|part| {
            let (id, profiles) = part.of(&batch);
            let copy = batch.clone().with_id(id).with_profiles(profiles);
            self.consume_part(copy, part)
        });
        let answers = join_all(answers).await;
        batch.finalizers.settle(Outcome::Delivered);
        worst(answers)
    }
}

#[async_trait]
impl Consumer for Balancer {
    async fn consume(&self, mut batch: Batch) -> Answer {
        if self.durable().is_some() {
            batch
                .profiles
                .keep_for(self.common.delivery.passthrough_encoding);
        }
        let table = self.table();
        let parts = table.parts(&batch.profiles, &HashSet::new());
        let Some(id) = batch.resend_id else {
            return self.push_once(batch, parts).await;
        };
        if let [only] = &parts[..]
            && self.resends.is_empty()
        {
            return self.consume_part(batch, only).await;
        }
        let finalizers = std::mem::take(&mut batch.finalizers);
        let answers = self.resends.answers(id, &finalizers);
        let answered = answers.adopt_all();
        // A processor may have changed the resources since. Then the whole batch is sent.
        let resources = batch.profiles.counts().resources;
        let answered = answered.iter().filter(|it| it.total == resources);
        let answered: HashSet<usize> = answered
            .flat_map(|it| it.resources.iter().copied())
            .collect();
        let parts = match answered.is_empty() {
            true => parts,
            false => table.parts(&batch.profiles, &answered),
        };
        let refusals = parts.iter().map(|part| {
            let (id, profiles) = part.of(&batch);
            let copy = batch.clone().with_id(id).with_profiles(profiles);
            async {
                let positions = part.positions.clone();
                match self.durable() {
                    Some(durable) => {
                        answers
                            .push_to(positions, copy, &StoreConsumer(durable))
                            .await
                    }
                    None => answers.push_to(positions, copy, &*part.sender).await,
                }
            }
        });
        let refusals = join_all(refusals).await;
        let answer = answers.finish(refusals.into_iter().flatten());
        finalizers.settle(Outcome::Delivered);
        answer
    }
}

// === impl StoreConsumer ===

#[async_trait]
impl Consumer for StoreConsumer<'_> {
    async fn consume(&self, batch: Batch) -> Answer {
        if batch.is_dropped_on_overflow() {
            self.0.store_live(batch);
            return Ok(());
        }
        self.0.store(batch).await
    }
}

// === impl Table ===

impl Table {
    /// Divides the resources that are not `answered` between the senders.
    pub(super) fn parts(&self, profiles: &Profiles, answered: &HashSet<usize>) -> Vec<Part> {
        let chosen = self.destinations.choose(profiles);
        let mut positions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (position, destination) in chosen.into_iter().enumerate() {
            if !answered.contains(&position) {
                positions.entry(destination).or_default().push(position);
            }
        }
        if positions.is_empty() && answered.is_empty() {
            // Without resources.
            positions.insert(0, Vec::new());
        }
        let parts = positions
            .into_iter()
            .filter_map(|(destination, positions)| {
                let sender = self.senders.get(destination)?;
                Some(Part {
                    destination,
                    sender: Arc::clone(sender),
                    positions: Positions {
                        resources: positions.into(),
                        total: profiles.counts().resources,
                    },
                })
            });
        parts.collect()
    }

    fn pieces(&self, batch: Batch) -> Vec<(Arc<Sender>, Batch)> {
        let parts = self.parts(&batch.profiles, &HashSet::new());
        let pieces: Vec<_> = parts.iter().map(|part| part.of(&batch)).collect();
        let senders = parts.into_iter().map(|part| part.sender);
        senders.zip(batch.into_pieces(pieces)).collect()
    }
}

/// The queue of a destination that gets its batches from a stored queue: enough to keep its exports busy.
fn in_memory(stored: QueueSettings) -> QueueSettings {
    let busy = stored.num_consumers.saturating_mul(2).max(1);
    QueueSettings {
        queue_size: match *stored.batch {
            Some(_) => busy.max(MERGED_BATCHES),
            None => busy,
        },
        sizer: Sizer::Requests,
        block_on_overflow: false,
        storage: None,
        ..stored
    }
}

// === impl Part ===

impl Part {
    pub(super) fn queue(&self) -> &Queue {
        &self.sender.queue
    }

    /// This part of the batch, and its id.
    pub(super) fn of(&self, batch: &Batch) -> (BatchId, Profiles) {
        let Positions { resources, total } = &self.positions;
        if resources.is_empty() || resources.len() == *total {
            return (batch.id, batch.profiles.clone());
        }
        let id = batch.id.of_resources(resources);
        (id, batch.profiles.part(resources))
    }
}
