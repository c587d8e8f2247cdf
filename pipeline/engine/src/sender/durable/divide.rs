//! Hands the batches of one log to the senders of several destinations.
//!
//! ```text
//!           ┌─► destination with room: its queue in memory, a few batches
//! log ──────┼─► destination without room: parked, only the place in the log is kept
//!    ▲      └─► former destination: parked for the others
//!    └─ read again when there is room, or there are other destinations
//! ```
//!
//! So a dead destination delays no other one. Batches that wait for a removed destination are divided between the
//! others, also after a restart: the log does not say for whom a batch is.

use std::collections::HashSet;
use std::sync::Arc;

use profcol_component::Batch;
use profcol_storage::{Corrupt, Counts, Damage, Next};
use tokio::task::JoinSet;

use super::parked::{Evicted, Parked};
use super::record::batch_of;
use super::{CLOSING_TIME, DurableQueue, Shared};
use crate::sender::Stopping;
use crate::sender::account::Size;
use crate::sender::balancer::{Balancer, Part, Table};

/// Forgets the parked batches at the end: their finalizers refer to the queue.
struct Forget<'a>(&'a Shared);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let parked = std::mem::take(&mut self.0.state.lock().parked);
        // Without an outcome, so it stays in the log.
        drop(parked);
    }
}

impl DurableQueue {
    /// Like [`dispatch`](Self::dispatch), for several destinations. `senders` run their senders.
    pub(in crate::sender) async fn dispatch_to(
        &self,
        balancer: &Balancer,
        senders: &mut JoinSet<()>,
        stopping: &Stopping,
    ) {
        let _end = Forget(&self.shared);
        let divide = async {
            self.divide(balancer, stopping).await;
            balancer.close_queues();
        };
        let in_time = async {
            tokio::join!(divide, balancer.run_senders(senders, stopping));
        };
        tokio::select! {
            () = in_time => {}
            () = stopping.almost_over(CLOSING_TIME) => {}
        }
        // Aborted exports settle nothing: their batches stay stored.
        senders.shutdown().await;
        self.end().await;
    }

    async fn divide(&self, balancer: &Balancer, stopping: &Stopping) {
        let mut table = balancer.table();
        self.reassign(&table);
        let mut is_new_first = true;
        loop {
            let published = self.shared.published.notified();
            if self.shared.is_broken() || stopping.has_begun() && self.leaves_rest_stored() {
                return;
            }
            let current = balancer.table();
            if !Arc::ptr_eq(&table, &current) {
                table = current;
                self.reassign(&table);
            }
            if let Some((batch, parked)) = self.next_for(&table, is_new_first).await {
                // After a change of the destinations, new batches do not wait for all that is parked.
                is_new_first = !is_new_first;
                self.hand_out(batch, &parked, &table);
                continue;
            }
            if stopping.has_begun() && self.shared.state.lock().parked.is_empty() {
                return;
            }
            tokio::select! {
                () = published => {}
                () = balancer.changed() => {}
            }
        }
    }

    fn reassign(&self, table: &Table) {
        let destinations = table.senders.len();
        self.shared.state.lock().parked.reassign(destinations);
    }

    /// The next batch that may have a destination with room, and its place; the batch has the finalizers.
    async fn next_for(&self, table: &Table, is_new_first: bool) -> Option<(Batch, Parked)> {
        loop {
            let has_room = |destination: usize, bytes| {
                let sender = table.senders.get(destination);
                sender.is_some_and(|sender| sender.queue.has_room(bytes))
            };
            let ready = self.shared.state.lock().parked.take(has_room);
            let next = match ready {
                Some(parked) => self.read_again(parked).await,
                None if is_new_first => match self.next_new().await {
                    Some(next) => return Some(next),
                    None => self.read_again(self.unassigned()?).await,
                },
                None => match self.unassigned() {
                    Some(parked) => self.read_again(parked).await,
                    None => return self.next_new().await,
                },
            };
            // A damaged one is counted and gone.
            if next.is_some() {
                return next;
            }
        }
    }

