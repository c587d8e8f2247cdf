//! The configuration of relabel rules: Prometheus' `relabel_configs`, or a Parca Agent file.

use std::error::Error;
use std::path::{Path, PathBuf};

use profcol_config::{Config, Problems, Sources, yaml};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Invalid, Leftovers, Rule, RuleSpec};

/// Applies Prometheus relabel rules to profiles.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct RelabelConfig {
    /// Rules in the syntax of Prometheus' `relabel_configs`, applied in order.
    pub configs: Vec<RuleSpec>,
    /// A Parca Agent configuration file: its `relabel_configs` are applied before `configs`, its other keys are ignored.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parca_config_file: String,
    /// Sample attributes that rules can also read and change, by any of their names: `thread_name`, `cpu`. Rules are then evaluated for each sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample_labels: Vec<String>,
}

/// The `relabel_configs` of a file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(transparent)]
struct RuleConfigs(Vec<RuleSpec>);

impl Config for RelabelConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.configs.is_empty() && self.parca_config_file.is_empty() {
            problems.add("", "set configs or parca_config_file");
        }
        problems.nested("configs", |problems| check(&self.configs, problems));
        for (position, label) in self.sample_labels.iter().enumerate() {
            if label.is_empty() {
                problems.add(
                    &format!("sample_labels::{position}"),
                    "label name must not be empty",
                );
            }
        }
    }
}

impl Config for RuleConfigs {
    fn validate(&self, problems: &mut Problems) {
        check(&self.0, problems);
    }
}

/// Why there are no rules.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("failed to read parca_config_file {}: {error}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
}

impl RelabelConfig {
    /// All rules, including those of the file, which this reads.
    pub fn rules(&self) -> Result<Vec<Rule>, RulesError> {
        let mut rules = match self.parca_config_file.as_str() {
            "" => Vec::new(),
            path => rules_of_file(Path::new(path))?,
        };
        for rule in &self.configs {
            rules.push(Rule::new(rule)?);
        }
        Ok(rules)
    }

    /// The labels that are removed after the last rule.
    pub fn leftovers(&self) -> Leftovers {
        match self.parca_config_file.is_empty() {
            true => Leftovers::Prometheus,
            false => Leftovers::Parca,
        }
    }

    /// Whether a rule may drop something; always `true` with a file, which is only read at start.
    pub fn may_drop(&self) -> bool {
        !self.parca_config_file.is_empty() || self.configs.iter().any(RuleSpec::may_drop)
    }
}

fn check(rules: &[RuleSpec], problems: &mut Problems) {
    for (position, rule) in rules.iter().enumerate() {
        if let Err(Invalid { key, message }) = Rule::new(rule) {
            problems.nested(&position.to_string(), |problems| problems.add(key, message));
        }
    }
}

fn rules_of_file(path: &Path) -> Result<Vec<Rule>, RulesError> {
    fn failed(path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) -> RulesError {
        RulesError::File {
            path: path.to_owned(),
            error: error.into(),
        }
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(path, error))?;
    let mut sources = Sources::default();
    let name = path.display().to_string();
    let source = sources
        .add(&name, text, None)
        .map_err(|error| failed(path, error))?;
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
        return Err(failed(path, problems.report(&sources).to_string()));
    };
    let rules = rules.iter().map(Rule::new);
    rules
        .collect::<Result<_, _>>()
        .map_err(|error| failed(path, error))
}
