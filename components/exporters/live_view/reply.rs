//! HTTP responses.

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use profcol_net::{guarded, response};
use profcol_pyroscope::ConnectRpcError;
use serde::Serialize;
use serde_json::json;

use super::pyroscope::{ACCEPT_POST, Unreadable};

/// Smaller responses are not compressed.
const MIN_COMPRESSED: usize = 1024;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A response before compression.
pub(super) struct Reply {
    pub content_type: HeaderValue,
    pub body: Vec<u8>,
    /// The file name for downloads.
    pub file_name: Option<String>,
}

impl Reply {
    pub fn json(value: &impl Serialize) -> Self {
        Self {
            content_type: JSON,
            body: serde_json::to_vec(value).unwrap_or_default(),
            file_name: None,
        }
    }

    pub fn response(self, takes_gzip: bool) -> Response<Bytes> {
        let is_compressed = takes_gzip && self.body.len() >= MIN_COMPRESSED;
        let body = match is_compressed {
            true => profcol_pprof::gzip(&self.body),
            false => self.body,
        };
        let mut response = response(StatusCode::OK, self.content_type, body);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let disposition = self
            .file_name
            .map(|name| format!("attachment; filename=\"{name}\""));
        if let Some(value) = disposition.and_then(|it| HeaderValue::try_from(it).ok()) {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        encoded(response, is_compressed)
    }
}

pub(super) fn failed(failure: &ConnectRpcError) -> Response<Bytes> {
    let status = StatusCode::from_u16(failure.code.http_status());
    let body = json!({"code": failure.code.name(), "message": failure.message});
    response(
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        JSON,
        body.to_string(),
    )
}

pub(super) fn unread(unreadable: &Unreadable) -> Response<Bytes> {
    let why = match unreadable {
        Unreadable::Headers(failure) => return failed(failure),
        Unreadable::ContentType => ConnectRpcError::invalid(
            "the content type must be application/proto or application/json",
        ),
    };
    let mut refused = failed(&why);
    *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let (name, value) = ACCEPT_POST;
    refused.headers_mut().insert(name, value);
    refused
}

/// The response to other methods than these.
pub(super) fn only(methods: &'static str) -> Response<Bytes> {
    let text = format!("use {methods}\n");
    let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
    let methods = HeaderValue::from_static(methods);
    refused.headers_mut().insert(ALLOW, methods);
    guarded(refused)
}

pub(super) fn encoded(mut response: Response<Bytes>, is_compressed: bool) -> Response<Bytes> {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).into_iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.split(',').any(|it| it.trim().starts_with("gzip")))
}
