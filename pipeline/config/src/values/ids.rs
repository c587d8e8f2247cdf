//! Ids of components and pipelines: `type` or `type/name`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use unicode_general_category::{GeneralCategory, get_general_category};

use crate::suggest::did_you_mean;

const MAX_TYPE: usize = 63;
const MAX_NAME: usize = 1024;

/// The only supported signal.
const PROFILES: &str = "profiles";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IdError {
    #[error("id must not be empty")]
    Empty,
    #[error("in {0:?} id: the part before / should not be empty")]
    NoType(String),
    #[error("in {0:?} id: the part after / should not be empty")]
    NoName(String),
    #[error("in {id:?} id: invalid character(s) in type {kind:?}")]
    BadType { id: String, kind: String },
    #[error("in {id:?} id: invalid character(s) in name {name:?}")]
    BadName { id: String, name: String },
    #[error(
        "in {id:?} id: name {name:?} is longer than {MAX_NAME} characters ({length} characters)"
    )]
    LongName {
        id: String,
        name: String,
        length: usize,
    },
    #[error("in {id:?} id: unknown pipeline signal: {signal:?}")]
    UnknownSignal { id: String, signal: String },
    #[error(
        "in {id:?} id: unsupported pipeline signal: {signal:?}: profcol supports only profiles"
    )]
    OtherSignal { id: String, signal: String },
}

impl IdError {
    /// How to fix it.
    pub fn help(&self) -> Option<String> {
        match self {
            IdError::UnknownSignal { signal, .. } => Some(match did_you_mean(signal, [PROFILES]) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("name the pipeline `{PROFILES}` or `{PROFILES}/<name>`"),
            }),
            IdError::OtherSignal { signal, .. } => Some(format!(
                "remove this pipeline and its components; use a Collector for {signal}"
            )),
            IdError::BadType { .. } => Some(
                "a type is a letter followed by letters, digits and `_`, at most 63 characters"
                    .to_owned(),
            ),
            IdError::Empty | IdError::NoType(_) | IdError::NoName(_) => {
                Some("an id is `type` or `type/name`".to_owned())
            }
            IdError::BadName { .. } => {
                Some("a name must not contain spaces, control characters or symbols".to_owned())
            }
            IdError::LongName { .. } => None,
        }
    }
}

/// `type` or `type/name`. The name may contain `/`; whitespace around either part is trimmed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentId {
    kind: String,
    name: Option<String>,
}

impl ComponentId {
    /// The part before the `/`: the component type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The same name with another type, for renamed types.
    #[must_use]
    pub fn with_kind(&self, kind: &str) -> Self {
        ComponentId {
            kind: kind.to_owned(),
            name: self.name.clone(),
        }
    }
}

impl FromStr for ComponentId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (kind, name) = split(text)?;
        let mut rest = kind.chars();
        let starts = rest.next().is_some_and(|c| c.is_ascii_alphabetic());
        if !starts || !rest.all(|c| c.is_ascii_alphanumeric() || c == '_') || kind.len() > MAX_TYPE
        {
            return Err(IdError::BadType {
                id: text.to_owned(),
                kind: kind.to_owned(),
            });
        }
        check_name(text, name)?;
        Ok(ComponentId {
            kind: kind.to_owned(),
            name: name.map(str::to_owned),
        })
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, &self.kind, self.name())
    }
}

/// `profiles` or `profiles/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineId {
    name: Option<String>,
}

impl PipelineId {
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl FromStr for PipelineId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (signal, name) = split(text)?;
        let (id, signal) = (text.to_owned(), signal.to_owned());
        match signal.as_str() {
            PROFILES => {}
            "traces" | "metrics" | "logs" => return Err(IdError::OtherSignal { id, signal }),
            _ => return Err(IdError::UnknownSignal { id, signal }),
        }
        check_name(text, name)?;
        Ok(PipelineId {
            name: name.map(str::to_owned),
        })
    }
}

impl fmt::Display for PipelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, PROFILES, self.name())
    }
}

fn split(text: &str) -> Result<(&str, Option<&str>), IdError> {
    let (kind, name) = match text.split_once('/') {
        Some((kind, name)) => (kind.trim(), Some(name.trim())),
        None => (text.trim(), None),
    };
    match (kind, name) {
        ("", None) => Err(IdError::Empty),
        ("", Some(_)) => Err(IdError::NoType(text.to_owned())),
        (_, Some("")) => Err(IdError::NoName(text.to_owned())),
        _ => Ok((kind, name)),
    }
}

