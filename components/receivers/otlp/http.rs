//! OTLP over HTTP: protobuf and JSON.

use std::cell::OnceCell;

use ::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{HttpRequest, HttpService, Message};
use profcol_otlp::json;
use profcol_otlp::service::{HTTP_PATH, PartialSuccess};
use profcol_profile::{Profiles, Received};

use super::export::{Export, Origin, keep_compressed};

pub(super) struct Service(pub(super) Export);

/// The encoding of a body and of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Protobuf,
    Json,
}

impl HttpService for Service {
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        if head.uri.path() != HTTP_PATH {
            let message = format!("404 page not found: profiles are taken at {HTTP_PATH}");
            return Err(plain(StatusCode::NOT_FOUND, &message));
        }
        if head.method != Method::POST {
            let message = "405 method not allowed, supported: [POST]";
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, message);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(response);
        }
        if Format::of(&head.headers).is_none() {
            let message =
                "415 unsupported media type, supported: [application/json, application/x-protobuf]";
            return Err(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        let format = Format::of(&request.headers).unwrap_or(Format::Protobuf);
        match self.export(format, request).await {
            Ok(taken) => match format {
                Format::Protobuf => format.response(StatusCode::OK, taken.encode().into()),
                Format::Json => format.response(StatusCode::OK, taken.encode_json().into()),
            },
            Err(status) => format.refusal(http_status(&status), &status),
        }
    }

    fn refusal(&self, headers: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        Format::of(headers)
            .unwrap_or(Format::Protobuf)
            .refusal(http, status)
    }
}

impl Service {
    async fn export(&self, format: Format, request: HttpRequest) -> Result<PartialSuccess, Status> {
        let mut reserved = request.reserved;
        if format == Format::Json {
            // The JSON reader makes its own reservations.
            reserved.resize(0)?;
        }
        let received = self.read(format, request.body)?;
        let peer = request.connection.peer.ip();
        let origin = Origin::from_headers(&request.headers, request.include_metadata, peer);
        self.0.push(received, reserved, origin).await
    }

    fn read(&self, format: Format, body: Message) -> Result<Received, Status> {
        match format {
            Format::Json => self.read_json(&body.plain),
            Format::Protobuf => {
                let mut received = Profiles::from_wire(body.plain, self.0.validation)
                    .map_err(|invalid| Status::new(Code::InvalidArgument, invalid.to_string()))?;
                if received.repaired.is_empty()
                    && let Some(compressed) = body.compressed
                {
                    received.profiles = received
                        .profiles
                        .with_compressed(keep_compressed(compressed));
                }
                Ok(received)
            }
        }
    }

    fn read_json(&self, body: &[u8]) -> Result<Received, Status> {
        let admission = &self.0.admission;
        // The message is converted to protobuf.
        admission.take(body.len())?;
        let exhausted = OnceCell::new();
        let reserve = |bytes| match admission.take(bytes) {
            Ok(()) => true,
            Err(refused) => {
                // Reading ends after the first refusal.
                let _ = exhausted.set(refused);
                false
            }
        };
        let received = json::receive_within(body, self.0.validation, &reserve);
        match (received, exhausted.into_inner()) {
            (_, Some(exhausted)) => Err(exhausted.into()),
            (Ok(received), None) => Ok(received),
            (Err(error), None) => Err(Status::new(Code::InvalidArgument, error.to_string())),
        }
    }
}

/// Maps codes like the specification, except that too large stays 413: with 429 the client would send
/// the same request again.
fn http_status(status: &Status) -> StatusCode {
    match status.code {
        Code::ResourceExhausted if status.retry_delay.is_none() => StatusCode::PAYLOAD_TOO_LARGE,
        code => code.to_http(),
    }
}

// === impl Format ===

impl Format {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/x-protobuf") {
            Some(Self::Protobuf)
        } else if kind.eq_ignore_ascii_case("application/json") {
            Some(Self::Json)
        } else {
            None
        }
    }

    fn response(self, http: StatusCode, body: Bytes) -> Response<Bytes> {
        let kind = match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        };
        let mut response = Response::new(body);
        *response.status_mut() = http;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// A `google.rpc.Status`, with `Retry-After` where sending again may help.
    fn refusal(self, http: StatusCode, status: &Status) -> Response<Bytes> {
        let body = match self {
            Self::Protobuf => status.to_protobuf().into(),
            Self::Json => serde_json::json!({
                "code": status.code.number(),
                "message": status.message,
            })
            .to_string()
            .into(),
        };
        let mut response = self.response(http, body);
        if matches!(
            http,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            let delay = status.retry_delay.unwrap_or_default();
            let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
            response
                .headers_mut()
                .insert(RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

fn plain(http: StatusCode, message: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(message.to_owned()));
    *response.status_mut() = http;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
