//! A client for the metadata services of clouds.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use profcol_net::{DirectHttp, HttpReply};
use profcol_profile::{Attributes, KeyValue};

use super::error::{DetectionError, ResponseError};

/// All expected responses are shorter.
const MAX_ANSWER: usize = 64 << 10;

pub(super) struct Service {
    http: DirectHttp,
    endpoint: String,
}

impl Service {
    pub fn new(endpoint: &str) -> Result<Self, DetectionError> {
        Ok(Self {
            http: DirectHttp::new(endpoint)?,
            endpoint: endpoint.to_owned(),
        })
    }

    /// The answer, with any status.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<HttpReply, DetectionError> {
        let header = |(name, value): &(&'static str, &str)| {
            let header = HeaderValue::from_str(value);
            let header = header.map_err(|_| DetectionError::Header {
                name,
                value: (*value).to_owned(),
            })?;
            Ok((HeaderName::from_static(name), header))
        };
        let headers: Result<HeaderMap, DetectionError> = headers.iter().map(header).collect();
        let reply = self.http.send(method, path, headers?).await?;
        match reply.body.len() <= MAX_ANSWER {
            true => Ok(reply),
            false => Err(self.error(path, ResponseError::TooLong)),
        }
    }

    /// The text of a successful response.
    pub fn text(&self, path: &str, reply: &HttpReply) -> Result<String, DetectionError> {
        if reply.status != StatusCode::OK {
            return Err(self.error(path, ResponseError::Status(reply.status)));
        }
        match std::str::from_utf8(&reply.body) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(_) => Err(self.error(path, ResponseError::NotUtf8)),
        }
    }

    pub fn error(&self, path: &str, error: impl Into<ResponseError>) -> DetectionError {
        DetectionError::Response {
            url: format!("{}{path}", self.endpoint),
            error: error.into(),
        }
    }
}

/// Builds attributes from the pairs whose value is not empty.
pub(super) fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Attributes {
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    pairs
        .map(|(key, value)| KeyValue::new(key, value))
        .collect()
}

/// Whether one of the patterns matches. Invalid patterns were refused by validation.
pub(super) fn matches_any(patterns: &[String], key: &str) -> bool {
    let mut patterns = patterns.iter().filter_map(|it| regex::Regex::new(it).ok());
    patterns.any(|pattern| pattern.is_match(key))
}
