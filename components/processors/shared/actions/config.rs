//! The options of an action: the Collector's.

use std::fmt;

use profcol_config::Problems;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One change.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Action {
    /// The key of the attribute.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The value to set: text, number, boolean, list or map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// The attribute to take the value from; without it nothing changes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from_attribute: String,
    /// The context to take the value from: `metadata.<name>` is a header of the client's request, which
    /// requires `include_metadata: true` in the receiver; without it nothing changes.
    /// Several values are joined with `;`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from_context: String,
    /// A regular expression. `extract` sets an attribute for each of its named groups from the
    /// value of `key`; `delete` and `hash` also change all attributes with matching keys.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pattern: String,
    /// The type for `convert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converted_type: Option<Target>,
    /// The kind of change.
    pub action: Option<ActionKind>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unsupported action"))]
pub enum ActionKind {
    /// Adds the attribute if it is missing.
    Insert,
    /// Changes the attribute if it exists.
    Update,
    /// Sets the attribute in any case.
    Upsert,
    /// Removes the attribute, and those whose keys match `pattern`.
    Delete,
    /// Replaces the value with its SHA-256 in hexadecimal.
    Hash,
    /// Sets attributes from parts of the value.
    Extract,
    /// Changes the type; a value that cannot be converted stays unchanged.
    Convert,
}

/// The target type of a conversion.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-unknown" = "invalid value in field \"converted_type\":"))]
pub enum Target {
    String,
    Int,
    Double,
}

/// Validates the actions of the option `list`, which must not be empty.
pub(crate) fn check(list: &str, actions: &[Action], problems: &mut Problems) {
    if actions.is_empty() {
        problems.add("", format!("missing required field {list:?}"));
    }
    for (position, action) in actions.iter().enumerate() {
        problems.nested(&format!("{list}::{position}"), |problems| {
            if let Err((field, message)) = action.check(position) {
                problems.add(field, message);
            }
        });
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Upsert => "upsert",
            Self::Delete => "delete",
            Self::Hash => "hash",
            Self::Extract => "extract",
            Self::Convert => "convert",
        })
    }
}

/// The invalid field and the problem.
type Fault = (&'static str, String);

impl Action {
    fn check(&self, position: usize) -> Result<(), Fault> {
        use ActionKind::{Convert, Delete, Extract, Hash, Insert, Update, Upsert};
        let fault =
            |field, text: &str| Err((field, format!("{text} at the {position}-th actions")));
        let Some(kind) = self.action else {
            return fault("action", "unsupported action \"\"");
        };
        let by_pattern = matches!(kind, Delete | Hash) && !self.pattern.is_empty();
        if self.key.is_empty() && !by_pattern {
            return match kind {
                Delete | Hash => fault(
                    "key",
                    "missing required field (at least one of \"key\" and \"pattern\" have to be used)",
                ),
                _ => fault("key", "missing required field \"key\""),
            };
        }
        let sources = self.sources();
        match kind {
            Insert | Update | Upsert if sources == 0 => fault(
                "",
                "either field \"value\", \"from_attribute\" or \"from_context\" setting must be specified",
            ),
            Insert | Update | Upsert if sources > 1 => {
                fault("", "multiple value sources being set")
            }
            Insert | Update | Upsert => self.check_context(position),
            Delete | Hash | Extract | Convert if sources > 0 => fault(
                "",
                &format!(
                    "action \"{kind}\" does not use a value source field; these must not be specified"
                ),
            ),
            Extract if self.pattern.is_empty() => fault(
                "pattern",
                "missing required field \"pattern\" for action \"extract\"",
            ),
            Convert if self.converted_type.is_none() => fault(
                "converted_type",
                "missing required field \"converted_type\" for action \"convert\"",
            ),
            Delete | Hash | Extract | Convert => Ok(()),
        }?;
        self.check_unused(kind, position)?;
        self.check_pattern(kind, position)
    }

    fn sources(&self) -> usize {
        let named = [&self.from_attribute, &self.from_context];
        let named = named.iter().filter(|name| !name.is_empty()).count();
        named + usize::from(self.value.is_some())
    }

    fn check_unused(&self, kind: ActionKind, position: usize) -> Result<(), Fault> {
        use ActionKind::{Convert, Delete, Extract, Hash};
        let unused = |field: &'static str| {
            let message = format!(
                "action \"{kind}\" does not use the {field:?} field; this must not be specified at the {position}-th actions"
            );
            Err((field, message))
        };
        if !self.pattern.is_empty() && !matches!(kind, Delete | Hash | Extract) {
            return unused("pattern");
        }
        if self.converted_type.is_some() && kind != Convert {
            return unused("converted_type");
        }
        Ok(())
    }

    fn check_pattern(&self, kind: ActionKind, position: usize) -> Result<(), Fault> {
        if self.pattern.is_empty() {
            return Ok(());
        }
        let fault = |text: String| Err(("pattern", format!("{text} at the {position}-th actions")));
        let regex = match Regex::new(&self.pattern) {
            Ok(regex) => regex,
            Err(error) => {
                let pattern = &self.pattern;
                return fault(format!(
                    "field \"pattern\" has invalid pattern: {pattern:?} ({error})"
                ));
            }
        };
        if kind != ActionKind::Extract {
            return Ok(());
        }
        if regex.captures_len() == 1 {
            return fault("field \"pattern\" contains no named matcher groups".to_owned());
        }
        if regex.capture_names().skip(1).any(|name| name.is_none()) {
            return fault(
                "field \"pattern\" contains at least one unnamed matcher group".to_owned(),
            );
        }
        Ok(())
    }

    /// Batches carry only the client's metadata.
    fn check_context(&self, position: usize) -> Result<(), Fault> {
        let from = self.from_context.as_str();
        if from.starts_with("auth.") || from == "client.address" {
            let message = format!(
                "{from:?} is not available to processors; use \"metadata.<name>\" with a receiver's `include_metadata` at the {position}-th actions"
            );
            return Err(("from_context", message));
        }
        Ok(())
    }
}
