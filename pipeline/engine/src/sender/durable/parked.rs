//! Batches read from the log whose destination has no room: only their places in the log are in memory.
//!
//! A batch of several destinations is parked in parts, each by the positions of its resources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use profcol_component::Finalizers;
use profcol_storage::RecordPosition;

use crate::sender::account::Size;

/// A batch in the log, or a part of it.
pub(super) struct Parked {
    pub place: RecordPosition,
    /// The positions of its resources; `None` for the whole batch.
    pub positions: Option<Arc<[usize]>>,
    pub finalizers: Finalizers,
    pub evicted: Evicted,
    pub size: Size,
    /// Encoded.
    pub bytes: u64,
}

/// Whether the writer drops a batch to make room, and settles it itself.
#[derive(Clone, Default)]
pub(super) struct Evicted(Arc<AtomicBool>);

/// The order in the log.
type Key = (u64, u32, usize);

/// At most one entry for each batch that is in the log, or for each of its destinations.
#[derive(Default)]
pub(super) struct ParkedBatches {
    /// By the position of the destination.
    blocked: Vec<BTreeMap<Key, Parked>>,
    /// Those of former destinations.
    unassigned: BTreeMap<Key, Parked>,
}

// === impl Parked ===

impl Parked {
    fn key(&self) -> Key {
        let first = self.positions.as_ref().and_then(|it| it.first());
        (
            self.place.segment,
            self.place.index,
            first.copied().unwrap_or_default(),
        )
    }

    /// Whether it is the whole batch: no part went to another destination.
    fn is_whole(&self) -> bool {
        self.positions.is_none()
    }
}

// === impl Evicted ===

impl Evicted {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl ParkedBatches ===

impl ParkedBatches {
    pub fn is_empty(&self) -> bool {
        self.unassigned.is_empty() && self.blocked.iter().all(BTreeMap::is_empty)
    }

    /// Call after a change of the destinations: which of them have room is not known yet.
    pub fn reassign(&mut self, destinations: usize) {
        for blocked in &mut self.blocked {
            self.unassigned.append(blocked);
        }
        self.blocked.resize_with(destinations, BTreeMap::new);
    }

    pub fn park(&mut self, destination: usize, parked: Parked) {
        let blocked = self.blocked.get_mut(destination);
        let list = blocked.unwrap_or(&mut self.unassigned);
        list.insert(parked.key(), parked);
    }

    /// The oldest batch whose destination now has room for its bytes.
    pub fn take(&mut self, has_room: impl Fn(usize, u64) -> bool) -> Option<Parked> {
        let mut oldest: Option<(Key, usize)> = None;
        for (destination, blocked) in self.blocked.iter().enumerate() {
            if let Some((&key, first)) = blocked.first_key_value()
                && oldest.is_none_or(|(oldest, _)| key < oldest)
                && has_room(destination, first.bytes)
            {
                oldest = Some((key, destination));
            }
        }
        let (key, destination) = oldest?;
        self.blocked.get_mut(destination)?.remove(&key)
    }

    pub fn take_unassigned(&mut self) -> Option<Parked> {
        self.unassigned.pop_first().map(|(_, parked)| parked)
    }

    /// Removes the oldest batch that is not being exported, not even in part.
    pub fn take_oldest_whole(&mut self) -> Option<Parked> {
        let lists = self.blocked.iter_mut().chain([&mut self.unassigned]);
        let oldest = lists.filter_map(|list| {
            let (&key, _) = list.iter().find(|(_, parked)| parked.is_whole())?;
            Some((key, list))
        });
        let (key, list) = oldest.min_by_key(|(key, _)| *key)?;
        list.remove(&key)
    }
}
