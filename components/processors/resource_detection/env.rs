//! Attributes from the environment: `OTEL_RESOURCE_ATTRIBUTES=key=value,…`.

use profcol_profile::Attributes;

use super::error::DetectionError;
use profcol_metadata::otel_resource_attributes::parse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct EnvConfig {
    /// Add only these attributes; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowlist: Option<Vec<String>>,
}

/// The second is the former name.
const VARIABLES: [&str; 2] = ["OTEL_RESOURCE_ATTRIBUTES", "OTEL_RESOURCE"];

pub(super) fn detect(config: &EnvConfig) -> Result<Attributes, DetectionError> {
    let text = VARIABLES.iter().find_map(|name| {
        let text = std::env::var(name).ok()?;
        (!text.trim().is_empty()).then_some(text)
    });
    let mut attributes = parse(&text.unwrap_or_default())?;
    if let Some(allowed) = &config.allowlist {
        attributes.retain(|attribute| allowed.iter().any(|name| **name == *attribute.key));
    }
    Ok(attributes)
}
