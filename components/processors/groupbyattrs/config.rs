//! The options of `groupbyattrs`.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Moves attributes of samples and profiles to their resource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct GroupByAttrsConfig {
    /// The attributes that move. Without keys, equal resources are merged.
    pub keys: Vec<String>,
}

impl Config for GroupByAttrsConfig {
    fn validate(&self, problems: &mut Problems) {
        for (position, key) in self.keys.iter().enumerate() {
            if key.is_empty() {
                problems.add(&format!("keys::{position}"), "must name an attribute");
            }
        }
    }
}
