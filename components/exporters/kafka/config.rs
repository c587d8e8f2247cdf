//! The options of `kafka`, with the Collector's keys.

use std::borrow::Cow;

use profcol_component::{QueueSettings, RetrySettings};
use profcol_config::{Config, Duration, Headers, Problems};
use profcol_kafka::{ClientSettings, Encoding};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shared::otlp::validate_headers;

/// Below this, messages have no room for a sample.
const MIN_MESSAGE_BYTES: u32 = 1024;

/// Sends profiles to Kafka.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "encoding": "set `encoding` in `profiles`",
    "logs": "profcol supports only profiles; remove it",
    "metrics": "profcol supports only profiles; remove it",
    "partition_logs_by_resource_attributes": "for profiles it is `partition_profiles_by_resource_attributes`; remove it",
    "partition_logs_by_trace_id": "for profiles it is `partition_profiles_by_resource_attributes`; remove it",
    "partition_metrics_by_resource_attributes": "for profiles it is `partition_profiles_by_resource_attributes`; remove it",
    "partition_traces_by_id": "for profiles it is `partition_profiles_by_resource_attributes`; remove it",
    "protocol_version": "versions are negotiated with the brokers; remove it",
    "rack_id": "messages go to the leader of their partition, wherever that is; remove it",
    "record_partitioner": "the partition is chosen by the key, as Kafka's own clients do; remove it",
    "resolve_canonical_bootstrap_servers_only": "list the brokers by their names in `brokers`; remove it",
    "topic": "set `topic` in `profiles`",
    "traces": "profcol supports only profiles; remove it",
    "use_leader_epoch": "leader epochs are always in use; remove it",
}))]
pub struct KafkaConfig {
    #[serde(flatten)]
    pub client: ClientSettings,
    /// Topic and encoding of profiles.
    pub profiles: ProfilesConfig,
    /// Resource attribute that names the topic. Resources without it go to `profiles::topic`.
    pub topic_from_attribute: String,
    /// Use a hash of the resource's attributes as key, so that what comes from one resource stays in one partition, in order. If false,
    /// a batch is one message without a key, as from the Collector: less work, and no order.
    pub partition_profiles_by_resource_attributes: bool,
    /// Request metadata of the sender to add to messages as headers (receivers need `include_metadata: true`).
    pub include_metadata_keys: Vec<String>,
    /// Headers of every message.
    pub record_headers: Headers,
    /// How messages are produced.
    pub producer: ProducerConfig,
    /// Timeout of a request to a broker.
    pub timeout: Duration,
    /// Retries after a retryable error.
    pub retry_on_failure: RetrySettings,
    /// The queue in front of the exporter.
    pub sending_queue: QueueSettings,
}

/// Topic and encoding of profiles.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "message_key_from_metadata_key": "messages have the resource as key, or none; remove it",
}))]
pub struct ProfilesConfig {
    /// The topic.
    pub topic: String,
    /// Encoding of messages: `otlp_proto` or `otlp_json`.
    pub encoding: Encoding,
    /// Request metadata of the sender that names the topic; it has precedence over `topic_from_attribute`.
    pub topic_from_metadata_key: String,
}

/// How messages are produced.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "flush_max_messages": "requests are bounded by `max_broker_write_bytes`; remove it",
}))]
pub struct ProducerConfig {
    /// Maximum size of a message, before compression. Larger batches are split. At most the topic's `max.message.bytes`.
    pub max_message_bytes: u32,
    /// Maximum size of a request to a broker.
    pub max_broker_write_bytes: u32,
    /// Which replicas must have a message before it counts as delivered: `all` that are in sync, 1 for the leader, or
    /// 0 for none, which loses messages unnoticed. Brokers drop duplicates only with `all`.
    pub required_acks: RequiredAcks,
    /// `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    pub compression: MessageCompression,
    /// Parameters of the compression.
    pub compression_params: CompressionParams,
    /// How long to wait for further messages to the same partition.
    pub linger: Duration,
    /// How long to wait for the acknowledgement of a message. Within this time the brokers drop duplicates; a message
    /// that is retried later may be stored twice.
    pub delivery_timeout: Duration,
    /// Ask the broker to create missing topics; it does if its `auto.create.topics.enable` is set.
    pub allow_auto_topic_creation: bool,
}

