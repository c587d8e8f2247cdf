//! The options of `kafka`, with the Collector's keys.

use profcol_config::{Config, Duration, Present, Problems};
use profcol_kafka::{ClientSettings, Encoding};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::DeduplicateConfig;

/// Receives profiles from Kafka.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "autocommit": "offsets are committed after delivery, every `commit_interval`; remove it",
    "default_fetch_size": "use `max_partition_fetch_size`",
    "encoding": "set `encoding` in `profiles`",
    "error_backoff": "messages are pushed again until the pipelines accept them; remove it",
    "group_rebalance_strategy": "use the list `group_rebalance_strategies`",
    "logs": "profcol supports only profiles; remove it",
    "message_marking": "offsets are committed after delivery; remove it",
    "metrics": "profcol supports only profiles; remove it",
    "partition_processing": "messages are delivered concurrently, up to `max_in_flight`; remove it",
    "protocol_version": "versions are negotiated with the brokers; remove it",
    "resolve_canonical_bootstrap_servers_only": "list the brokers by their names in `brokers`; remove it",
    "topic": "set `topics` in `profiles`",
    "traces": "profcol supports only profiles; remove it",
    "use_leader_epoch": "leader epochs are always in use; remove it",
}))]
pub struct KafkaConfig {
    #[serde(flatten)]
    pub client: ClientSettings,
    /// Topics and encoding of profiles.
    pub profiles: ProfilesConfig,
    /// The consumer group: its members share the partitions.
    pub group_id: String,
    /// Identifies this member across restarts, so that a short restart moves no partitions. Must be unique in the group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_instance_id: String,
    /// Where to start in a partition without a committed offset: at the `latest` message, or the `earliest`.
    pub initial_offset: InitialOffset,
    /// The group gives the partitions of a silent member to others after this time.
    pub session_timeout: Duration,
    /// How often to tell the group that this member is alive.
    pub heartbeat_interval: Duration,
    /// How the group assigns partitions, in order of preference: `cooperative-sticky`, `range` or `roundrobin`.
    /// All members need one in common.
    pub group_rebalance_strategies: Vec<Strategy>,
    /// The rack of this host. If the brokers are configured for it, messages are fetched from replicas in the same rack.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rack_id: String,
    /// Minimum bytes of messages in a broker's response; it waits up to `max_fetch_wait` for them.
    pub min_fetch_size: u32,
    /// Maximum bytes of messages in a broker's response. A single larger message is fetched nevertheless.
    pub max_fetch_size: u32,
    /// Maximum bytes of a partition's messages in a broker's response.
    pub max_partition_fetch_size: u32,
    /// How long a broker may wait for `min_fetch_size`.
    pub max_fetch_wait: Duration,
    /// Maximum size of messages that were compressed together, after decompression.
    pub max_decompress_batch_bytes: u32,
    /// Maximum number of messages in flight. After a crash, about as many are delivered twice.
    pub max_in_flight: u16,
    /// How often to commit the offsets of delivered messages.
    pub commit_interval: Duration,
    /// Headers of messages as resource attributes.
    pub header_extraction: HeaderExtraction,
    /// Take a batch only once, by the id that profcol's exporters send with it; disabled if absent.
    pub deduplicate: Present<DeduplicateConfig>,
}

/// Topics and encoding of profiles.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ProfilesConfig {
    /// The topics. One that starts with `^` is a regular expression.
    pub topics: Vec<String>,
    /// Regular expressions of topics to leave out.
    pub exclude_topics: Vec<String>,
    /// Encoding of messages: `otlp_proto` or `otlp_json`.
    pub encoding: Encoding,
}

