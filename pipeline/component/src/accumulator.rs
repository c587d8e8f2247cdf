//! Accumulates batches until they reach a minimum size or a flush timeout.
//!
//! Used by the `batch` processor and by `sending_queue.batch`. Batches whose clients differ in the configured metadata
//! keys are not merged, nor are live batches with others.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use profcol_profile::{Bound, Profiles};
use tokio::time::Instant;

use crate::{Batch, BatchId, DeferredSymbols, Finalizers, Metadata, Source};

/// Unit of a batch's size.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Sizer {
    /// Batches as received.
    #[default]
    Requests,
    /// Samples.
    Items,
    /// Encoded bytes.
    Bytes,
}

/// When to flush, and how to split.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What `min_size` counts.
    pub sizer: Sizer,
    /// Flush at this size; 0 flushes every batch immediately.
    pub min_size: u64,
    /// Maximum samples per piece.
    pub max_samples: Option<NonZeroUsize>,
    /// Maximum encoded bytes per piece.
    pub max_bytes: Option<NonZeroUsize>,
    /// Flush timeout; `None` flushes by size only.
    pub flush_after: Option<Duration>,
    /// Metadata keys that partition batches.
    pub keys: Vec<String>,
    /// Maximum number of partitions held at once.
    pub max_partitions: usize,
}

/// The accumulated batches.
#[derive(Debug)]
pub struct Accumulator {
    limits: Limits,
    partitions: HashMap<Key, Partition>,
}

/// Only batches with equal keys are merged.
type Key = (Source, bool, Metadata);

#[derive(Debug)]
struct Partition {
    held: Vec<Batch>,
    size: u64,
    since: Instant,
}

/// Batches to be merged and sent. Merging is expensive, so it is done outside the lock that guards the accumulator.
#[derive(Debug)]
#[must_use]
pub struct Ready {
    batches: Vec<Batch>,
    max_samples: Option<NonZeroUsize>,
    max_bytes: Option<NonZeroUsize>,
}

// === impl Sizer ===

impl Sizer {
    pub fn size(self, profiles: &Profiles) -> u64 {
        match self {
            Sizer::Requests => 1,
            Sizer::Items => profiles.sample_count() as u64,
            Sizer::Bytes => profiles.encoded_len() as u64,
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Sizer::Requests => "requests",
            Sizer::Items => "samples",
            Sizer::Bytes => "bytes",
        }
    }
}

// === impl Accumulator ===

impl Accumulator {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            partitions: HashMap::new(),
        }
    }

    /// Whether there is room for the batch's partition.
    pub fn has_room_for(&self, batch: &Batch) -> bool {
        self.partitions.len() < self.limits.max_partitions
            || self.partitions.contains_key(&self.key(batch))
    }

    fn key(&self, batch: &Batch) -> Key {
        (
            batch.source,
            batch.has_alternative,
            batch.metadata.restricted_to(&self.limits.keys),
        )
    }

    /// Held samples, as their sources count them.
    pub fn source_samples(&self) -> u64 {
        let held = self
            .partitions
            .values()
            .flat_map(|partition| &partition.held);
        held.map(Batch::source_samples).sum()
    }

    /// Adds a batch; returns its partition if it is ready to be sent.
    pub fn add(&mut self, batch: Batch, now: Instant) -> Option<Ready> {
        let key = self.key(&batch);
        let size = self.limits.sizer.size(&batch.profiles);
        let partition = self
            .partitions
            .entry(key.clone())
            .or_insert_with(|| Partition {
                held: Vec::new(),
                size: 0,
                since: now,
            });
        partition.size += size;
        partition.held.push(batch);
        (partition.size >= self.limits.min_size)
            .then(|| self.take(&key))
            .flatten()
    }

    /// Time of the next flush, for [`flush_due`](Self::flush_due).
    pub fn next_flush(&self) -> Option<Instant> {
        let first = self
            .partitions
            .values()
            .map(|partition| partition.since)
            .min()?;
        Some(first + self.limits.flush_after?)
    }

    /// Removes and returns partitions whose flush timeout has passed.
    pub fn flush_due(&mut self, now: Instant) -> Vec<Ready> {
        let Some(flush_after) = self.limits.flush_after else {
            return Vec::new();
        };
        self.take_where(|partition| partition.since + flush_after <= now)
    }

    pub fn flush_all(&mut self) -> Vec<Ready> {
        self.take_where(|_| true)
    }

    fn take_where(&mut self, condition: impl Fn(&Partition) -> bool) -> Vec<Ready> {
        let chosen = self
            .partitions
            .iter()
            .filter(|(_, partition)| condition(partition));
        let keys: Vec<Key> = chosen.map(|(key, _)| key.clone()).collect();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }

    fn take(&mut self, key: &Key) -> Option<Ready> {
        let batches = self.partitions.remove(key)?.held;
        let Limits {
            max_samples,
            max_bytes,
            ..
        } = self.limits;
        Some(Ready {
            batches,
            max_samples,
            max_bytes,
        })
    }
}