/// Parameters of the compression.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct CompressionParams {
    /// Compression level; 0 means the default. gzip: 1 (fastest) to 9 (smallest); zstd: 1 to 22. Others have none.
    pub level: i32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "unsupported compression type", "x-aliases" = {"": "none"}))]
pub enum MessageCompression {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Which replicas must have a message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RequiredAcks {
    #[default]
    All,
    Leader,
    None,
}

impl Serialize for RequiredAcks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Leader => serializer.serialize_i64(1),
            Self::None => serializer.serialize_i64(0),
        }
    }
}

impl<'de> Deserialize<'de> for RequiredAcks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(-1) => Ok(Self::All),
            Written::Number(1) => Ok(Self::Leader),
            Written::Number(0) => Ok(Self::None),
            Written::Text(text) if text == "all" => Ok(Self::All),
            _ => Err(D::Error::custom("must be `all` (or -1), 1 or 0")),
        }
    }
}

impl JsonSchema for RequiredAcks {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RequiredAcks".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [
            { "type": "string", "enum": ["all"] },
            { "type": "integer", "minimum": -1, "maximum": 1 },
        ] })
    }
}

impl Config for KafkaConfig {
    fn validate(&self, problems: &mut Problems) {
        self.client.validate(problems);
        if self.profiles.topic.is_empty() {
            problems.add("profiles::topic", "must be set");
        }
        if self.timeout.is_negative() || self.timeout.is_zero() {
            problems.add("timeout", "must be positive");
        }
        validate_headers("record_headers", &self.record_headers, problems);
        problems.nested("producer", |problems| {
            self.producer.validate(self.timeout, problems);
        });
        problems.nested("retry_on_failure", |problems| {
            self.retry_on_failure.validate(problems);
        });
        problems.nested("sending_queue", |problems| {
            self.sending_queue.validate(problems);
        });
    }
}

impl ProducerConfig {
    fn validate(&self, timeout: Duration, problems: &mut Problems) {
        if self.max_message_bytes < MIN_MESSAGE_BYTES {
            problems.add(
                "max_message_bytes",
                format!("must be at least {MIN_MESSAGE_BYTES}"),
            );
        }
        if self.max_broker_write_bytes < self.max_message_bytes.saturating_add(MIN_MESSAGE_BYTES) {
            problems.add(
                "max_broker_write_bytes",
                format!("must exceed `max_message_bytes` by {MIN_MESSAGE_BYTES} or more"),
            );
        }
        if self.max_broker_write_bytes > i32::MAX as u32 {
            problems.add("max_broker_write_bytes", "must be below 2 GiB");
        }
        if self.linger.is_negative() {
            problems.add("linger", "must be non-negative");
        } else if self.delivery_timeout.to_std() < timeout.to_std() + self.linger.to_std() {
            problems.add(
                "delivery_timeout",
                "must be at least `timeout` and `linger` together",
            );
        }
        let levels = match self.compression {
            MessageCompression::Gzip => 0..=9,
            MessageCompression::Zstd => 0..=22,
            _ => 0..=0,
        };
        if !levels.contains(&self.compression_params.level) {
            problems.add(
                "compression_params::level",
                "must be 1 to 9 for gzip, 1 to 22 for zstd, and unset for others",
            );
        }
    }
}

// === defaults ===

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            client: ClientSettings::default(),
            profiles: ProfilesConfig::default(),
            topic_from_attribute: String::new(),
            partition_profiles_by_resource_attributes: true,
            include_metadata_keys: Vec::new(),
            record_headers: Headers::default(),
            producer: ProducerConfig::default(),
            timeout: Duration::from_secs(5),
            retry_on_failure: RetrySettings::default(),
            sending_queue: QueueSettings::default(),
        }
    }
}

impl Default for ProfilesConfig {
    fn default() -> Self {
        Self {
            topic: "otlp_profiles".to_owned(),
            encoding: Encoding::default(),
            topic_from_metadata_key: String::new(),
        }
    }
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            max_message_bytes: 1_000_000,
            max_broker_write_bytes: 100 << 20,
            required_acks: RequiredAcks::default(),
            compression: MessageCompression::default(),
            compression_params: CompressionParams::default(),
            linger: Duration::from_millis(10),
            delivery_timeout: Duration::from_secs(120),
            allow_auto_topic_creation: true,
        }
    }
}
