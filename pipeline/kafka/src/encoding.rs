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
        self.decode_within(message, &|_| true)
    }

    /// [`decode`](Self::decode) that requests memory step by step. If `ask` returns false, it fails.
    pub fn decode_within(
        self,
        message: Bytes,
        ask: &dyn Fn(usize) -> bool,
    ) -> Result<Received, DecodeError> {
        match self {
            // It keeps the bytes.
            Self::OtlpProto => Ok(Profiles::from_wire(message, Validation::Repair)?),
            Self::OtlpJson => {
                // It is converted to protobuf. If that is too much, the first row is, too.
                ask(message.len());
                Ok(json::receive_within(&message, Validation::Repair, ask)?)
            }
        }
    }
}
