//! Which offsets may be committed: up to the first message of a partition that is still in flight.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use krafka::consumer::TopicPartition;

#[derive(Debug, Default)]
pub(super) struct Offsets(HashMap<TopicPartition, Partition>);

#[derive(Debug)]
struct Partition {
    in_flight: BTreeSet<i64>,
    /// The offset after the last message that was read.
    next: i64,
    committed: Option<i64>,
}

impl Offsets {
    /// A message was read. Those of a partition are read in order, from the committed offset on after a rebalance.
    pub(super) fn read(&mut self, partition: &TopicPartition, offset: i64) {
        let fresh = || Partition {
            in_flight: BTreeSet::new(),
            next: offset,
            committed: None,
        };
        let partition = self.0.entry(partition.clone()).or_insert_with(fresh);
        partition.in_flight.insert(offset);
        partition.next = partition.next.max(offset.saturating_add(1));
    }

    /// A message was delivered or skipped. Its partition may belong to another member by now.
    pub(super) fn settle(&mut self, partition: &TopicPartition, offset: i64) {
        if let Some(partition) = self.0.get_mut(partition) {
            partition.in_flight.remove(&offset);
        }
    }

    /// What to commit: the offset of the next message to read of each partition that has advanced.
    pub(super) fn to_commit(&self) -> BTreeMap<(String, i32), i64> {
        let advanced = self.0.iter().filter_map(|(key, partition)| {
            let position = partition.position();
            (partition.committed != Some(position))
                .then(|| ((key.topic.clone(), key.partition), position))
        });
        advanced.collect()
    }

    pub(super) fn committed(&mut self, offsets: &BTreeMap<(String, i32), i64>) {
        for ((topic, partition), offset) in offsets {
            let key = TopicPartition::new(topic.clone(), *partition);
            if let Some(partition) = self.0.get_mut(&key) {
                partition.committed = Some(*offset);
            }
        }
    }

    /// Whether a message of these partitions is in flight.
    pub(super) fn are_in_flight(&self, partitions: &[TopicPartition]) -> bool {
        let mut known = partitions.iter().filter_map(|key| self.0.get(key));
        known.any(|partition| !partition.in_flight.is_empty())
    }

    /// The partitions belong to other members now.
    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.0.remove(partition);
        }
    }
}

impl Partition {
    fn position(&self) -> i64 {
        self.in_flight.first().copied().unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: i32) -> TopicPartition {
        TopicPartition::new("t", number)
    }

    fn positions(offsets: &Offsets) -> Vec<(i32, i64)> {
        let positions = offsets.to_commit().into_iter();
        positions
            .map(|((_, partition), offset)| (partition, offset))
            .collect()
    }

    #[test]
    fn commits_up_to_the_first_message_in_flight() {
        let mut offsets = Offsets::default();
        for offset in 10..14 {
            offsets.read(&partition(0), offset);
        }
        offsets.read(&partition(1), 5);
        offsets.settle(&partition(0), 10);
        offsets.settle(&partition(0), 12);
        assert_eq!(positions(&offsets), [(0, 11), (1, 5)]);
        let stored = offsets.to_commit();
        offsets.committed(&stored);
        assert!(
            offsets.to_commit().is_empty(),
            "it would commit for nothing"
        );
        offsets.settle(&partition(0), 11);
        offsets.settle(&partition(0), 13);
        assert_eq!(positions(&offsets), [(0, 14)]);
        assert!(!offsets.are_in_flight(&[partition(0)]));
        assert!(offsets.are_in_flight(&[partition(0), partition(1)]));
    }

    #[test]
    fn a_partition_that_moved_away_is_not_committed() {
        let mut offsets = Offsets::default();
        offsets.read(&partition(0), 3);
        offsets.forget(&[partition(0)]);
        offsets.settle(&partition(0), 3);
        assert!(offsets.to_commit().is_empty());
        // It came back: another member has settled messages meanwhile.
        offsets.read(&partition(0), 7);
        offsets.settle(&partition(0), 3);
        assert_eq!(positions(&offsets), [(0, 7)]);
    }

    #[test]
    fn gaps_in_the_offsets_are_skipped() {
        let mut offsets = Offsets::default();
        offsets.read(&partition(0), 3);
        offsets.read(&partition(0), 9);
        offsets.settle(&partition(0), 3);
        assert_eq!(positions(&offsets), [(0, 9)]);
        offsets.settle(&partition(0), 9);
        assert_eq!(positions(&offsets), [(0, 10)]);
    }

    #[test]
    fn no_offset_overflows() {
        let mut offsets = Offsets::default();
        offsets.read(&partition(0), i64::MAX);
        offsets.settle(&partition(0), i64::MAX);
        assert_eq!(positions(&offsets), [(0, i64::MAX)]);
    }
}
