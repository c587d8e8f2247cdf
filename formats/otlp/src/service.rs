//! The OTLP profiles export service: paths and response.
//!
//! ```text
//! ExportProfilesServiceResponse { ExportProfilesPartialSuccess partial_success = 1 }
//! ExportProfilesPartialSuccess  { int64 rejected_profiles = 1; string error_message = 2 }
//! ```

use profcol_profile::proto::{Reader, WireError, Writer, tag};

/// The method over gRPC.
pub const GRPC_PATH: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
/// The resource over HTTP.
pub const HTTP_PATH: &str = "/v1development/profiles";

/// Longer messages are truncated on encoding.
const MAX_MESSAGE: usize = 1000;

/// The rejected part of a successful request.
///
/// A message without rejected profiles is a warning: no profile was dropped, but something was wrong with the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialSuccess {
    pub rejected_profiles: i64,
    pub error_message: String,
}

const PARTIAL_SUCCESS: u32 = tag::len(1);
const REJECTED_PROFILES: u32 = tag::varint(1);
const ERROR_MESSAGE: u32 = tag::len(2);

impl PartialSuccess {
    /// Whether everything was accepted without a message.
    pub fn is_full(&self) -> bool {
        *self == Self::default()
    }

    /// Encodes the response.
    pub fn encode(&self) -> Vec<u8> {
        let mut response = Writer::default();
        if !self.is_full() {
            let mut partial = Writer::default();
            partial.int(REJECTED_PROFILES, self.rejected_profiles);
            partial.bytes(ERROR_MESSAGE, self.short_message().as_bytes());
            response.bytes(PARTIAL_SUCCESS, &partial.into_vec());
        }
        response.into_vec()
    }

    /// Decodes a response; unknown fields are ignored.
    pub fn decode(response: &[u8]) -> Result<Self, WireError> {
        let mut partial = Self::default();
        let mut reader = Reader::new(response);
        while let Some(tag) = reader.tag()? {
            match tag {
                PARTIAL_SUCCESS => partial.read(reader.bytes()?)?,
                unknown => reader.skip(unknown, 1)?,
            }
        }
        Ok(partial)
    }

    /// Encodes the response in JSON.
    pub fn encode_json(&self) -> String {
        if self.is_full() {
            return "{}".to_owned();
        }
        let message = serde_json::Value::from(self.short_message());
        match self.rejected_profiles {
            0 => format!(r#"{{"partialSuccess":{{"errorMessage":{message}}}}}"#),
            rejected => format!(
                r#"{{"partialSuccess":{{"rejectedProfiles":"{rejected}","errorMessage":{message}}}}}"#
            ),
        }
    }

    /// Decodes a JSON response; anything else counts as full success.
    pub fn decode_json(response: &[u8]) -> Self {
        let Ok(response) = serde_json::from_slice::<serde_json::Value>(response) else {
            return Self::default();
        };
        let partial = &response["partialSuccess"];
        let rejected = &partial["rejectedProfiles"];
        let number = rejected
            .as_i64()
            .or_else(|| rejected.as_str()?.parse().ok());
        Self {
            rejected_profiles: number.unwrap_or_default(),
            error_message: partial["errorMessage"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                REJECTED_PROFILES => self.rejected_profiles = reader.varint()?.cast_signed(),
                ERROR_MESSAGE => {
                    self.error_message = String::from_utf8_lossy(reader.bytes()?).into_owned();
                }
                unknown => reader.skip(unknown, 2)?,
            }
        }
        Ok(())
    }

    fn short_message(&self) -> &str {
        &self.error_message[..self.error_message.floor_char_boundary(MAX_MESSAGE)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(rejected_profiles: i64, error_message: &str) -> PartialSuccess {
        PartialSuccess {
            rejected_profiles,
            error_message: error_message.to_owned(),
        }
    }

    #[test]
    fn round_trips() {
        for response in [
            partial(0, ""),
            partial(3, ""),
            partial(0, "dropped"),
            partial(-1, "ü\"\n"),
        ] {
            assert_eq!(
                PartialSuccess::decode(&response.encode()),
                Ok(response.clone())
            );
            assert_eq!(
                PartialSuccess::decode_json(response.encode_json().as_bytes()),
                response
            );
        }
    }

    #[test]
    fn writes_the_bytes_of_the_format() {
        assert_eq!(partial(0, "").encode(), b"");
        assert_eq!(partial(0, "").encode_json(), "{}");
        assert_eq!(partial(5, "bad").encode(), b"\x0a\x07\x08\x05\x12\x03bad");
        assert_eq!(
            partial(5, "bad").encode_json(),
            r#"{"partialSuccess":{"rejectedProfiles":"5","errorMessage":"bad"}}"#
        );
    }

    #[test]
    fn a_long_message_is_truncated_at_a_character_boundary() {
        let written = partial(1, &"ü".repeat(2000)).encode();
        let read = PartialSuccess::decode(&written).unwrap();
        assert_eq!(read.error_message, "ü".repeat(MAX_MESSAGE / 2));
    }

    #[test]
    fn invalid_responses_are_errors_or_full_success() {
        assert!(PartialSuccess::decode(b"\x0a\x07\x08").is_err());
        for garbage in ["", "[]", "{\"partialSuccess\":3}", "{"] {
            assert!(PartialSuccess::decode_json(garbage.as_bytes()).is_full());
        }
    }
}
