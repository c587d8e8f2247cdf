//! Shared by exporters that write Parca's records.

use std::collections::BTreeMap;

use profcol_config::Problems;
use profcol_parca::{LabelRules, Pattern, sanitized};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Detailed attributes of processes, hosts and files, which Parca Agent does not turn into labels by
/// default.
const DEFAULT_EXCLUDED: [&str; 8] = [
    "process.*",
    "profcol.*",
    "host.*",
    "os.*",
    "telemetry.*",
    "linux.cgroup.path",
    "container.id",
    "pprof.*",
];

/// Which labels the rows have.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct LabelSettings {
    /// Labels added to every sample without a label of that name.
    pub external_labels: BTreeMap<String, String>,
    /// Attributes that do not become labels, by name, or by prefix followed by `*`.
    pub leave_out_attributes: Vec<String>,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self {
            external_labels: BTreeMap::new(),
            leave_out_attributes: DEFAULT_EXCLUDED.map(str::to_owned).to_vec(),
        }
    }
}

impl LabelSettings {
    pub fn validate(&self, problems: &mut Problems) {
        for name in self.external_labels.keys() {
            if name.is_empty() || sanitized(name) != name.as_str() {
                let message = "not a label name: only letters, digits and _ are allowed";
                problems.add(&format!("external_labels::{name}"), message);
            }
        }
    }

    pub fn rules(&self) -> LabelRules {
        let external = self.external_labels.iter();
        let left_out = self.leave_out_attributes.iter();
        LabelRules {
            external: external
                .map(|(name, text)| (name.clone(), text.clone()))
                .collect(),
            left_out: left_out.map(|pattern| Pattern::new(pattern)).collect(),
        }
    }
}
