//! Sends profiles to Kafka.
//!
//! ```text
//! batch ──► a message per partition, or more ──► producer ──► leaders of the partitions
//!       ◄── the unacknowledged part ◄───────────────────────── acknowledgements
//! ```
//!
//! The client connects with the first batch, so that profcol starts without a broker.

mod config;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use krafka::error::KrafkaError;
use krafka::producer::{Acks, Producer};
use krafka::{CloseOptions, Compression, Record};
use profcol_component::{
    Batch, BatchId, BuildContext, BuildError, Capabilities, Check, Delivered, Delivery, Exporter,
    Factory, IntCounter, Metadata, Refusal, RunError, Stability, Stop, Undelivered,
};
use profcol_kafka::{Error, check_cluster, check_topic};
use tokio::sync::Mutex;

pub use self::config::KafkaConfig;
use self::config::{MessageCompression, ProducerConfig, RequiredAcks};
use self::messages::{Message, Messages, Partitions, topics_of};

/// How long messages may take after a stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The length of a value takes up to this many bytes in a message.
const MAX_LENGTH_BYTES: usize = 5;

/// Minimum memory for messages that are not acknowledged yet.
const MIN_BUFFER_BYTES: usize = 32 << 20;

pub struct Kafka {
    config: KafkaConfig,
    /// `None` until it is connected, and after an error that ended it.
    producer: Mutex<Option<Arc<Producer>>>,
    messages: IntCounter,
    bytes: IntCounter,
}

impl Factory for Kafka {
    const NAME: &'static str = "kafka";
    const STABILITY: Stability = Stability::Alpha;
    type Config = KafkaConfig;
    type Component = dyn Exporter;

    fn capabilities(_: &KafkaConfig) -> Capabilities {
        Capabilities::NONE
    }

    fn build(
        config: &KafkaConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Self::new(config, context)))
    }
}

#[async_trait]
impl Exporter for Kafka {
    fn delivery(&self) -> Delivery {
        let queue = &self.config.sending_queue;
        Delivery {
            // The client has timeouts for messages: it must not forget one that may be acknowledged.
            timeout: None,
            retry: self.config.retry_on_failure.clone(),
            queue: queue.enabled.then(|| queue.clone()),
            passthrough_encoding: None,
        }
    }

    async fn check(&self) -> Vec<Check> {
        let topic = &self.config.profiles.topic;
        let is_created = self.config.producer.allow_auto_topic_creation;
        match check_cluster(&self.config.client).await {
            Ok((kafka, mut checks)) => {
                checks.push(check_topic(&kafka, topic, is_created).await);
                checks
            }
            Err(checks) => checks,
        }
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let producer = self.producer().await.map_err(Refusal::retry)?;
        // Waiting for an unavailable topic once is enough.
        let mut unavailable: BTreeMap<String, Refusal> = BTreeMap::new();
        let mut partitions = Partitions::new();
        // Only keys need their number.
        let is_keyed = self.config.partition_profiles_by_resource_attributes;
        let topics = is_keyed.then(|| topics_of(batch, &self.config));
        for topic in topics.into_iter().flatten() {
            match producer.partitions_for(&topic).await {
                Ok(found) => {
                    partitions.insert(topic, found.len());
                }
                Err(error) => {
                    let refusal = self.failed(&producer, error, 0).await;
                    unavailable.insert(topic, refusal);
                }
            }
        }
        let limit = self.value_limit(&batch.metadata);
        let Messages { messages, oversize } = Messages::of(batch, &self.config, &partitions, limit);
        let mut undelivered = oversize;
        let mut waiting = Vec::new();
        let mut acknowledged_messages = 0;
        for message in messages {
            if let Some(refusal) = unavailable.get(&message.topic) {
                undelivered.push(Undelivered {
                    id: None,
                    profiles: message.profiles,
                    refusal: refusal.clone(),
                });
                continue;
            }
            let record = self.record(&message, &batch.metadata);
            match producer.enqueue(record).await {
                Ok(acknowledged) => waiting.push((message, acknowledged)),
                Err(error) => {
                    let bytes = message.profiles.encoded_len();
                    let refusal = self.failed(&producer, error, bytes).await;
                    if refusal.is_retryable() {
                        unavailable.insert(message.topic, refusal.clone());
                    }
                    undelivered.push(Undelivered {
                        id: None,
                        profiles: message.profiles,
                        refusal,
                    });
                }
            }
        }
        for (message, acknowledged) in waiting {
            match acknowledged.await {
                Ok(_) => {
                    acknowledged_messages += 1;
                    self.messages.inc();
                    self.bytes.inc_by(message.value.len() as u64);
                }
                Err(error) => {
                    let bytes = message.profiles.encoded_len();
                    let refusal = self.failed(&producer, error, bytes).await;
                    undelivered.push(Undelivered {
                        id: Some(message.id),
                        profiles: message.profiles,
                        refusal,
                    });
                }
            }
        }
        let is_retryable = undelivered.iter().all(|part| part.refusal.is_retryable());
        if acknowledged_messages == 0 && is_retryable {
            // Sent again as a whole, the messages keep their ids.
            let refusals = undelivered.iter().map(|part| part.refusal.clone());
            if let Some(refusal) = refusals.reduce(Refusal::prevailing) {
                return Err(refusal);
            }
        }
        Ok(Delivered {
            undelivered,
            ..Delivered::default()
        })
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        let Some(producer) = self.producer.lock().await.take() else {
            return Ok(());
        };
        let left = stop.finish_within(SHUTDOWN_GRACE) - tokio::time::Instant::now();
        if let Err(error) = producer.close_with(CloseOptions::new().timeout(left)).await {
            tracing::warn!(error = %Error::from(error), "Failed to close the producer.");
        }
        Ok(())
    }
}

