//! `resource_attributes`: which detected attributes are added.

use std::collections::BTreeMap;

use profcol_config::Problems;
use profcol_profile::Attributes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The attributes of a detector, and whether they are enabled by default.
pub(super) type AttributeDefaults = &'static [(&'static str, bool)];

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(transparent)]
pub struct Switches(BTreeMap<String, Switch>);

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Switch {
    /// Whether to add this attribute.
    pub enabled: bool,
}

impl Switches {
    pub(super) fn validate(&self, known: AttributeDefaults, problems: &mut Problems) {
        for name in self.0.keys() {
            if known.iter().all(|(attribute, _)| attribute != name) {
                let known: Vec<&str> = known.iter().map(|(attribute, _)| *attribute).collect();
                let message = format!("is not detected here; supported: {}", known.join(", "));
                problems.add(name, message);
            }
        }
    }

    /// Whether one of these is enabled.
    pub(super) fn has(&self, known: AttributeDefaults, selects: impl Fn(&str) -> bool) -> bool {
        let enabled = known.iter().filter(|(name, _)| selects(name));
        let mut enabled = enabled.map(|(name, on)| self.0.get(*name).map_or(*on, |it| it.enabled));
        enabled.any(|is_on| is_on)
    }

    /// Keeps enabled attributes, and those without a switch, such as tags, which are configured by name.
    pub(super) fn apply(&self, known: AttributeDefaults, attributes: &mut Attributes) {
        attributes.retain(|attribute| {
            let switch = self.0.get(&*attribute.key).map(|switch| switch.enabled);
            let default = known.iter().find(|(name, _)| *name == &*attribute.key);
            switch.or(default.map(|(_, on)| *on)).unwrap_or(true)
        });
    }
}
