//! The options of `resource`: the Collector's.

use profcol_config::{Config, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::actions::{self, Action};

/// Changes attributes of resources.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ResourceConfig {
    /// Actions, applied in order; at least one.
    pub attributes: Vec<Action>,
}

impl Config for ResourceConfig {
    fn validate(&self, problems: &mut Problems) {
        actions::check("attributes", &self.attributes, problems);
    }
}
