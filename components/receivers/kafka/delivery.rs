//! Delivers messages, and commits their offsets after that.

use std::cell::{OnceCell, RefCell};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use krafka::consumer::{
    Consumer, ConsumerRebalanceListener, ConsumerRecord, OffsetAndMetadata, TopicPartition,
};
use parking_lot::Mutex;
use profcol_component::{
    Answer, Batch, BatchId, Finalizers, IntCounter, Outcome, Output, Refusal, Stop,
};
use profcol_kafka::{DecodeError, Encoding, Error};
use profcol_profile::{KeyValue, Profiles, Received, Value};
use tokio::sync::Notify;

use super::offsets::Offsets;
use crate::shared::{Deduplicator, Memory, offer_within};

/// Maximum delay between retries, unless the refusal has one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Delay before messages that the exporters gave up on are pushed again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// How long messages in flight may keep a partition that moves to another member.
const REVOKE_GRACE: Duration = Duration::from_secs(5);

/// Delivers messages, and commits their offsets after that.
pub(super) struct Delivery {
    pub(super) output: Output,
    pub(super) stop: Stop,
    pub(super) memory: Memory,
    pub(super) encoding: Encoding,
    /// Headers to add as resource attributes.
    pub(super) headers: Vec<String>,
    pub(super) counters: Counters,
    pub(super) deduplicator: Option<Deduplicator>,
    pub(super) offsets: Mutex<Offsets>,
    settled: Notify,
    /// It has this as its listener.
    consumer: Mutex<Weak<Consumer>>,
}

pub(super) struct Counters {
    pub(super) messages: IntCounter,
    pub(super) undecodable: IntCounter,
    pub(super) refused: IntCounter,
    pub(super) repeated: IntCounter,
}

impl Delivery {
    pub(super) fn new(
        output: Output,
        stop: Stop,
        memory: Memory,
        encoding: Encoding,
        headers: Vec<String>,
        counters: Counters,
        deduplicator: Option<Deduplicator>,
    ) -> Self {
        Self {
            output,
            stop,
            memory,
            encoding,
            headers,
            counters,
            deduplicator,
            offsets: Mutex::default(),
            settled: Notify::new(),
            consumer: Mutex::default(),
        }
    }

    pub(super) fn commit_to(&self, consumer: &Arc<Consumer>) {
        *self.consumer.lock() = Arc::downgrade(consumer);
    }

    /// A message was read; call [`deliver`](Self::deliver) for it.
    pub(super) fn read(&self, record: &ConsumerRecord) {
        self.counters.messages.inc();
        let partition = partition_of(record);
        self.offsets.lock().read(&partition, record.offset);
    }

    /// Delivers a message. After a stop it may end without an outcome; then the message is not committed.
    pub(super) async fn deliver(self: &Arc<Self>, record: ConsumerRecord) {
        let partition = partition_of(&record);
        if self.process(&record).await {
            self.offsets.lock().settle(&partition, record.offset);
            self.settled.notify_waiters();
        }
    }

    /// Returns whether the message needs no further attempt.
    async fn process(self: &Arc<Self>, record: &ConsumerRecord) -> bool {
        let (topic, partition, offset) = (&*record.topic, record.partition, record.offset);
        let Some(value) = record.value.clone() else {
            // It deletes older messages with its key.
            return true;
        };
        let received = match self.decode(&value).await {
            None => return false,
            Some(Ok(received)) => received,
            Some(Err(error)) => {
                self.counters.undecodable.inc();
                tracing::error!(topic, partition, offset, %error, "Skipping a message that cannot be decoded; check `encoding` in `profiles`.");
                return true;
            }
        };
        let dropped: usize = received.repaired.values().sum();
        if dropped > 0 {
            self.output.count_failed(dropped as u64);
            tracing::warn!(
                topic,
                partition,
                offset,
                dropped,
                "Dropping invalid samples."
            );
        }
        let profiles = self.with_headers(received.profiles, record);
        if profiles.is_empty() {
            return true;
        }
        let samples = profiles.sample_count() as u64;
        let batch = Batch::recorded(profiles);
        let sent_as = record.header_str(BatchId::HEADER).and_then(BatchId::parse);
        let batch = match sent_as {
            // Its resends keep another one: this comes from outside, and several messages may have it.
            Some(id) => batch.with_id(id),
            None => batch,
        };
        loop {
            let answer = match (sent_as, &self.deduplicator) {
                (Some(id), Some(deduplicator)) => {
                    let (delivery, batch) = (Arc::clone(self), batch.detached());
                    let pushing = async move { delivery.push(&batch).await };
                    deduplicator.once(id, samples, pushing).await
                }
                _ => self.push(&batch).await,
            };
            match answer {
                Ok(()) => return true,
                Err(refusal) if !refusal.is_retryable() => {
                    self.counters.refused.inc();
                    tracing::error!(topic, partition, offset, error = %refusal, "Message permanently refused.");
                    return true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_DELAY) => self.counters.repeated.inc(),
                () = self.stop.cancelled() => return false,
            }
        }
    }

