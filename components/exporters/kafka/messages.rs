//! Makes messages of a batch: each has the profiles of the resources that belong to one partition, and is complete in itself.
//!
//! Resources share most of their functions and strings, so a message for each would repeat these.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use krafka::producer::murmur2;
use profcol_component::{Batch, BatchId, Refusal, Undelivered};
use profcol_kafka::Encoding;
use profcol_profile::{Attributes, Bound, Profiles, Resource};
use twox_hash::XxHash3_128;

use super::config::KafkaConfig;
use crate::shared::attribute_bytes;

/// A message, and the profiles in it.
#[derive(Debug)]
pub(super) struct Message {
    /// The batch's, or derived from it. The same batch has the same messages as long as the number of partitions is.
    pub(super) id: BatchId,
    pub(super) topic: String,
    /// The key of its first resource. The keys of the others belong to the same partition, so what comes from one resource stays in order.
    pub(super) key: Option<String>,
    pub(super) value: Bytes,
    pub(super) profiles: Profiles,
}

/// The number of partitions of each topic.
pub(super) type Partitions = BTreeMap<String, usize>;

/// The messages of a batch, and the samples that do not fit into one.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) messages: Vec<Message>,
    pub(super) oversize: Vec<Undelivered>,
}

impl Messages {
    /// `limit` is the maximum length of a value. In a topic of unknown size, each resource has a message of its own.
    pub(super) fn of(
        batch: &Batch,
        config: &KafkaConfig,
        partitions: &Partitions,
        limit: usize,
    ) -> Self {
        let mut messages = Self::default();
        let resources = resources_of(batch, config, partitions);
        let parts = batch.profiles.parts(resources.values().map(Vec::as_slice));
        for (((topic, key), rows), profiles) in resources.iter().zip(parts) {
            let id = match resources.len() {
                1 => batch.id,
                _ => batch.id.of_resources(rows),
            };
            messages.add(
                topic,
                key.as_deref(),
                id,
                profiles,
                config.profiles.encoding,
                limit,
            );
        }
        messages
    }

    fn add(
        &mut self,
        topic: &str,
        key: Option<&str>,
        id: BatchId,
        profiles: Profiles,
        encoding: Encoding,
        limit: usize,
    ) {
        let mut parts = vec![(id, profiles)];
        while let Some((id, profiles)) = parts.pop() {
            let value = encoding.encode(&profiles);
            if value.len() <= limit {
                self.messages.push(Message {
                    id,
                    topic: topic.to_owned(),
                    key: key.map(str::to_owned),
                    value,
                    profiles,
                });
                continue;
            }
            let samples = profiles.sample_count();
            if samples <= 1 {
                self.oversize.push(oversize(profiles, limit));
                continue;
            }
            let bound = match encoding {
                Encoding::OtlpProto => Bound::Bytes(limit),
                // The size of samples in JSON is known only once they are encoded.
                Encoding::OtlpJson => {
                    let pieces = value.len().div_ceil(limit.max(1)).clamp(2, samples);
                    Bound::Samples(samples / pieces)
                }
            };
            let split = profiles.split(bound);
            let ids = id.of_pieces(&split);
            let left = split.oversize.into_iter();
            self.oversize
                .extend(left.map(|profiles| oversize(profiles, limit)));
            parts.extend(ids.into_iter().zip(split.pieces).rev());
        }
    }
}

fn oversize(profiles: Profiles, limit_bytes: usize) -> Undelivered {
    let reason = format!(
        "single samples exceed the message size limit of {limit_bytes} bytes; raise `producer::max_message_bytes`"
    );
    let reason = reason.into();
    Undelivered {
        id: None,
        profiles,
        refusal: Refusal::TooLarge {
            reason,
            limit_bytes,
        },
    }
}

/// The topics of the batch's resources.
pub(super) fn topics_of(batch: &Batch, config: &KafkaConfig) -> BTreeSet<String> {
    let resources = batch.profiles.resources().into_iter();
    resources
        .map(|resource| topic_of(&resource, batch, config))
        .collect()
}

/// The rows of the batch for each topic and key.
fn resources_of(
    batch: &Batch,
    config: &KafkaConfig,
    partitions: &Partitions,
) -> BTreeMap<(String, Option<String>), Vec<usize>> {
    let mut first_keys: BTreeMap<(String, usize), String> = BTreeMap::new();
    let mut rows: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (row, resource) in batch.profiles.resources().iter().enumerate() {
        let topic = topic_of(resource, batch, config);
        let key = config.partition_profiles_by_resource_attributes.then(|| {
            let key = key_of(&resource.attributes);
            let Some(partitions) = partitions.get(&topic) else {
                return key;
            };
            let partition = (topic.clone(), partition_of(&key, *partitions));
            first_keys.entry(partition).or_insert(key).clone()
        });
        rows.entry((topic, key)).or_default().push(row);
    }
    rows
}

/// The partition to which Kafka's clients send messages with this key.
fn partition_of(key: &str, partitions: usize) -> usize {
    (murmur2(key.as_bytes()) & 0x7fff_ffff) as usize % partitions.max(1)
}

fn topic_of(resource: &Resource, batch: &Batch, config: &KafkaConfig) -> String {
    let profiles = &config.profiles;
    let from_metadata = batch.metadata.get(&profiles.topic_from_metadata_key);
    let topic = from_metadata.first().cloned();
    let topic = topic.or_else(|| topic_from(resource, &config.topic_from_attribute));
    topic.unwrap_or_else(|| profiles.topic.clone())
}

fn topic_from(resource: &Resource, attribute: &str) -> Option<String> {
    let mut attributes = resource.attributes.iter();
    let named = attributes.find(|it| &*it.key == attribute)?;
    let topic = named.value.as_str()?;
    (!topic.is_empty()).then(|| topic.to_owned())
}

/// A hash of the attributes, whatever their order; the same on every host and in every version.
fn key_of(attributes: &Attributes) -> String {
    let bytes = attribute_bytes::of_all(attributes);
    format!("{:032x}", XxHash3_128::oneshot(&bytes))
}
