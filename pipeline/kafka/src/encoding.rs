//! The encoding of profiles in messages: an `ExportProfilesServiceRequest` each.

use bytes::Bytes;
use profcol_otlp::json::{self, JsonError, ResourceAttrEncoding};
use profcol_profile::{Invalid, Profiles, Received, Validation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The encoding of messages: OTLP as protobuf or JSON.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-unknown" = "unsupported encoding"))]
pub enum Encoding {
    #[default]
    OtlpProto,
    OtlpJson,
}

/// Why a message is unusable.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error(transparent)]
    Proto(#[from] Invalid),
}

impl Encoding {
    pub fn encode(self, profiles: &Profiles) -> Bytes {
        match self {
            Self::OtlpProto => profiles.to_wire(),
            Self::OtlpJson => json::encode(profiles.model(), ResourceAttrEncoding::Plain).into(),
        }
    }

    /// Decodes a message, without invalid samples, which are counted.
    pub fn decode(self, message: Bytes) -> Result<Received, DecodeError> {
        match self {
            Self::OtlpProto => Ok(Profiles::from_wire(message, Validation::Repair)?),
            Self::OtlpJson => Ok(json::receive(&message, Validation::Repair)?),
        }
    }
}