    /// Pushes a batch once; the answer comes after the delivery.
    async fn push(&self, batch: &Batch) -> Answer {
        let (waiting, outcome) = Finalizers::watched();
        // For processors that decode the batch, until the exporters' queues have it.
        let undecoded = batch.profiles.counts().undecoded_size;
        let offered = offer_within(
            || self.memory.reserve(undecoded),
            &self.output,
            &self.stop,
            batch,
            waiting,
            MAX_RETRY_DELAY,
        );
        offered.await?;
        match outcome.await.unwrap_or(Outcome::Lost) {
            Outcome::Delivered => Ok(()),
            Outcome::Rejected => Err(Refusal::permanent("a destination refused the profiles")),
            Outcome::Undelivered | Outcome::Lost => {
                Err(Refusal::retry("the exporters gave up on the profiles"))
            }
        }
    }

    /// Decodes a message once there is memory for it; `None` after a stop.
    async fn decode(&self, message: &Bytes) -> Option<Result<Received, DecodeError>> {
        let decoding = self.memory.when_granted(|grant| {
            let (grant, refused) = (RefCell::new((grant, 0_usize)), OnceCell::new());
            let ask = |bytes| {
                let (grant, total) = &mut *grant.borrow_mut();
                *total = total.saturating_add(bytes);
                match grant.resize(*total) {
                    Ok(()) => true,
                    Err(exhausted) => {
                        // Decoding ends after the first refusal.
                        let _ = refused.set(exhausted);
                        false
                    }
                }
            };
            let decoded = self.encoding.decode_within(message.clone(), &ask);
            refused.into_inner().map_or(Ok(decoded), Err)
        });
        decoding.await.map(|(decoded, _)| decoded)
    }

    fn with_headers(&self, mut profiles: Profiles, record: &ConsumerRecord) -> Profiles {
        let named = |name: &String| {
            let value = record.header_str(name)?;
            Some(KeyValue {
                key: format!("kafka.header.{name}").into(),
                value: Value::from(value),
            })
        };
        let attributes: Vec<KeyValue> = self.headers.iter().filter_map(named).collect();
        if !attributes.is_empty() {
            profiles.update_resources(|resource| {
                resource
                    .attributes
                    .retain(|old| attributes.iter().all(|new| new.key != old.key));
                resource.attributes.extend(attributes.iter().cloned());
                true
            });
        }
        profiles
    }

    /// Commits what was delivered since the last call.
    pub(super) async fn commit(&self) {
        let consumer = self.consumer.lock().upgrade();
        let Some(consumer) = consumer else {
            return;
        };
        let offsets = self.offsets.lock().to_commit();
        if offsets.is_empty() {
            return;
        }
        let committing = offsets.iter().map(|((topic, partition), offset)| {
            let partition = TopicPartition::new(topic.clone(), *partition);
            (partition, OffsetAndMetadata::new(*offset))
        });
        match consumer.commit_offsets(committing).await {
            Ok(()) => self.offsets.lock().committed(&offsets),
            Err(error) => {
                tracing::warn!(error = %Error::from(error), "Failed to commit offsets; will retry.");
            }
        }
    }

    async fn settle(&self, partitions: &[TopicPartition]) {
        loop {
            let settled = self.settled.notified();
            if !self.offsets.lock().are_in_flight(partitions) {
                return;
            }
            settled.await;
        }
    }
}

impl ConsumerRebalanceListener for Delivery {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        tracing::info!(partitions = partitions.len(), "Partitions assigned.");
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        if partitions.is_empty() {
            return;
        }
        // What is in flight after that is delivered by the next member, too.
        tokio::select! {
            _ = tokio::time::timeout(REVOKE_GRACE, self.settle(partitions)) => {}
            // The receiver has waited already.
            () = self.stop.cancelled() => {}
        }
        self.commit().await;
        self.offsets.lock().forget(partitions);
        tracing::info!(partitions = partitions.len(), "Partitions revoked.");
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        self.offsets.lock().forget(partitions);
        tracing::warn!(
            partitions = partitions.len(),
            "Partitions lost; messages in flight may be delivered twice."
        );
    }
}

fn partition_of(record: &ConsumerRecord) -> TopicPartition {
    TopicPartition::new(&*record.topic, record.partition)
}
