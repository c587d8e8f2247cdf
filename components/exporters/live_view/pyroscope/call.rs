//! The headers of a Connect call.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use profcol_pyroscope::{Codec, ConnectMethod, ConnectRpcError};

/// A call without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live_view) struct Call {
    pub method: ConnectMethod,
    pub codec: Codec,
    /// The client's timeout.
    pub timeout: Option<Duration>,
}

/// Why a call is refused.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::live_view) enum Unreadable {
    ContentType,
    Headers(ConnectRpcError),
}

/// The accepted content types.
pub(in crate::live_view) const ACCEPT_POST: (HeaderName, HeaderValue) = (
    HeaderName::from_static("accept-post"),
    HeaderValue::from_static("application/proto, application/json"),
);
const VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");

impl Call {
    pub fn of(method: ConnectMethod, headers: &HeaderMap) -> Result<Self, Unreadable> {
        let text = |name| headers.get(name).map(|it| it.to_str().unwrap_or("?"));
        let content_type = text(CONTENT_TYPE).unwrap_or("");
        let codec = Codec::of_content_type(content_type).ok_or(Unreadable::ContentType)?;
        match text(VERSION) {
            None | Some("1") => {}
            Some(other) => {
                return Err(Unreadable::Headers(ConnectRpcError::invalid(format!(
                    "{VERSION} must be 1, not {other:?}"
                ))));
            }
        }
        Ok(Self {
            method,
            codec,
            timeout: text(TIMEOUT).map(milliseconds).transpose()?,
        })
    }
}

fn milliseconds(text: &str) -> Result<Duration, Unreadable> {
    /// The protocol's limit.
    const MAX_DIGITS: usize = 10;
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let number = text
        .parse()
        .ok()
        .filter(|_| is_number && text.len() <= MAX_DIGITS);
    number.map(Duration::from_millis).ok_or_else(|| {
        Unreadable::Headers(ConnectRpcError::invalid(format!(
            "{TIMEOUT} is not a number of at most {MAX_DIGITS} digits: {text:?}"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(headers: &[(&'static str, &'static str)]) -> Result<Call, Unreadable> {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        Call::of(ConnectMethod::Diff, &headers.collect())
    }

    #[test]
    fn parses_codec_version_and_timeout() {
        let read = call(&[
            ("content-type", "Application/JSON; charset=utf-8"),
            ("connect-protocol-version", "1"),
            ("connect-timeout-ms", "1500"),
        ]);
        let expected = Call {
            method: ConnectMethod::Diff,
            codec: Codec::Json,
            timeout: Some(Duration::from_millis(1500)),
        };
        assert_eq!(read, Ok(expected));
        let proto = call(&[("content-type", "application/proto")]).unwrap();
        assert_eq!((proto.codec, proto.timeout), (Codec::Proto, None));
    }

    #[test]
    fn refuses_invalid_calls() {
        for content_type in ["", "text/plain", "application/grpc", "application/jsonx"] {
            let headers = [("content-type", content_type)];
            assert_eq!(
                call(&headers),
                Err(Unreadable::ContentType),
                "{content_type}"
            );
        }
        for (name, value) in [
            ("connect-protocol-version", "2"),
            ("connect-timeout-ms", ""),
            ("connect-timeout-ms", "-1"),
            ("connect-timeout-ms", "+1"),
            ("connect-timeout-ms", "10000000000"),
        ] {
            let refused = call(&[("content-type", "application/json"), (name, value)]);
            assert!(
                matches!(refused, Err(Unreadable::Headers(_))),
                "{name}: {value}"
            );
        }
    }
}
