//! Delivery settings shared by all exporters: timeout, retry and queue.
//!
//! Keys, defaults and error messages match the Collector's.

use profcol_config::{ComponentId, Duration, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Sizer;

/// How the engine delivers for an exporter.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Timeout of one export attempt; `None` for exporters that cannot hang.
    pub timeout: Option<std::time::Duration>,
    pub retry: RetrySettings,
    /// `None`: the caller waits for the export and gets its answer.
    pub queue: Option<QueueSettings>,
    /// Bodies received in this encoding are forwarded unchanged: the queue holds only their bytes.
    /// Other batches are queued decoded.
    pub passthrough_encoding: Option<&'static str>,
}

/// Keys of every network exporter; flattened into its configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DeliverySettings {
    /// Timeout of one export attempt; `0s` disables it.
    pub timeout: Duration,
    /// Retries after a retryable error.
    pub retry_on_failure: RetrySettings,
    /// The queue in front of the exporter.
    pub sending_queue: QueueSettings,
}

/// Retries after a retryable error.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RetrySettings {
    /// Send batches again that failed for a reason that may pass; `false` drops them.
    pub enabled: bool,
    /// Delay before the first retry.
    pub initial_interval: Duration,
    /// Factor by which the delay grows after each retry.
    pub multiplier: f64,
    /// Jitter, as a fraction of the delay, 0 to 1.
    pub randomization_factor: f64,
    /// Maximum delay, unless the server asks for a longer one.
    pub max_interval: Duration,
    /// Drop a batch after retrying for this long; `0s` retries forever.
    pub max_elapsed_time: Duration,
}

/// The queue in front of an exporter.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct QueueSettings {
    /// If false, the receiver waits for the export and returns its result to the client.
    pub enabled: bool,
    /// Maximum number of concurrent exports.
    pub num_consumers: i64,
    /// Capacity of the queue, including batches being merged or sent.
    pub queue_size: i64,
    /// Unit of `queue_size`: `requests`, `items` (samples) or `bytes`.
    pub sizer: Sizer,
    /// If the queue is full, block the sender instead of returning a retryable error. Samples of
    /// this host cannot wait: they are dropped and counted either way.
    pub block_on_overflow: bool,
    /// Respond to the sender only after the batch was delivered or dropped.
    pub wait_for_result: bool,
    /// Extension that persists the queue on disk.
    pub storage: Option<ComponentId>,
    /// Merge small batches before sending; disabled if absent.
    pub batch: Present<QueueBatchSettings>,
}

/// Merges small batches before sending and splits large ones.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct QueueBatchSettings {
    /// Maximum time to hold a batch before sending it.
    pub flush_timeout: Duration,
    /// Send as soon as the batch reaches this size.
    pub min_size: i64,
    /// Split batches larger than this; 0 means no limit.
    pub max_size: i64,
    /// Unit of the sizes: `items` (samples) or `bytes`.
    pub sizer: Sizer,
    /// Which clients' batches are never merged with each other.
    pub partition: PartitionSettings,
}

/// Which clients' batches are never merged with each other.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "cache_size": "idle partitions use no memory; remove it",
    "idle_timeout": "idle partitions use no memory; remove it",
}))]
pub struct PartitionSettings {
    /// Batches are merged only if they have equal values for these metadata keys.
    pub metadata_keys: Vec<String>,
}

// === impl DeliverySettings ===

impl DeliverySettings {
    pub fn with_timeout(timeout: Duration) -> Self {
        Self {
            timeout,
            retry_on_failure: RetrySettings::default(),
            sending_queue: QueueSettings::default(),
        }
    }

    /// Timeout of one attempt; `None` if disabled.
    pub fn limit(&self) -> Option<std::time::Duration> {
        (!self.timeout.is_zero()).then(|| self.timeout.into())
    }

    pub fn delivery(&self) -> Delivery {
        Delivery {
            timeout: self.limit(),
            retry: self.retry_on_failure.clone(),
            queue: self
                .sending_queue
                .enabled
                .then(|| self.sending_queue.clone()),
            passthrough_encoding: None,
        }
    }

    pub fn validate(&self, problems: &mut Problems) {
        if self.timeout.is_negative() {
            problems.add("timeout", "'timeout' must be non-negative");
        }
        problems.nested("retry_on_failure", |problems| {
            self.retry_on_failure.validate(problems)
        });
        problems.nested("sending_queue", |problems| {
            self.sending_queue.validate(problems)
        });
    }
}

// === impl QueueSettings ===

