//! Labels and annotations that become attributes, and the names of those.

use profcol_kubernetes::Meta;
use profcol_profile::{KeyValue, Value};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::texts::Texts;

/// One label or annotation, or several by a pattern.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct KeyConfig {
    /// The attribute's name; empty means `k8s.<from>.label.<key>` or `k8s.<from>.annotation.<key>`. May
    /// refer to groups of `key_regex`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag_name: String,
    /// The key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// A regular expression that keys must match completely.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_regex: String,
    /// The object that has it.
    pub from: KeySource,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Hash, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeySource {
    #[default]
    Pod,
    Namespace,
    Node,
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
}

#[derive(Debug)]
pub(super) struct KeyRule {
    from: KeySource,
    of: MetadataKind,
    keys: Keys,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MetadataKind {
    Label,
    Annotation,
}

#[derive(Debug)]
enum Keys {
    One {
        key: String,
        name: String,
    },
    /// Named by the template, or by default if it is empty.
    Matching {
        regex: Regex,
        template: String,
    },
}

impl KeyConfig {
    fn regex(&self) -> Result<Regex, regex::Error> {
        Regex::new(&format!("^(?:{})$", self.key_regex))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match (self.key.is_empty(), self.key_regex.is_empty()) {
            (true, true) => return Err("needs a key or a key_regex".to_owned()),
            (false, false) => {
                return Err(format!(
                    "has both key {:?} and key_regex {:?}; only one of them is possible",
                    self.key, self.key_regex
                ));
            }
            (false, true) => return Ok(()),
            (true, false) => {}
        }
        let regex = self.regex().map_err(|error| error.to_string())?;
        let has_groups = regex.captures_len() > 1;
        if !self.tag_name.is_empty() && !has_groups {
            return Err(format!(
                "with tag_name {:?} all matching keys would become the same attribute: put a group into key_regex and refer to it, or remove tag_name",
                self.tag_name
            ));
        }
        Ok(())
    }
}

impl KeyRule {
    pub fn new(config: &KeyConfig, of: MetadataKind) -> Result<Self, regex::Error> {
        let keys = match config.key_regex.is_empty() {
            true => Keys::One {
                key: config.key.clone(),
                name: match &*config.tag_name {
                    "" => default_name(config.from, of, &config.key),
                    name => name.to_owned(),
                },
            },
            false => Keys::Matching {
                regex: config.regex()?,
                template: config.tag_name.clone(),
            },
        };
        Ok(Self {
            from: config.from,
            of,
            keys,
        })
    }

    pub fn from(&self) -> KeySource {
        self.from
    }

    pub fn add(&self, meta: &Meta, attributes: &mut Vec<KeyValue>, texts: &mut Texts) {
        let all = match self.of {
            MetadataKind::Label => &meta.labels,
            MetadataKind::Annotation => &meta.annotations,
        };
        let mut add = |name: &str, value: &str| {
            attributes.push(KeyValue {
                key: texts.share(name),
                value: Value::Str(texts.share(value)),
            });
        };
        match &self.keys {
            Keys::One { key, name } => {
                if let Some(value) = all.get(key) {
                    add(name, value);
                }
            }
            Keys::Matching { regex, template } => {
                for (key, value) in all {
                    let Some(groups) = regex.captures(key) else {
                        continue;
                    };
                    if template.is_empty() {
                        add(&default_name(self.from, self.of, key), value);
                        continue;
                    }
                    let mut name = String::new();
                    groups.expand(template, &mut name);
                    if !name.is_empty() {
                        add(&name, value);
                    }
                }
            }
        }
    }
}

fn default_name(from: KeySource, of: MetadataKind, key: &str) -> String {
    let of = match of {
        MetadataKind::Label => "label",
        MetadataKind::Annotation => "annotation",
    };
    format!("k8s.{}.{of}.{key}", from.name())
}

impl KeySource {
    fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Namespace => "namespace",
            Self::Node => "node",
            Self::Deployment => "deployment",
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
            Self::Job => "job",
        }
    }
}
