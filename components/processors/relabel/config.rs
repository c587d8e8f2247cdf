//! The options of `relabel`: Prometheus' `relabel_config`.

use std::path::Path;

use profcol_config::{Config, Problems, Sources, yaml};
use profcol_labels::{Action, Invalid, Rule, RuleSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Applies Prometheus relabel rules to profiles.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RelabelConfig {
    /// Rules, as in Prometheus' `relabel_configs`, in the order in which they are applied.
    pub configs: Vec<RuleConfig>,
    /// A configuration file of Parca Agent: its `relabel_configs` are applied before `configs`; its other keys are passed over.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parca_config_file: String,
    /// Attributes of samples that rules see and change, too, under any of their names: `thread_name`, `cpu`. They are decided upon sample by sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample_labels: Vec<String>,
}

/// One rule.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RuleConfig {
    /// Labels whose values, joined by `separator`, are what the rule looks at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_labels: Vec<String>,
    /// What stands between the values.
    pub separator: String,
    /// What the joined values have to match from begin to end; `.` matches line ends, too. For `labelmap`, `labeldrop` and `labelkeep` what a label's name has to match.
    pub regex: String,
    /// For `hashmod`: into how many the hashes are divided.
    #[serde(skip_serializing_if = "is_zero")]
    pub modulus: u64,
    /// The label that is set or, by `keepequal` and `dropequal`, compared. In `replace` with references to groups of `regex`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_label: String,
    /// What `replace` sets and what `labelmap` renames to, with references to groups of `regex`.
    pub replacement: String,
    /// What to do.
    pub action: ActionName,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unknown relabel action"))]
pub enum ActionName {
    /// Sets `target_label` to `replacement` where `regex` matches.
    #[default]
    Replace,
    /// Drops what `regex` does not match.
    Keep,
    /// Drops what `regex` matches.
    Drop,
    /// Drops where the joined values are not those of `target_label`.
    KeepEqual,
    /// Drops where the joined values are those of `target_label`.
    DropEqual,
    /// Sets `target_label` to a hash of the joined values, modulo `modulus`.
    HashMod,
    /// Copies labels whose names match to the names that `replacement` makes of them.
    LabelMap,
    /// Removes labels whose names match.
    LabelDrop,
    /// Removes labels whose names do not match.
    LabelKeep,
    /// Sets `target_label` to the joined values in lower case.
    Lowercase,
    /// Sets `target_label` to the joined values in upper case.
    Uppercase,
}

/// `relabel_configs` of a file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(transparent)]
struct RuleConfigs(Vec<RuleConfig>);

impl Default for RuleConfig {
    fn default() -> Self {
        let RuleSpec {
            separator,
            regex,
            replacement,
            ..
        } = RuleSpec::default();
        Self {
            source_labels: Vec::new(),
            separator,
            regex,
            modulus: 0,
            target_label: String::new(),
            replacement,
            action: ActionName::Replace,
        }
    }
}

impl Config for RelabelConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.configs.is_empty() && self.parca_config_file.is_empty() {
            problems.add("", "needs rules in configs, or parca_config_file");
        }
        problems.nested("configs", |problems| check(&self.configs, problems));
        for (position, label) in self.sample_labels.iter().enumerate() {
            if label.is_empty() {
                problems.add(&format!("sample_labels::{position}"), "must name a label");
            }
        }
    }
}

impl Config for RuleConfigs {
    fn validate(&self, problems: &mut Problems) {
        check(&self.0, problems);
    }
}

impl RelabelConfig {
    /// All rules, with those of the file, which is read for it.
    pub fn rules(&self) -> Result<Vec<Rule>, String> {
        let mut rules = match self.parca_config_file.as_str() {
            "" => Vec::new(),
            path => rules_of_file(Path::new(path))?,
        };
        for rule in &self.configs {
            rules.push(rule.compiled().map_err(|invalid| invalid.to_string())?);
        }
        Ok(rules)
    }
}

impl RuleConfig {
    pub(super) fn may_drop(&self) -> bool {
        use ActionName::{Drop, DropEqual, Keep, KeepEqual};
        matches!(self.action, Drop | DropEqual | Keep | KeepEqual)
    }

    pub(super) fn compiled(&self) -> Result<Rule, Invalid> {
        Rule::new(&RuleSpec {
            source_labels: self.source_labels.clone(),
            separator: self.separator.clone(),
            regex: self.regex.clone(),
            modulus: self.modulus,
            target_label: self.target_label.clone(),
            replacement: self.replacement.clone(),
            action: self.action.into(),
        })
    }
}

impl From<ActionName> for Action {
    fn from(name: ActionName) -> Self {
        match name {
            ActionName::Replace => Action::Replace,
            ActionName::Keep => Action::Keep,
            ActionName::Drop => Action::Drop,
            ActionName::KeepEqual => Action::KeepEqual,
            ActionName::DropEqual => Action::DropEqual,
            ActionName::HashMod => Action::HashMod,
            ActionName::LabelMap => Action::LabelMap,
            ActionName::LabelDrop => Action::LabelDrop,
            ActionName::LabelKeep => Action::LabelKeep,
            ActionName::Lowercase => Action::Lowercase,
            ActionName::Uppercase => Action::Uppercase,
        }
    }
}

fn check(rules: &[RuleConfig], problems: &mut Problems) {
    for (position, rule) in rules.iter().enumerate() {
        if let Err(Invalid { key, message }) = rule.compiled() {
            problems.nested(&position.to_string(), |problems| problems.add(key, message));
        }
    }
}

fn rules_of_file(path: &Path) -> Result<Vec<Rule>, String> {
    let failed = |reason: &dyn std::fmt::Display| {
        format!(
            "failed to read parca_config_file {}: {reason}",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let mut sources = Sources::default();
    let name = path.display().to_string();
    let source = sources
        .add(&name, text, None)
        .map_err(|error| failed(&error))?;
    let mut problems = Problems::default();
    let rules = match yaml::parse(&sources, source) {
        Ok(root) => match root.get("relabel_configs").filter(|node| !node.is_null()) {
            Some(node) => problems.nested("relabel_configs", |problems| {
                profcol_config::load::<RuleConfigs>(node, problems)
            }),
            None => Some(RuleConfigs::default()),
        },
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    let Some(RuleConfigs(rules)) = rules else {
        return Err(failed(&problems.report(&sources)));
    };
    let rules = rules.iter().map(RuleConfig::compiled);
    rules
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