/// Headers of messages as resource attributes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct HeaderExtraction {
    /// Add the headers as attributes `kafka.header.<name>`.
    pub extract_headers: bool,
    /// The headers.
    pub headers: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InitialOffset {
    #[default]
    Latest,
    Earliest,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-unknown" = "unsupported strategy"))]
pub enum Strategy {
    CooperativeSticky,
    Range,
    #[serde(rename = "roundrobin")]
    RoundRobin,
}

impl Config for KafkaConfig {
    fn validate(&self, problems: &mut Problems) {
        self.client.validate(problems);
        self.profiles.validate(problems);
        if self.group_id.is_empty() {
            problems.add("group_id", "must be set");
        }
        for (key, duration) in [
            ("session_timeout", self.session_timeout),
            ("heartbeat_interval", self.heartbeat_interval),
            ("max_fetch_wait", self.max_fetch_wait),
            ("commit_interval", self.commit_interval),
        ] {
            if duration.is_negative() || duration.is_zero() {
                problems.add(key, "must be positive");
            }
        }
        if self.heartbeat_interval >= self.session_timeout {
            problems.add("heartbeat_interval", "must be below `session_timeout`");
        }
        if self.group_rebalance_strategies.is_empty() {
            problems.add(
                "group_rebalance_strategies",
                "must have at least one strategy",
            );
        }
        let limit = i32::MAX as u32;
        for (key, bytes) in [
            ("max_fetch_size", self.max_fetch_size),
            ("max_partition_fetch_size", self.max_partition_fetch_size),
            (
                "max_decompress_batch_bytes",
                self.max_decompress_batch_bytes,
            ),
        ] {
            if !(1..=limit).contains(&bytes) {
                problems.add(key, format!("must be between 1 and {limit}"));
            }
        }
        if self.min_fetch_size > self.max_fetch_size {
            problems.add("min_fetch_size", "must not exceed `max_fetch_size`");
        }
        if self.max_in_flight == 0 {
            problems.add("max_in_flight", "must be positive");
        }
        if let Some(deduplicate) = &*self.deduplicate {
            problems.nested("deduplicate", |problems| deduplicate.validate(problems));
        }
        if self.header_extraction.extract_headers == self.header_extraction.headers.is_empty() {
            problems.add(
                "header_extraction::headers",
                "must be set if and only if `extract_headers` is",
            );
        }
    }
}

impl ProfilesConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.topics.is_empty() || self.topics.iter().any(String::is_empty) {
            problems.add("profiles::topics", "must have at least one topic");
        }
        let has_pattern = self.topics.iter().any(|topic| topic.starts_with('^'));
        if !self.exclude_topics.is_empty() && !has_pattern {
            problems.add(
                "profiles::exclude_topics",
                "requires a regular expression in `topics`",
            );
        }
        for (key, texts) in [
            ("topics", &self.topics),
            ("exclude_topics", &self.exclude_topics),
        ] {
            for (at, text) in texts.iter().enumerate() {
                let is_pattern = key == "exclude_topics" || text.starts_with('^');
                if let Some(Err(error)) = is_pattern.then(|| Regex::new(text)) {
                    problems.add(&format!("profiles::{key}::{at}"), error);
                }
            }
        }
    }
}

// === defaults ===

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            client: ClientSettings::default(),
            profiles: ProfilesConfig::default(),
            group_id: "profcol".to_owned(),
            group_instance_id: String::new(),
            initial_offset: InitialOffset::default(),
            session_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(3),
            group_rebalance_strategies: vec![Strategy::CooperativeSticky],
            rack_id: String::new(),
            min_fetch_size: 1,
            max_fetch_size: 1 << 20,
            max_partition_fetch_size: 1 << 20,
            max_fetch_wait: Duration::from_millis(250),
            max_decompress_batch_bytes: 128 << 20,
            max_in_flight: 100,
            commit_interval: Duration::from_secs(1),
            header_extraction: HeaderExtraction::default(),
            deduplicate: Present::default(),
        }
    }
}

impl Default for ProfilesConfig {
    fn default() -> Self {
        Self {
            topics: vec!["otlp_profiles".to_owned()],
            exclude_topics: Vec::new(),
            encoding: Encoding::default(),
        }
    }
}
