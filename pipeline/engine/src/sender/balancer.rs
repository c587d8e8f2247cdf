//! Divides the batches of an exporter with several destinations. Each has a sender of its own, so that a slow or dead
//! one does not affect the others.
//!
//! ```text
//!            ┌─► sender of a destination: queue, batching, retry, export
//! consume ───┼─► sender of another one
//!            └─► a removed one ──► what it has not delivered is divided again
//! ```
//!
//! A source that resends a batch, because one sender refused its part, sends nothing twice: the resources that were
//! accepted are remembered by position, since other destinations may get them by now.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use profcol_component::{
    Answer, Batch, Consumer, Delivery, Destinations, Exporter, Gauge, Meter, Outcome, QueueSettings,
};
use profcol_profile::Profiles;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::queue::{Queue, Room, capacity_gauge, propagate};
use super::{Account, Closing, OverflowLog, Sender, Stopping};
use crate::resends::{Resends, worst};

pub(super) struct Balancer {
    destinations: watch::Receiver<Arc<Destinations>>,
    table: RwLock<Arc<Table>>,
    resends: Resends<Positions>,
    end: Mutex<End>,
    common: Common,
    own: Weak<Self>,
}

/// What the senders of one exporter share: they count as one.
pub(super) struct Common {
    pub(super) name: String,
    pub(super) delivery: Delivery,
    pub(super) account: Arc<Account>,
    pub(super) overflow: Arc<OverflowLog>,
    queue: QueueSettings,
    /// Of the queues.
    meter: Meter,
    room: Arc<Room>,
    capacity: Gauge,
}

/// The destinations and their senders.
struct Table {
    destinations: Arc<Destinations>,
    senders: Vec<Arc<Sender>>,
}

/// For the shutdown.
#[derive(Default)]
struct End {
    /// Senders of former destinations; most have ended.
    removed: Vec<Weak<Sender>>,
    closing: Option<Closing>,
}

/// A part of a batch: some of its resources, and who gets them.
struct Part {
    sender: Arc<Sender>,
    positions: Positions,
}

/// The positions of resources in a batch.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Positions {
    these: Arc<[usize]>,
    /// How many resources the batch has.
    all: usize,
}

// === impl Common ===

impl Common {
    pub(super) fn new(
        name: &str,
        delivery: Delivery,
        account: Arc<Account>,
        overflow: Arc<OverflowLog>,
        meter: &Meter,
    ) -> Self {
        let (queue, meter) = match delivery.queue.clone() {
            Some(queue) => (queue, meter.clone()),
            None => (QueueSettings::for_live_sources(), Meter::default()),
        };
        Self {
            name: name.to_owned(),
            delivery,
            account,
            overflow,
            queue,
            room: Arc::default(),
            capacity: capacity_gauge(name, &meter),
            meter,
        }
    }

    /// The queue of one sender.
    pub(super) fn queue(&self) -> Queue {
        Queue::new(self.queue.clone(), &self.name, &self.meter).within(&self.room)
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
        resends.forgotten();
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
                end: Mutex::default(),
                common,
                own: Weak::clone(own),
            }
        })
    }

    /// Follows what has changed since it was built, before the first batch.
    pub(super) fn open(&self) {
        let started = Arc::clone(&self.destinations.borrow());
        self.follow(started);
    }

    /// Runs the senders, and follows changes until `stopping`.
    pub(super) async fn run(&self, stopping: &Stopping) {
        let mut destinations = self.destinations.clone();
        destinations.mark_changed();
        let mut running = JoinSet::new();
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
                    for sender in self.follow(new) {
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
    fn follow(&self, destinations: Arc<Destinations>) -> Vec<Arc<Sender>> {
        let mut end = self.end.lock();
        if end.closing.is_some() {
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
        end.removed.retain(|sender| sender.strong_count() > 0);
        let stays = |sender: &Sender| destinations.exporters().iter().any(|it| sender.is_for(it));
        for sender in before.senders.iter().filter(|sender| !stays(sender)) {
            end.removed.push(Arc::downgrade(sender));
            // They find the new table.
            sender.remove();
        }
        new
    }

    pub(super) fn close(&self, closing: Closing) {
        let mut end = self.end.lock();
        end.closing = Some(closing);
        let removed = end.removed.iter().filter_map(Weak::upgrade);
        for sender in removed.chain(self.table().senders.iter().map(Arc::clone)) {
            sender.close(closing);
        }
    }

    /// Blocks while a lock is held that each batch needs.
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

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    async fn push_once(&self, batch: Batch, parts: Vec<Part>) -> Answer {
        let answers = parts.iter().map(|part| {
            let copy = batch.clone().with_profiles(part.of(&batch.profiles));
            part.sender.consume(copy)
        });
        let answers = join_all(answers).await;
        batch.finalizers.settle(Outcome::Delivered);
        worst(answers)
    }
}

#[async_trait]
impl Consumer for Balancer {
    async fn consume(&self, mut batch: Batch) -> Answer {
        let table = self.table();
        let parts = table.parts(&batch.profiles, &HashSet::new());
        let Some(id) = batch.id else {
            return self.push_once(batch, parts).await;
        };
        if let [only] = &parts[..]
            && self.resends.is_empty()
        {
            return only.sender.consume(batch).await;
        }
        let finalizers = std::mem::take(&mut batch.finalizers);
        let answers = self.resends.answers(id);
        let answered = answers.adopt_all(&finalizers);
        // A processor may have changed the resources since. Then the whole batch is sent.
        let resources = batch.profiles.counts().resources;
        let answered = answered.iter().filter(|it| it.all == resources);
        let answered: HashSet<usize> = answered.flat_map(|it| it.these.iter().copied()).collect();
        let parts = match answered.is_empty() {
            true => parts,
            false => table.parts(&batch.profiles, &answered),
        };
        let refusals = parts.iter().map(|part| {
            let copy = Batch {
                finalizers: finalizers.clone(),
                profiles: part.of(&batch.profiles),
                ..batch.clone()
            };
            answers.push_to(part.positions.clone(), copy, &*part.sender)
        });
        let refusals = join_all(refusals).await;
        let answer = answers.finish(refusals.into_iter().flatten());
        finalizers.settle(Outcome::Delivered);
        answer
    }
}

// === impl Table ===

impl Table {
    /// What each sender gets of the resources that are not `answered`.
    fn parts(&self, profiles: &Profiles, answered: &HashSet<usize>) -> Vec<Part> {
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
                    sender: Arc::clone(sender),
                    positions: Positions {
                        these: positions.into(),
                        all: profiles.counts().resources,
                    },
                })
            });
        parts.collect()
    }

    fn pieces(&self, batch: Batch) -> Vec<(Arc<Sender>, Batch)> {
        let parts = self.parts(&batch.profiles, &HashSet::new());
        let profiles = parts.iter().map(|part| part.of(&batch.profiles));
        let profiles: Vec<_> = profiles.collect();
        let senders = parts.into_iter().map(|part| part.sender);
        senders.zip(batch.into_pieces(profiles)).collect()
    }
}

// === impl Part ===

impl Part {
    fn of(&self, profiles: &Profiles) -> Profiles {
        match &*self.positions.these {
            [] => profiles.clone(),
            these => profiles.part(these),
        }
    }
}