impl QueueSettings {
    /// For exporters without a queue when a live source cannot wait: one export at a time, and room
    /// for a few minutes of sampling while the disk stalls.
    pub fn for_live_sources() -> Self {
        Self {
            num_consumers: 1,
            queue_size: 64,
            ..Self::default()
        }
    }
}

// === impl Delivery ===

impl Delivery {
    /// Exports synchronously, without queue or retries: for exporters that only write locally.
    pub fn inline() -> Self {
        let retry = RetrySettings {
            enabled: false,
            ..RetrySettings::default()
        };
        Self {
            timeout: None,
            retry,
            queue: None,
            passthrough_encoding: None,
        }
    }
}

// === defaults ===

impl Default for DeliverySettings {
    fn default() -> Self {
        Self::with_timeout(Duration::from_secs(5))
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            initial_interval: Duration::from_secs(5),
            multiplier: 1.5,
            randomization_factor: 0.5,
            max_interval: Duration::from_secs(30),
            max_elapsed_time: Duration::from_secs(300),
        }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            num_consumers: 10,
            queue_size: 1000,
            sizer: Sizer::Requests,
            block_on_overflow: false,
            wait_for_result: false,
            storage: None,
            batch: Present::default(),
        }
    }
}

impl Default for QueueBatchSettings {
    fn default() -> Self {
        Self {
            flush_timeout: Duration::from_millis(200),
            min_size: 8192,
            max_size: 0,
            sizer: Sizer::Items,
            partition: PartitionSettings::default(),
        }
    }
}

// === validation ===

impl RetrySettings {
    pub fn validate(&self, problems: &mut Problems) {
        if !self.enabled {
            return;
        }
        let durations = [
            ("initial_interval", self.initial_interval),
            ("max_interval", self.max_interval),
            ("max_elapsed_time", self.max_elapsed_time),
        ];
        for (key, duration) in durations {
            if duration.is_negative() {
                problems.add(
                    key,
                    format!("{key} value must be greater than or equal to 0"),
                );
            }
        }
        if self.multiplier.is_nan() || self.multiplier < 0.0 {
            problems.add(
                "multiplier",
                "multiplier value must be greater than or equal to 0",
            );
        }
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            let bound = if self.randomization_factor > 1.0 {
                "less than or equal to 1"
            } else {
                "greater than or equal to 0"
            };
            let message = format!("randomization_factor value must be {bound}");
            problems.add("randomization_factor", message);
        }
        let max_elapsed = self.max_elapsed_time;
        if !max_elapsed.is_zero()
            && (max_elapsed < self.initial_interval || max_elapsed < self.max_interval)
        {
            problems.add(
                "max_elapsed_time",
                "max_elapsed_time should not be less than initial_interval or max_interval",
            );
        }
    }
}

impl QueueSettings {
    pub fn validate(&self, problems: &mut Problems) {
        if !self.enabled {
            return;
        }
        if self.num_consumers <= 0 {
            problems.add("num_consumers", "`num_consumers` must be positive");
        }
        if self.queue_size <= 0 {
            problems.add("queue_size", "`queue_size` must be positive");
        }
        if self.storage.is_some() && self.wait_for_result {
            problems.add(
                "wait_for_result",
                "`wait_for_result` is not supported with a persistent queue configured with `storage`",
            );
        }
        if let Some(batch) = &*self.batch {
            problems.nested("batch", |problems| batch.validate(self, problems));
        }
    }
}

impl QueueBatchSettings {
    fn validate(&self, queue: &QueueSettings, problems: &mut Problems) {
        if self.flush_timeout.is_negative() || self.flush_timeout.is_zero() {
            let message = format!(
                "`flush_timeout` must be positive, found {}",
                self.flush_timeout
            );
            problems.add("flush_timeout", message);
        }
        for (key, size) in [("min_size", self.min_size), ("max_size", self.max_size)] {
            if size < 0 {
                problems.add(key, format!("`{key}` must be non-negative, found {size}"));
            }
        }
        if self.sizer == Sizer::Requests {
            problems.add("sizer", "`batch` supports only `items` or `bytes` sizer");
        }
        if self.max_size > 0 && self.max_size < self.min_size {
            let (max, min) = (self.max_size, self.min_size);
            let message =
                format!("`max_size` ({max}) must be greater or equal to `min_size` ({min})");
            problems.add("max_size", message);
        }
        if queue.sizer == self.sizer && self.min_size > queue.queue_size {
            problems.add(
                "min_size",
                "`min_size` must be less than or equal to `queue_size`",
            );
        }
    }
}
