//! Asking the metadata services of clouds.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use profcol_net::{DirectHttp, HttpReply};
use profcol_profile::{Attributes, KeyValue};

/// Nothing that is asked for is longer.
const MAX_ANSWER: usize = 64 << 10;

pub(super) struct Service {
    http: DirectHttp,
    endpoint: String,
}

impl Service {
    pub fn new(endpoint: &str) -> Result<Self, String> {
        Ok(Self {
            http: DirectHttp::new(endpoint).map_err(|error| error.to_string())?,
            endpoint: endpoint.to_owned(),
        })
    }

    /// An answer of any status.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<HttpReply, String> {
        let header = |(name, value): &(&'static str, &str)| {
            let header = HeaderValue::from_str(value);
            let header = header.map_err(|_| format!("{name}: {value:?} is no header"))?;
            Ok((HeaderName::from_static(name), header))
        };
        let headers: Result<HeaderMap, String> = headers.iter().map(header).collect();
        let reply = self.http.send(method, path, headers?).await;
        let reply = reply.map_err(|error| error.to_string())?;
        match reply.body.len() <= MAX_ANSWER {
            true => Ok(reply),
            false => Err(self.wrong(path, "its answer is too long")),
        }
    }

    /// The text of a good answer.
    pub fn text(&self, path: &str, reply: &HttpReply) -> Result<String, String> {
        if reply.status != StatusCode::OK {
            return Err(self.wrong(path, &format!("it answered {}", reply.status)));
        }
        match std::str::from_utf8(&reply.body) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(_) => Err(self.wrong(path, "its answer is not text")),
        }
    }

    pub fn wrong(&self, path: &str, what: &str) -> String {
        format!("{}{path}: {what}", self.endpoint)
    }
}

/// What is empty is left out.
pub(super) fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Attributes {
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    pairs
        .map(|(key, value)| KeyValue::new(key, value))
        .collect()
}

/// Whether one of the patterns matches; those that are none were refused before.
pub(super) fn is_wanted(patterns: &[String], key: &str) -> bool {
    let mut patterns = patterns.iter().filter_map(|it| regex::Regex::new(it).ok());
    patterns.any(|pattern| pattern.is_match(key))
}
