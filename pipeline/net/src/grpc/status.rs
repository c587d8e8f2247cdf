//! A call's status, and its encoding in trailers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use profcol_admission::Exhausted;

use super::code::Code;
use super::details::{Detail, MalformedStatus, RpcStatus};
use crate::hint::{Hint, HintSuffix};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Longer messages are truncated to fit peers' header limits (8 KiB and up).
const MAX_MESSAGE: usize = 2048;

/// Retry delay for requests refused for lack of memory.
const MEMORY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Binary headers are sent without padding and accepted with or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a call failed. The code is never [`Code::Ok`].
#[derive(Clone, Debug)]
pub struct Status {
    pub code: Code,
    /// From the peer; or, if there was none, without the hint.
    pub message: String,
    /// What to change in this process's configuration. A peer to which the status is passed on reads it in the message.
    pub hint: Option<Hint>,
    /// The server's `RetryInfo`: minimum delay before a retry.
    pub retry_delay: Option<Duration>,
    /// Other details, unchanged.
    pub details: Vec<Detail>,
    /// No response: the connection or stream ended during the call. The server may have handled the call, or crashed
    /// because of it.
    pub is_connection_lost: bool,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status {
            code,
            message: message.into(),
            hint: None,
            retry_delay: None,
            details: Vec::new(),
            is_connection_lost: false,
            source: None,
        }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<Option<Hint>>) -> Status {
        Status {
            hint: hint.into(),
            ..self
        }
    }

    #[must_use]
    pub(crate) fn with_source(self, source: impl Error + Send + Sync + 'static) -> Status {
        Status {
            source: Some(Arc::new(source)),
            ..self
        }
    }

    /// The message with the hint.
    fn text(&self) -> String {
        format!("{}{}", self.message, HintSuffix(self.hint))
    }

    pub(crate) fn connection_lost(message: impl Into<String>) -> Status {
        Status {
            is_connection_lost: true,
            ..Status::new(Code::Unavailable, message)
        }
    }

    #[must_use]
    pub fn with_retry_delay(mut self, delay: Duration) -> Status {
        self.retry_delay = Some(delay);
        self
    }

    /// The `google.rpc.Status` message, as in OTLP/HTTP error responses.
    pub fn to_protobuf(&self) -> Vec<u8> {
        RpcStatus {
            code: i32::from(self.code.number()),
            message: self.text(),
            retry_delay: self.retry_delay,
            details: self.details.clone(),
        }
        .encode()
    }

    /// Decodes a `google.rpc.Status` message.
    pub fn from_protobuf(bytes: &[u8]) -> Result<Status, MalformedStatus> {
        let status = RpcStatus::decode(bytes)?;
        Ok(Status {
            retry_delay: status.retry_delay,
            details: status.details,
            ..Status::new(Code::from_number(status.code), status.message)
        })
    }

    /// Writes the status to trailers, or to the headers of a response without body.
    pub(crate) fn write_to(&self, trailers: &mut HeaderMap) {
        trailers.insert(
            GRPC_STATUS,
            HeaderValue::from(u16::from(self.code.number())),
        );
        let text = self.text();
        if !text.is_empty() {
            trailers.insert(GRPC_MESSAGE, percent_encode(&text));
        }
        if self.retry_delay.is_some() || !self.details.is_empty() {
            let mut short = Status {
                message: text,
                hint: None,
                ..self.clone()
            };
            short
                .message
                .truncate(short.message.floor_char_boundary(MAX_MESSAGE));
            let coded = BASE64.encode(short.to_protobuf());
            if let Ok(value) = HeaderValue::try_from(coded) {
                trailers.insert(GRPC_DETAILS, value);
            }
        }
    }

    /// Reads the outcome from trailers or headers; `None` without `grpc-status`.
    pub(crate) fn read_from(trailers: &HeaderMap) -> Option<Result<(), Status>> {
        let number = trailers.get(GRPC_STATUS)?.to_str().ok();
        let code = match number.and_then(|text| text.parse().ok()) {
            Some(number) => Code::from_number(number),
            None => Code::Unknown,
        };
        if code == Code::Ok {
            return Some(Ok(()));
        }
        let message = trailers.get(GRPC_MESSAGE).map(percent_decode);
        let mut status = Status::new(code, message.unwrap_or_default());
        let details = trailers
            .get(GRPC_DETAILS)
            .and_then(|value| BASE64.decode(value.as_bytes()).ok())
            .and_then(|bytes| RpcStatus::decode(&bytes).ok());
        if let Some(details) = details {
            status.retry_delay = details.retry_delay;
            status.details = details.details;
        }
        Some(Err(status))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code, self.text())
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

