//! A single rule of Prometheus' `relabel_config`.

mod case;
mod groups;
mod parts;
mod pattern;
mod syntax;
mod template;

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::pattern::Pattern;
use self::template::Template;
use crate::labels::Labels;

/// A rule as configured, with Prometheus' defaults.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct RuleSpec {
    /// Labels whose values, joined by `separator`, are the input of the rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_labels: Vec<String>,
    /// The text between the values.
    pub separator: String,
    /// A regular expression for the whole input; `.` also matches line breaks. For `labelmap`, `labeldrop` and `labelkeep` it is matched against label names.
    pub regex: String,
    /// For `hashmod`: the modulus of the hash.
    #[serde(skip_serializing_if = "is_zero")]
    pub modulus: u64,
    /// The label to set or, for `keepequal` and `dropequal`, to compare with. For `replace` it may refer to groups of `regex`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_label: String,
    /// The value that `replace` sets, or the name that `labelmap` renames to; may refer to groups of `regex`.
    pub replacement: String,
    /// The action.
    pub action: Action,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unknown relabel action"))]
pub enum Action {
    /// Sets `target_label` to `replacement` if `regex` matches.
    #[default]
    Replace,
    /// Drops targets for which `regex` does not match.
    Keep,
    /// Drops targets for which `regex` matches.
    Drop,
    /// Drops targets whose joined values differ from `target_label`.
    KeepEqual,
    /// Drops targets whose joined values equal `target_label`.
    DropEqual,
    /// Sets `target_label` to a hash of the joined values, modulo `modulus`.
    HashMod,
    /// Copies labels with matching names to the names given by `replacement`.
    LabelMap,
    /// Removes labels with matching names.
    LabelDrop,
    /// Removes all labels but those with matching names.
    LabelKeep,
    /// Sets `target_label` to the joined values in lower case.
    Lowercase,
    /// Sets `target_label` to the joined values in upper case.
    Uppercase,
}

/// Why a rule is invalid, in Prometheus' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// The invalid key.
    pub key: &'static str,
    pub message: String,
}

/// A compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    spec: RuleSpec,
    pattern: Pattern,
    target: Template,
    replacement: Template,
}

pub(crate) const SEPARATOR: &str = ";";
pub(crate) const REGEX: &str = "(.*)";
pub(crate) const REPLACEMENT: &str = "$1";

impl Default for RuleSpec {
    fn default() -> Self {
        Self {
            source_labels: Vec::new(),
            separator: SEPARATOR.to_owned(),
            regex: REGEX.to_owned(),
            modulus: 0,
            target_label: String::new(),
            replacement: REPLACEMENT.to_owned(),
            action: Action::default(),
        }
    }
}

impl RuleSpec {
    /// Whether it may drop its target.
    pub fn may_drop(&self) -> bool {
        use Action::{Drop, DropEqual, Keep, KeepEqual};
        matches!(self.action, Drop | DropEqual | Keep | KeepEqual)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

// === impl Rule ===

impl Rule {
    pub fn new(spec: &RuleSpec) -> Result<Self, Invalid> {
        let pattern = Pattern::new(&spec.regex).map_err(|error| Invalid {
            key: "regex",
            message: format!("error parsing regexp: {error}"),
        })?;
        spec.validate()?;
        Ok(Self {
            target: match spec.action {
                Action::Replace => Template::new(&spec.target_label, pattern.group_info()),
                _ => Template::literal(&spec.target_label),
            },
            replacement: Template::new(&spec.replacement, pattern.group_info()),
            pattern,
            spec: spec.clone(),
        })
    }

    /// Changes the labels; returns `false` to drop their target.
    #[must_use]
    pub fn apply<'a>(&'a self, labels: &mut Labels<'a>) -> bool {
        match self.spec.action {
            Action::Drop => return !self.pattern.matches(&self.source(labels)),
            Action::Keep => return self.pattern.matches(&self.source(labels)),
            Action::DropEqual => return !self.is_equal(labels),
            Action::KeepEqual => return self.is_equal(labels),
            Action::Replace => self.replace(labels),
            Action::Lowercase => {
                let text = case::lower(&self.source(labels));
                labels.set(self.target.constant(), text.into());
            }
            Action::Uppercase => {
                let text = case::upper(&self.source(labels));
                labels.set(self.target.constant(), text.into());
            }
            Action::HashMod => {
                let rest = hash(&self.source(labels)) % self.spec.modulus.max(1);
                labels.set(self.target.constant(), rest.to_string().into());
            }
            Action::LabelMap => self.map(labels),
            Action::LabelDrop => {
                labels.retain(|label| !label.names().any(|it| self.pattern.matches(it)))
            }
            Action::LabelKeep => {
                labels.retain(|label| label.names().any(|it| self.pattern.matches(it)))
            }
        }
        true
    }

    pub(crate) fn spec(&self) -> &RuleSpec {
        &self.spec
    }

    /// The label that it sets, if that does not depend on the match.
    pub(crate) fn constant_target(&self) -> Option<&str> {
        self.target.is_constant().then_some(&self.spec.target_label)
    }

    fn source<'a>(&self, labels: &Labels<'a>) -> Cow<'a, str> {
        match &*self.spec.source_labels {
            [] => Cow::Borrowed(""),
            [name] => labels.value(name),
            [first, others @ ..] => {
                let mut text = String::with_capacity(64);
                text.push_str(labels.get(first).unwrap_or_default());
                for name in others {
                    text.push_str(&self.spec.separator);
                    text.push_str(labels.get(name).unwrap_or_default());
                }
                Cow::Owned(text)
            }
        }
    }

    fn is_equal(&self, labels: &Labels<'_>) -> bool {
        let target = labels.get(&self.target.constant()).unwrap_or_default();
        target == self.source(labels)
    }

    fn replace<'a>(&'a self, labels: &mut Labels<'a>) {
        let source = self.source(labels);
        let is_constant = self.target.is_constant() && self.replacement.is_constant();
        if is_constant {
            let target = self.target.constant();
            if !target.is_empty() && self.pattern.matches(&source) {
                labels.set(target, self.replacement.constant());
            }
            return;
        }
        let Some(groups) = self.pattern.groups(&source) else {
            return;
        };
        let target = self.target.filled(&source, &groups);
        if !target.is_empty() {
            labels.set(target, self.replacement.filled(&source, &groups));
        }
    }

    /// Copies labels to their mapped names.
    fn map(&self, labels: &mut Labels<'_>) {
        let mut mapped = Vec::new();
        for label in labels.iter() {
            for name in label.names().filter(|name| self.pattern.matches(name)) {
                let name = self.pattern.replace_all(name, &self.replacement);
                mapped.push((name, label.value.to_owned()));
            }
        }
        for (name, value) in mapped {
            labels.set(Cow::Owned(name), Cow::Owned(value));
        }
    }
}