    fn unassigned(&self) -> Option<Parked> {
        self.shared.state.lock().parked.take_unassigned()
    }

    async fn next_new(&self) -> Option<(Batch, Parked)> {
        let stored = self.take_next().await?;
        let (place, evicted) = (stored.place, Evicted::default());
        let mut batch = self.tracked(stored, &evicted);
        let parked = Parked {
            place,
            positions: None,
            finalizers: std::mem::take(&mut batch.finalizers),
            evicted,
            size: Size::of(&batch),
            bytes: place.counts.plain_bytes,
        };
        Some(with_finalizers(batch, parked))
    }

    async fn read_again(&self, parked: Parked) -> Option<(Batch, Parked)> {
        let shared = Arc::clone(&self.shared);
        let read = tokio::task::spawn_blocking(move || shared.read_again(parked));
        let (batch, parked) = read.await.ok().flatten()?;
        Some(with_finalizers(batch, parked))
    }

    /// Gives each destination its part, or parks it.
    fn hand_out(&self, batch: Batch, from: &Parked, table: &Table) {
        let parts = table.parts(&batch.profiles, &HashSet::new());
        let is_whole = from.positions.is_none() && parts.len() == 1;
        let piece = |part: &Part| {
            let (id, profiles) = part.of(&batch);
            // Its positions in the record: so it has the same id in the next run.
            let id = match is_whole {
                true => id,
                false => batch.id.of_resources(&positions_of(part, from)),
            };
            (id, profiles)
        };
        let pieces: Vec<_> = parts.iter().map(piece).collect();
        for (part, piece) in parts.iter().zip(batch.into_pieces(pieces)) {
            let left = match part.queue().try_reserve(&piece) {
                Ok(slot) => match part.queue().enqueue(piece, slot) {
                    (_, None) => continue,
                    // The destination has gone meanwhile.
                    (_, Some(unsent)) => unsent,
                },
                Err(_) => piece,
            };
            let parked = Parked {
                positions: (!is_whole).then(|| positions_of(part, from)),
                size: Size::of(&left),
                bytes: left.profiles.encoded_len() as u64,
                finalizers: left.finalizers,
                evicted: from.evicted.clone(),
                place: from.place,
            };
            self.shared
                .state
                .lock()
                .parked
                .park(part.destination, parked);
        }
    }
}

impl Shared {
    /// Reads a batch or its part again. `None` if it is damaged, which is counted.
    fn read_again(&self, parked: Parked) -> Option<(Batch, Parked)> {
        let next = self.state.lock().log.read_again(&parked.place);
        let read = match next {
            Next::Record { place, head, body } => {
                let batch = batch_of(&head, body, &place.counts);
                batch.map_err(|error| (Damage::Checksum, error.to_string()))
            }
            Next::Corrupt(Corrupt { damage, .. }) => Err((damage, damage.to_string())),
        };
        match read {
            Ok(batch) => {
                let profiles = match &parked.positions {
                    Some(positions) => batch.profiles.part(positions),
                    None => batch.profiles.clone(),
                };
                Some((batch.with_profiles(profiles), parked))
            }
            Err((damage, reason)) => {
                let corrupt = Corrupt {
                    counts: Counts {
                        samples: parked.size.samples,
                        source_samples: parked.size.source_samples,
                        ..parked.place.counts
                    },
                    ..Corrupt::of(&parked.place, damage)
                };
                // Its finalizers settle it in the log.
                self.lost(&corrupt, &reason, Some(parked.finalizers));
                None
            }
        }
    }
}

/// Moves the finalizers to the batch.
fn with_finalizers(mut batch: Batch, mut parked: Parked) -> (Batch, Parked) {
    batch.finalizers = std::mem::take(&mut parked.finalizers);
    (batch, parked)
}

/// In the whole batch.
fn positions_of(part: &Part, from: &Parked) -> Arc<[usize]> {
    let resources = &part.positions.resources;
    match &from.positions {
        None => Arc::clone(resources),
        Some(all) => resources
            .iter()
            .filter_map(|at| all.get(*at))
            .copied()
            .collect(),
    }
}