fn check_name(id: &str, name: Option<&str>) -> Result<(), IdError> {
    let Some(name) = name else { return Ok(()) };
    let length = name.chars().count();
    if length > MAX_NAME {
        return Err(IdError::LongName {
            id: id.to_owned(),
            name: name.to_owned(),
            length,
        });
    }
    if name.chars().any(is_separator_control_or_symbol) {
        return Err(IdError::BadName {
            id: id.to_owned(),
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// Unicode categories Z, C and S.
fn is_separator_control_or_symbol(c: char) -> bool {
    use GeneralCategory::*;
    matches!(
        get_general_category(c),
        SpaceSeparator
            | LineSeparator
            | ParagraphSeparator
            | Control
            | Format
            | Surrogate
            | PrivateUse
            | Unassigned
            | MathSymbol
            | CurrencySymbol
            | ModifierSymbol
            | OtherSymbol
    )
}

fn write_id(f: &mut fmt::Formatter<'_>, kind: &str, name: Option<&str>) -> fmt::Result {
    match name {
        Some(name) => write!(f, "{kind}/{name}"),
        None => f.write_str(kind),
    }
}

impl Serialize for ComponentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ComponentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for ComponentId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ComponentId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "component-id" })
    }
}

impl Serialize for PipelineId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PipelineId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for PipelineId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PipelineId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "pipeline-id" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused<T: FromStr<Err = IdError> + fmt::Debug>(text: &str, expected: &str) {
        assert_eq!(text.parse::<T>().expect_err(text).to_string(), expected);
    }

    #[test]
    fn reads_component_ids() {
        for (text, kind, name, printed) in [
            ("otlp", "otlp", None, "otlp"),
            (" otlp / a ", "otlp", Some("a"), "otlp/a"),
            ("otlp/a/b", "otlp", Some("a/b"), "otlp/a/b"),
            ("Otlp_2/é-ü.1", "Otlp_2", Some("é-ü.1"), "Otlp_2/é-ü.1"),
        ] {
            let id: ComponentId = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(
                (id.kind(), id.name(), id.to_string().as_str()),
                (kind, name, printed)
            );
        }
        assert!(
            format!("a/{}", "x".repeat(1024))
                .parse::<ComponentId>()
                .is_ok()
        );
        assert!("x".repeat(63).parse::<ComponentId>().is_ok());
    }

    #[test]
    fn refuses_bad_component_ids() {
        let check = refused::<ComponentId>;
        check("", "id must not be empty");
        check(" ", "id must not be empty");
        check("x/", "in \"x/\" id: the part after / should not be empty");
        check("/x", "in \"/x\" id: the part before / should not be empty");
        check("x y", "in \"x y\" id: invalid character(s) in type \"x y\"");
        check("1x", "in \"1x\" id: invalid character(s) in type \"1x\"");
        check(
            "x/a b",
            "in \"x/a b\" id: invalid character(s) in name \"a b\"",
        );
        check(
            "x/a+b",
            "in \"x/a+b\" id: invalid character(s) in name \"a+b\"",
        );
        check(
            "x/a€",
            "in \"x/a€\" id: invalid character(s) in name \"a€\"",
        );
        assert!("x".repeat(64).parse::<ComponentId>().is_err());
        let long = format!("a/{}", "x".repeat(1025))
            .parse::<ComponentId>()
            .expect_err("too long");
        assert!(
            long.to_string()
                .ends_with("is longer than 1024 characters (1025 characters)")
        );
    }

    #[test]
    fn accepts_profiles_only() {
        assert_eq!(
            "profiles/2".parse::<PipelineId>().map(|id| id.to_string()),
            Ok("profiles/2".to_owned())
        );
        let check = refused::<PipelineId>;
        check(
            "profilez",
            "in \"profilez\" id: unknown pipeline signal: \"profilez\"",
        );
        check(
            "traces/a",
            "in \"traces/a\" id: unsupported pipeline signal: \"traces\": profcol supports only profiles",
        );
        check(
            "profiles/",
            "in \"profiles/\" id: the part after / should not be empty",
        );
    }
}