impl Kafka {
    fn new(config: &KafkaConfig, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("exporter", &id)]);
        Self {
            config: config.clone(),
            producer: Mutex::default(),
            messages: counter(
                "otelcol_exporter_kafka_messages",
                "Messages acknowledged by brokers.",
            ),
            bytes: counter(
                "otelcol_exporter_kafka_message_bytes",
                "Size of acknowledged messages, before compression.",
            ),
        }
    }

    /// Connects unless connected.
    async fn producer(&self) -> Result<Arc<Producer>, Error> {
        let mut producer = self.producer.lock().await;
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let connected = Arc::new(self.connect().await?);
        *producer = Some(Arc::clone(&connected));
        Ok(connected)
    }

    async fn connect(&self) -> Result<Producer, Error> {
        let KafkaConfig {
            client,
            producer,
            timeout,
            ..
        } = &self.config;
        let kafka = client.connect(timeout.to_std(), |builder| {
            builder.allow_auto_create_topics(producer.allow_auto_topic_creation)
        });
        let max_message_bytes = producer.max_message_bytes as usize;
        let builder = kafka
            .await?
            .producer()
            .acks(acks(producer.required_acks))
            .idempotent(producer.required_acks == RequiredAcks::All)
            .compression(compression(producer.compression))
            .compression_level(level(producer))
            .batch_size(max_message_bytes)
            .linger(producer.linger.to_std())
            .delivery_timeout(producer.delivery_timeout.to_std())
            .max_request_size(producer.max_broker_write_bytes as usize)
            .max_block(timeout.to_std())
            .buffer_memory(MIN_BUFFER_BYTES.max(max_message_bytes.saturating_mul(2)))
            // The brokers' operators have profcol's own metrics.
            .metrics_push(false);
        Ok(builder.build().await?)
    }

    /// The refusal of a message of `bytes`. After an error that ends the producer, the next batch gets a new one.
    async fn failed(&self, producer: &Arc<Producer>, error: KrafkaError, bytes: usize) -> Refusal {
        let error = Error::from(error);
        if error.ends_the_client() {
            let mut current = self.producer.lock().await;
            current.take_if(|current| Arc::ptr_eq(current, producer));
        }
        error.refusal(bytes)
    }

    fn record(&self, message: &Message, metadata: &Metadata) -> Record {
        let mut record = Record::new(message.topic.as_str(), message.value.clone());
        if let Some(key) = &message.key {
            record = record.key(key.clone());
        }
        self.with_headers(record, message.id, metadata)
    }

    fn with_headers(&self, record: Record, id: BatchId, metadata: &Metadata) -> Record {
        let mut record = record.header(BatchId::HEADER, id.to_string());
        for (name, value) in self.config.record_headers.iter() {
            record = record.header(name, value.expose().to_owned());
        }
        for key in &self.config.include_metadata_keys {
            for value in metadata.get(key) {
                record = record.header(key, value.clone());
            }
        }
        record
    }

    /// The maximum length of a value, such that its message does not exceed `max_message_bytes`.
    fn value_limit(&self, metadata: &Metadata) -> usize {
        let key = format!("{:032x}", 0);
        let empty = Record::new(self.config.profiles.topic.as_str(), "").key(key);
        // All ids have the same length.
        let with_headers = self.with_headers(empty, BatchId::of_content(b""), metadata);
        let overhead = with_headers.estimated_size() + MAX_LENGTH_BYTES;
        (self.config.producer.max_message_bytes as usize).saturating_sub(overhead)
    }
}

fn acks(required: RequiredAcks) -> Acks {
    match required {
        RequiredAcks::All => Acks::All,
        RequiredAcks::Leader => Acks::Leader,
        RequiredAcks::None => Acks::None,
    }
}

fn compression(configured: MessageCompression) -> Compression {
    match configured {
        MessageCompression::None => Compression::None,
        MessageCompression::Gzip => Compression::Gzip,
        MessageCompression::Snappy => Compression::Snappy,
        MessageCompression::Lz4 => Compression::Lz4,
        MessageCompression::Zstd => Compression::Zstd,
    }
}

fn level(producer: &ProducerConfig) -> Option<i32> {
    Some(producer.compression_params.level).filter(|level| *level != 0)
}
