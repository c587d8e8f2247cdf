//! `google.rpc.Status` in protobuf, limited to the fields in use.
//!
//! Sent base64-encoded in the trailer `grpc-status-details-bin`, and as the body of OTLP/HTTP errors. Input is
//! untrusted: a malformed message is rejected as a whole.

use std::time::Duration;

use prost::{DecodeError, Message};

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// Maximum number of details in a status.
const MAX_DETAILS: usize = 64;
/// Maximum size of a status. An empty detail takes 2 bytes on the wire and 24 times as much memory.
const MAX_BYTES: usize = 256 << 10;

/// `google.protobuf.Any`: one of a status that is not a `RetryInfo`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Detail {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.rpc.RetryInfo`
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<DurationMessage>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
struct DurationMessage {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// A decoded `google.rpc.Status`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RpcStatus {
    pub code: i32,
    pub message: String,
    pub retry_delay: Option<Duration>,
    pub details: Vec<Detail>,
}

/// A malformed `google.rpc.Status`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MalformedStatus {
    #[error("google.rpc.Status of {0} bytes, more than {MAX_BYTES}")]
    TooLong(usize),
    #[error("google.rpc.Status with {0} details, more than {MAX_DETAILS}")]
    TooManyDetails(usize),
    #[error("malformed google.rpc.Status: {0}")]
    Protobuf(#[from] DecodeError),
}

impl RpcStatus {
    pub fn encode(&self) -> Vec<u8> {
        let retry_info = self.retry_delay.map(|delay| Detail {
            type_url: RETRY_INFO.to_owned(),
            value: RetryInfo {
                retry_delay: Some(DurationMessage::from(delay)),
            }
            .encode_to_vec(),
        });
        let details = retry_info.into_iter().chain(self.details.iter().cloned());
        let status = StatusMessage {
            code: self.code,
            message: self.message.clone(),
            details: details.collect(),
        };
        status.encode_to_vec()
    }

    pub fn decode(bytes: &[u8]) -> Result<RpcStatus, MalformedStatus> {
        if bytes.len() > MAX_BYTES {
            return Err(MalformedStatus::TooLong(bytes.len()));
        }
        let status = StatusMessage::decode(bytes)?;
        if status.details.len() > MAX_DETAILS {
            return Err(MalformedStatus::TooManyDetails(status.details.len()));
        }
        let is_retry_info =
            |it: &Detail| it.type_url.rsplit('/').next() == Some("google.rpc.RetryInfo");
        let (retry_infos, details): (Vec<_>, _) =
            status.details.into_iter().partition(is_retry_info);
        let retry_info = match retry_infos.last() {
            Some(detail) => RetryInfo::decode(&*detail.value)?,
            None => RetryInfo::default(),
        };
        Ok(RpcStatus {
            code: status.code,
            message: status.message,
            retry_delay: retry_info.retry_delay.map(Duration::from),
            details,
        })
    }
}

impl From<Duration> for DurationMessage {
    fn from(duration: Duration) -> Self {
        Self {
            seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(duration.subsec_nanos()).unwrap_or_default(),
        }
    }
}

/// Negative durations mean "now".
impl From<DurationMessage> for Duration {
    fn from(message: DurationMessage) -> Self {
        let nanos = u32::try_from(message.nanos).unwrap_or(0).min(999_999_999);
        match u64::try_from(message.seconds) {
            Ok(seconds) => Duration::new(seconds, nanos),
            Err(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decodes_bytes_of_protoc() {
        // protoc --encode=google.rpc.Status: code 14, message "busy", RetryInfo 1.5 s
        let mut bytes =
            b"\x08\x0e\x12\x04busy\x1a\x36\x0a\x28type.googleapis.com/google.rpc.RetryInfo"
                .to_vec();
        bytes.extend_from_slice(b"\x12\x0a\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01");
        let status = RpcStatus {
            code: 14,
            message: "busy".into(),
            retry_delay: Some(Duration::from_millis(1500)),
            details: vec![],
        };
        assert_eq!(RpcStatus::decode(&bytes).as_ref(), Ok(&status));
        assert_eq!(status.encode(), bytes);
    }

    #[test]
    fn a_negative_delay_means_now() {
        let (seconds, nanos) = (-5, 0);
        let delay = DurationMessage { seconds, nanos };
        assert_eq!(Duration::from(delay), Duration::ZERO);
    }

    #[test]
    fn too_many_details_are_refused() {
        for (count, is_good) in [(MAX_DETAILS, true), (MAX_DETAILS + 1, false)] {
            let bytes = b"\x1a\x00".repeat(count);
            assert_eq!(RpcStatus::decode(&bytes).is_ok(), is_good, "{count}");
        }
        let long = b"\x1a\x00".repeat(MAX_BYTES);
        assert_eq!(
            RpcStatus::decode(&long),
            Err(MalformedStatus::TooLong(long.len()))
        );
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in [
            &b"\x12\x05ab"[..],
            b"\x08",
            b"\x0b",
            b"\x12\x02\xff\xfe",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            let refused = RpcStatus::decode(bytes).unwrap_err();
            assert!(refused.source().is_some(), "{bytes:?}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(code in 0i32..17, message in ".{0,20}", millis in proptest::option::of(0u64..1_000_000), url in "[a-z/.]{0,20}", value: Vec<u8>) {
            let status = RpcStatus {
                code,
                message,
                retry_delay: millis.map(Duration::from_millis),
                details: vec![Detail { type_url: url, value }],
            };
            prop_assert_eq!(RpcStatus::decode(&status.encode()), Ok(status));
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = RpcStatus::decode(&bytes);
        }
    }
}
