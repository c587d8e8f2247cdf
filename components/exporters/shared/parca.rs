//! What everything that writes Parca's records has in common.

use std::collections::BTreeMap;

use profcol_parca::{LabelRules, Pattern};

/// What describes a process or a host in detail, of which Parca Agent makes no labels by itself.
const LEFT_OUT: [&str; 7] = [
    "process.*",
    "profcol.*",
    "host.*",
    "os.*",
    "telemetry.*",
    "linux.cgroup.path",
    "container.id",
];

/// The attributes that do not become labels where nothing is said of them.
pub(crate) fn left_out() -> Vec<String> {
    LEFT_OUT.map(str::to_owned).to_vec()
}

pub(crate) fn rules(external: &BTreeMap<String, String>, left_out: &[String]) -> LabelRules {
    LabelRules {
        external: external
            .iter()
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect(),
        left_out: left_out
            .iter()
            .map(|pattern| Pattern::new(pattern))
            .collect(),
    }
}
