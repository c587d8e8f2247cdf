//! What the responses of gRPC calls say.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

use super::MAX_RESPONSE;
use crate::compress::{Encoding, decompress_answer};
use crate::grpc::frame::Received;
use crate::grpc::{self, Code, Status};
use crate::server::GRPC_ENCODING;

/// Checks that the response is gRPC and not an HTTP error.
pub(super) fn check_answer(http: StatusCode, headers: &HeaderMap) -> Result<(), Status> {
    if let Some(outcome) = Status::read_from(headers) {
        return outcome;
    }
    if http != StatusCode::OK {
        let message = format!("unexpected HTTP status code received from server: {http}");
        return Err(Status::new(Code::from_http_answer(http), message));
    }
    if !grpc::is_grpc(headers.get(CONTENT_TYPE)) {
        let found = headers.get(CONTENT_TYPE);
        let message =
            format!("unexpected content-type {found:?}; the endpoint does not serve gRPC");
        return Err(Status::new(Code::Unknown, message));
    }
    Ok(())
}

/// The outcome of a call. Without a status it is unknown whether the call was handled, so it is retryable.
pub(super) fn outcome(headers: &HeaderMap, trailers: &HeaderMap) -> Result<(), Status> {
    let outcome = Status::read_from(trailers).or_else(|| Status::read_from(headers));
    outcome.unwrap_or_else(|| {
        let message = "server closed the stream without sending trailers";
        Err(Status::connection_lost(message))
    })
}

pub(super) async fn unpack(received: Received, headers: &HeaderMap) -> Result<Bytes, Status> {
    if !received.compressed {
        return Ok(received.payload);
    }
    let name = headers
        .get(GRPC_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let Some(encoding) = Encoding::from_grpc(name) else {
        let message = format!("grpc: Decompressor is not installed for grpc-encoding {name:?}");
        return Err(Status::new(Code::Internal, message));
    };
    let plain = decompress_answer(encoding, &received.payload, MAX_RESPONSE).await;
    plain.map_err(|error| {
        Status::new(Code::Internal, format!("grpc: response {error}")).with_source(error)
    })
}
