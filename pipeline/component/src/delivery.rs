//! How the engine is to deliver for an exporter: the settings that all exporters share.
//!
//! Keys, defaults and messages are the Collector's.

use profcol_config::{ComponentId, Duration, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Sizer;

/// What the engine needs to know to deliver for an exporter.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// How long one try may take; `None` for exporters that cannot hang.
    pub timeout: Option<std::time::Duration>,
    pub retry: RetrySettings,
    /// `None`: the caller waits for the export and gets its answer.
    pub queue: Option<QueueSettings>,
    /// The encoding in which bodies that came in it leave as they came; such a batch waits in those
    /// bytes alone, and any other one without them.
    pub passthrough_encoding: Option<&'static str>,
}

/// The keys that every network exporter has; flattened into its configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DeliverySettings {
    /// How long one try may take; `0s` waits for ever.
    pub timeout: Duration,
    /// How to go on when the destination does not take a batch for now.
    pub retry_on_failure: RetrySettings,
    /// The queue in front of the exporter.
    pub sending_queue: QueueSettings,
}

/// How to go on when a destination does not take a batch for now.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RetrySettings {
    pub enabled: bool,
    /// The wait before the second try.
    pub initial_interval: Duration,
    /// Each further wait is so many times as long.
    pub multiplier: f64,
    /// How much of a wait is left to chance, 0 to 1.
    pub randomization_factor: f64,
    /// No wait is longer, unless the destination asks for it.
    pub max_interval: Duration,
    /// After that a batch is given up; `0s` never does.
    pub max_elapsed_time: Duration,
}

/// The queue in front of an exporter.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct QueueSettings {
    /// Off: the receiver waits for the export and passes its answer to the client.
    pub enabled: bool,
    /// How many exports may be under way at once.
    pub num_consumers: i64,
    /// How much the queue holds, including what is being merged or sent.
    pub queue_size: i64,
    /// What `queue_size` counts: `requests`, `items` (samples) or `bytes`.
    pub sizer: Sizer,
    /// When the queue is full: make the sender wait instead of answering "retry later". Samples of
    /// this host, which cannot wait, are dropped and counted either way.
    pub block_on_overflow: bool,
    /// Answer the sender only when the batch was delivered or given up.
    pub wait_for_result: bool,
    /// An extension that keeps the queue on disk.
    pub storage: Option<ComponentId>,
    /// Merge small batches before sending; absent means off.
    pub batch: Present<QueueBatchSettings>,
}

/// Merges small batches before sending and cuts large ones.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct QueueBatchSettings {
    /// Send at the latest after this long.
    pub flush_timeout: Duration,
    /// Send as soon as there is this much.
    pub min_size: i64,
    /// No batch is larger; 0 means no bound.
    pub max_size: i64,
    /// What the sizes count: `items` (samples) or `bytes`.
    pub sizer: Sizer,
    /// Which clients' batches are kept apart.
    pub partition: PartitionSettings,
}

/// Which clients' batches are kept apart.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "cache_size": "clients of whom nothing is held cost nothing, remove it",
    "idle_timeout": "clients of whom nothing is held cost nothing, remove it",
}))]
pub struct PartitionSettings {
    /// Batches whose values of these metadata keys differ are never merged.
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

    /// The limit of one try; `None` waits for ever.
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
    /// For exporters without a queue, when a source cannot wait for the export: one export at a time,
    /// and behind it as much as a stalled disk costs in some minutes of sampling.
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
    /// Each batch is exported while its sender waits, once: for exporters that only write locally.
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
        let longest = self.max_elapsed_time;
        if !longest.is_zero() && (longest < self.initial_interval || longest < self.max_interval) {
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
        if let Some(storage) = &self.storage {
            problems.add(
                "storage",
                format!("extension {storage:?} cannot keep queues: this version has queues in memory only, remove `storage`"),
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