/// One line with the non-default settings.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleSpec {
            source_labels,
            separator,
            regex,
            modulus,
            target_label,
            replacement,
            action,
        } = &self.spec;
        f.write_str(action.name())?;
        if !source_labels.is_empty() {
            write!(f, ", source_labels [{}]", source_labels.join(", "))?;
        }
        for (key, text, default) in [
            ("separator", separator, SEPARATOR),
            ("regex", regex, REGEX),
            ("target_label", target_label, ""),
            ("replacement", replacement, REPLACEMENT),
        ] {
            if text != default {
                write!(f, ", {key} {text:?}")?;
            }
        }
        match modulus {
            0 => Ok(()),
            _ => write!(f, ", modulus {modulus}"),
        }
    }
}

// === impl RuleSpec ===

impl RuleSpec {
    /// Prometheus' checks, in Prometheus' order.
    fn validate(&self) -> Result<(), Invalid> {
        use Action::*;
        let action = self.action.name();
        let target = &self.target_label;
        if self.modulus == 0 && self.action == HashMod {
            return invalid(
                "modulus",
                "relabel configuration for hashmod requires non-zero modulus".to_owned(),
            );
        }
        let needs_target = matches!(
            self.action,
            Replace | HashMod | Lowercase | Uppercase | KeepEqual | DropEqual
        );
        if needs_target && target.is_empty() {
            return invalid(
                "target_label",
                format!("relabel configuration for {action} action requires 'target_label' value"),
            );
        }
        let has_fixed_replacement =
            matches!(self.action, Lowercase | Uppercase | KeepEqual | DropEqual);
        if has_fixed_replacement && self.replacement != REPLACEMENT {
            return invalid(
                "replacement",
                format!("'replacement' can not be set for {action} action"),
            );
        }
        if self.action == LabelMap && self.replacement.is_empty() {
            let replacement = &self.replacement;
            return invalid(
                "replacement",
                format!("{replacement:?} is invalid 'replacement' for {action} action"),
            );
        }
        let has_others =
            self.modulus != 0 || self.separator != SEPARATOR || self.replacement != REPLACEMENT;
        if matches!(self.action, DropEqual | KeepEqual) && (self.regex != REGEX || has_others) {
            return invalid(
                "",
                format!(
                    "{action} action requires only 'source_labels' and `target_label`, and no other fields"
                ),
            );
        }
        let has_labels = !self.source_labels.is_empty() || !target.is_empty();
        if matches!(self.action, LabelDrop | LabelKeep) && (has_labels || has_others) {
            return invalid(
                "",
                format!("{action} action requires only 'regex', and no other fields"),
            );
        }
        Ok(())
    }
}

fn invalid(key: &'static str, message: String) -> Result<(), Invalid> {
    Err(Invalid { key, message })
}

// === impl Action ===

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Action::Replace => "replace",
            Action::Keep => "keep",
            Action::Drop => "drop",
            Action::KeepEqual => "keepequal",
            Action::DropEqual => "dropequal",
            Action::HashMod => "hashmod",
            Action::LabelMap => "labelmap",
            Action::LabelDrop => "labeldrop",
            Action::LabelKeep => "labelkeep",
            Action::Lowercase => "lowercase",
            Action::Uppercase => "uppercase",
        }
    }
}

/// The last eight bytes of the MD5 sum.
fn hash(text: &str) -> u64 {
    let md5::Digest(bytes) = md5::compute(text);
    bytes[8..]
        .iter()
        .fold(0, |hash, &byte| hash << 8 | u64::from(byte))
}
