//! URLs that may have a password in them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::REDACTED;

/// A URL. `Display` and `Debug` print it without user and password, and without the values of a query, as these may be
/// tokens; only serialization and [`expose`](Url::expose) reveal them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Url(String);

impl Url {
    pub fn new(text: impl Into<String>) -> Self {
        Url(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// `url` with [`REDACTED`] for user and password, and for a query. Meant for any text, so it hides too much rather than too
/// little: everything from the scheme to the last `@`.
pub fn redact_url(url: &str) -> Cow<'_, str> {
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    let (scheme, rest) = url.split_at(start);
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => (Some(REDACTED), rest),
        None => (None, rest),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, Some(REDACTED)),
        None => (rest, None),
    };
    match (user, query) {
        (None, None) => Cow::Borrowed(url),
        (Some(user), None) => format!("{scheme}{user}@{rest}").into(),
        (None, Some(query)) => format!("{scheme}{rest}?{query}").into(),
        (Some(user), Some(query)) => format!("{scheme}{user}@{rest}?{query}").into(),
    }
}

impl From<&str> for Url {
    fn from(text: &str) -> Self {
        Url::new(text)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&redact_url(&self.0), f)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_url(&self.0))
    }
}

impl schemars::JsonSchema for Url {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Url".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "secret-url" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_neither_user_nor_query() {
        for (text, expected) in [
            ("http://proxy:3128", "http://proxy:3128"),
            ("https://h/v1/profiles", "https://h/v1/profiles"),
            (
                "http://user:hunter2@proxy:3128",
                "http://[REDACTED]@proxy:3128",
            ),
            ("https://hunter2@h/path", "https://[REDACTED]@h/path"),
            ("https://h/path?key=hunter2", "https://h/path?[REDACTED]"),
            (
                "http://a:hunter2@h?key=hunter2",
                "http://[REDACTED]@h?[REDACTED]",
            ),
            // Not encoded, so these are no URLs.
            ("http://user:hun/ter2@h", "http://[REDACTED]@h"),
            ("http://user:hun?ter2@h", "http://[REDACTED]@h"),
            ("http://user:hunter@2@h:1", "http://[REDACTED]@h:1"),
            ("user:hunter2@h:4317", "[REDACTED]@h:4317"),
            ("", ""),
        ] {
            let url = Url::new(text);
            assert_eq!(url.to_string(), expected);
            assert_eq!(format!("{url:?}"), format!("{expected:?}"));
            assert_eq!(url.expose(), text);
        }
    }
}
