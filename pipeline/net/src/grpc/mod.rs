//! gRPC over HTTP/2: statuses, message framing, deadlines.
//!
//! Plain data and functions only; [`crate::server`] and [`crate::client`] do the I/O. A unary call is, in each
//! direction,
//!
//! ```text
//! HEADERS  :path /package.Service/Method, content-type application/grpc, grpc-encoding, metadata
//! DATA     00 0002c5e6 <181734 bytes>          1 byte "compressed?", 4 bytes length, the message
//! HEADERS  grpc-status, grpc-message, grpc-status-details-bin           (responses only)
//! ```
//!
//! A streaming call repeats the DATA part.

mod code;
mod details;
pub(crate) mod frame;
mod go_errors;
mod status;
pub(crate) mod timeout;

pub use code::Code;
pub use details::Detail;
pub use status::Status;

/// The content type of protobuf messages over gRPC, as sent.
pub(crate) const CONTENT_TYPE: http::HeaderValue =
    http::HeaderValue::from_static("application/grpc");

/// Whether a `content-type` names gRPC: `application/grpc`, `application/grpc+proto`, …
pub(crate) fn is_grpc(content_type: Option<&http::HeaderValue>) -> bool {
    content_type
        .and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"))
        .is_some_and(|rest| rest.is_empty() || matches!(rest[0], b'+' | b';'))
}
