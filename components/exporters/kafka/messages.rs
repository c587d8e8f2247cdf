//! Makes messages of a batch: each has the profiles of one resource, and is complete in itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use profcol_component::{Batch, Refusal, Undelivered};
use profcol_kafka::Encoding;
use profcol_profile::{Attributes, Bound, Profiles, Resource};
use twox_hash::XxHash3_128;

use super::config::KafkaConfig;
use crate::shared::attribute_bytes;

/// A message, and the profiles in it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) topic: String,
    /// Equal for messages of the same resource, which therefore stay in order in one partition.
    pub(super) key: String,
    pub(super) value: Bytes,
    pub(super) profiles: Profiles,
}

/// The messages of a batch, and the samples that do not fit into one.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) messages: Vec<Message>,
    pub(super) oversize: Vec<Undelivered>,
}

impl Messages {
    /// `limit` is the maximum length of a value.
    pub(super) fn of(batch: &Batch, config: &KafkaConfig, limit: usize) -> Self {
        let mut messages = Self::default();
        for ((topic, key), rows) in resources_of(batch, config) {
            let profiles = batch.profiles.part(&rows);
            messages.add(&topic, &key, profiles, config.profiles.encoding, limit);
        }
        messages
    }

    fn add(
        &mut self,
        topic: &str,
        key: &str,
        profiles: Profiles,
        encoding: Encoding,
        limit: usize,
    ) {
        let mut parts = vec![profiles];
        while let Some(profiles) = parts.pop() {
            let value = encoding.encode(&profiles);
            if value.len() <= limit {
                self.messages.push(Message {
                    topic: topic.to_owned(),
                    key: key.to_owned(),
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
            let left = split.oversize.into_iter();
            self.oversize
                .extend(left.map(|profiles| oversize(profiles, limit)));
            parts.extend(split.pieces.into_iter().rev());
        }
    }
}

fn oversize(profiles: Profiles, limit_bytes: usize) -> Undelivered {
    let reason = format!(
        "single samples exceed the message size limit of {limit_bytes} bytes; raise `producer::max_message_bytes`"
    );
    let reason = reason.into();
    Undelivered {
        profiles,
        refusal: Refusal::TooLarge {
            reason,
            limit_bytes,
        },
    }
}

/// The rows of the batch for each topic and key.
fn resources_of(batch: &Batch, config: &KafkaConfig) -> BTreeMap<(String, String), Vec<usize>> {
    let from_metadata = batch
        .metadata
        .get(&config.profiles.topic_from_metadata_key)
        .first();
    let mut rows: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (row, resource) in batch.profiles.resources().iter().enumerate() {
        let from_attribute = || topic_of(resource, &config.topic_from_attribute);
        let topic = from_metadata.cloned().or_else(from_attribute);
        let topic = topic.unwrap_or_else(|| config.profiles.topic.clone());
        let key = key_of(&resource.attributes);
        rows.entry((topic, key)).or_default().push(row);
    }
    rows
}

fn topic_of(resource: &Resource, attribute: &str) -> Option<String> {
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