/// The source does not count: the message has its text.
impl PartialEq for Status {
    fn eq(&self, other: &Self) -> bool {
        let key = |status: &Self| {
            (
                status.code,
                status.hint,
                status.retry_delay,
                status.is_connection_lost,
            )
        };
        key(self) == key(other) && self.message == other.message && self.details == other.details
    }
}

impl Eq for Status {}

/// Retryable, unless the request can never fit.
impl From<Exhausted> for Status {
    fn from(exhausted: Exhausted) -> Status {
        if exhausted.is_final() {
            return Status::new(Code::ResourceExhausted, exhausted.to_string());
        }
        Status::new(Code::Unavailable, exhausted.to_string()).with_retry_delay(MEMORY_RETRY_DELAY)
    }
}

/// `grpc-message` allows printable ASCII only; `%` and other bytes are encoded as `%XX`.
fn percent_encode(message: &str) -> HeaderValue {
    const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
    let short = &message[..message.floor_char_boundary(MAX_MESSAGE)];
    let encoded = utf8_percent_encode(short, ESCAPED).to_string();
    HeaderValue::try_from(encoded).expect("printable ASCII is a valid header value")
}

/// Keeps stray `%` and replaces invalid UTF-8: the message is for humans.
fn percent_decode(value: &HeaderValue) -> String {
    let decoded = percent_encoding::percent_decode(value.as_bytes());
    decoded.decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Status) {
        let mut trailers = HeaderMap::new();
        status.write_to(&mut trailers);
        assert_eq!(Status::read_from(&trailers), Some(Err(status)));
    }

    #[test]
    fn round_trips_through_trailers() {
        check(Status::new(Code::Unavailable, ""));
        check(Status::new(Code::Internal, "100 % of höchstens\n3"));
        check(
            Status::new(Code::ResourceExhausted, "queue full")
                .with_retry_delay(Duration::from_millis(1500)),
        );
        check(Status {
            details: vec![Detail {
                type_url: "type.googleapis.com/x".into(),
                value: vec![0, 255],
            }],
            ..Status::new(Code::DataLoss, "x")
        });
    }

    #[test]
    fn peers_read_the_hint_in_the_message() {
        let mut trailers = HeaderMap::new();
        let refused = Status::new(Code::Unavailable, "refused").with_hint(Hint::StartServer);
        refused
            .with_retry_delay(Duration::ZERO)
            .write_to(&mut trailers);
        let text = "refused; check that the server runs and listens on that address";
        let expected = Status::new(Code::Unavailable, text).with_retry_delay(Duration::ZERO);
        assert_eq!(Status::read_from(&trailers), Some(Err(expected)));
    }

    #[test]
    fn a_long_message_is_truncated_to_fit_a_header() {
        let mut trailers = HeaderMap::new();
        Status::new(Code::Internal, "ä".repeat(5000))
            .with_retry_delay(Duration::ZERO)
            .write_to(&mut trailers);
        let Some(Err(read)) = Status::read_from(&trailers) else {
            panic!("no status")
        };
        assert_eq!(read.message.len(), MAX_MESSAGE);
    }

    #[test]
    fn a_non_numeric_status_is_unknown() {
        let mut trailers = HeaderMap::new();
        trailers.insert(GRPC_STATUS, HeaderValue::from_static("seven"));
        assert_eq!(
            Status::read_from(&trailers),
            Some(Err(Status::new(Code::Unknown, "")))
        );
        assert_eq!(Status::read_from(&HeaderMap::new()), None);
    }

    #[test]
    fn a_stray_percent_sign_is_kept() {
        let shown = percent_decode(&HeaderValue::from_static("50% of%20it %+5 %f"));
        assert_eq!(shown, "50% of it %+5 %f");
    }
}
