//! Configuration of `debug`, compatible with the Collector.

use profcol_component::{Delivery, QueueSettings};
use profcol_config::{Config, Present, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logs or prints the profiles in a pipeline.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DebugConfig {
    /// Level of detail: `basic` prints counts per batch, `normal` a line per profile, `detailed` everything.
    #[serde(skip_serializing_if = "Verbosity::is_basic")]
    pub verbosity: Verbosity,
    /// Number of batches shown per second before sampling starts.
    pub sampling_initial: u64,
    /// After that, every Nth batch in the second is shown; 0 shows none.
    pub sampling_thereafter: u64,
    /// Write to the program's log; `false` writes plain text to `output_paths`.
    pub use_internal_logger: bool,
    /// Outputs for plain text: `stdout`, `stderr` or file paths, which are appended to. Empty means
    /// `stdout`. Only with `use_internal_logger: false`.
    pub output_paths: Vec<String>,
    /// Queue in front of the exporter; without this section senders wait for the output.
    pub sending_queue: Present<QueueSettings>,
}

/// Level of detail.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unknown metrics level"))]
pub enum Verbosity {
    #[default]
    Basic,
    Normal,
    Detailed,
}

impl Default for DebugConfig {
    fn default() -> Self {
        Self {
            verbosity: Verbosity::default(),
            sampling_initial: 2,
            sampling_thereafter: 1,
            use_internal_logger: true,
            output_paths: Vec::new(),
            sending_queue: Present::default(),
        }
    }
}

impl Config for DebugConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.use_internal_logger && !self.output_paths.is_empty() {
            problems.add(
                "output_paths",
                "has an effect only with `use_internal_logger: false`; set that or remove this key",
            );
        }
        if self.output_paths.iter().any(String::is_empty) {
            problems.add("output_paths", "must not contain an empty path");
        }
        if let Some(queue) = &*self.sending_queue {
            problems.nested("sending_queue", |problems| queue.validate(problems));
        }
    }
}

impl DebugConfig {
    pub(super) fn delivery(&self) -> Delivery {
        let queue = (*self.sending_queue).clone();
        Delivery {
            queue: queue.filter(|queue| queue.enabled),
            ..Delivery::inline()
        }
    }
}

impl Verbosity {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it with a reference"
    )]
    fn is_basic(&self) -> bool {
        *self == Self::Basic
    }
}