// === impl Ready ===

impl Ready {
    /// The [resend ids](Batch::resend_id) of the batches, if they are recorded ones.
    pub fn recorded(&self) -> Vec<BatchId> {
        let batches = self.batches.iter();
        let recorded = batches.filter(|batch| batch.source == Source::Recorded);
        recorded.filter_map(|batch| batch.resend_id).collect()
    }

    /// Merges the batches and splits the result to the limits.
    ///
    /// A single sample above the byte limit is passed on unchanged: the exporter finds out whether it can be delivered,
    /// and counts it.
    pub fn combine(self) -> Vec<Batch> {
        let Some(merged) = merge(self.batches) else {
            return Vec::new();
        };
        let by_samples = cut(merged, self.max_samples, Sizer::Items, Bound::Samples);
        let by_bytes = |piece| cut(piece, self.max_bytes, Sizer::Bytes, Bound::Bytes).into_iter();
        by_samples.into_iter().flat_map(by_bytes).collect()
    }
}

fn cut(
    batch: Batch,
    max: Option<NonZeroUsize>,
    sizer: Sizer,
    bound: impl Fn(usize) -> Bound,
) -> Vec<Batch> {
    let Some(max) = max else { return vec![batch] };
    if sizer.size(&batch.profiles) <= max.get() as u64 {
        return vec![batch];
    }
    let split = batch.profiles.split(bound(max.get()));
    let ids = batch.id.of_pieces(&split).into_iter();
    batch.into_pieces(ids.zip(split.pieces.into_iter().chain(split.oversize)))
}

/// Merges all batches into one; `None` if there are none.
fn merge(batches: Vec<Batch>) -> Option<Batch> {
    if batches.len() < 2 {
        return batches.into_iter().next();
    }
    let mut finalizers = Finalizers::default();
    let mut deferred_symbols = DeferredSymbols::default();
    let mut parts = Vec::with_capacity(batches.len());
    let id = BatchId::of_merged(batches.iter().map(|batch| batch.id));
    let (first, others) = batches.split_first()?;
    let (source, metadata) = (first.source, first.metadata.clone());
    let has_alternative = first.has_alternative;
    let is_same = |batch: &Batch| batch.peer == first.peer;
    let peer = first.peer.filter(|_| others.iter().all(is_same));
    for batch in batches {
        finalizers.append(batch.finalizers);
        deferred_symbols.append(batch.deferred_symbols);
        parts.push(batch.profiles);
    }
    Some(Batch {
        profiles: Profiles::merge(parts),
        source,
        has_alternative,
        id,
        resend_id: None,
        metadata,
        peer,
        deferred_symbols,
        finalizers,
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::testkit::batch;

    #[test]
    fn keeps_the_peer_if_all_batches_share_it() {
        let check = |peers: &[Option<&str>], expected: Option<&str>| {
            let mut accumulator = Accumulator::new(Limits {
                sizer: Sizer::Requests,
                min_size: peers.len() as u64,
                max_samples: NonZeroUsize::new(2),
                max_bytes: None,
                flush_after: None,
                keys: Vec::new(),
                max_partitions: 1,
            });
            let parse = |peer: &str| peer.parse::<IpAddr>().unwrap();
            let mut ready = None;
            for peer in peers {
                let batch = batch(3).with_peer(peer.map(parse));
                ready = accumulator.add(batch, Instant::now());
            }
            let pieces = ready.unwrap().combine();
            assert!(pieces.len() > 1, "not split");
            for piece in pieces {
                assert_eq!(piece.peer, expected.map(parse), "{peers:?}");
            }
        };
        check(&[Some("10.0.0.1")], Some("10.0.0.1"));
        check(&[Some("10.0.0.1"), Some("10.0.0.1")], Some("10.0.0.1"));
        check(&[Some("10.0.0.1"), Some("10.0.0.2")], None);
        check(&[Some("10.0.0.1"), None], None);
        check(&[None, Some("10.0.0.1")], None);
    }
}
