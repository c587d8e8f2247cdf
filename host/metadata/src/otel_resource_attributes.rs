//! The syntax of `OTEL_RESOURCE_ATTRIBUTES`: `key=value,…`.

use percent_encoding::percent_decode_str;
use profcol_profile::{Attributes, KeyValue};

#[derive(Debug, thiserror::Error)]
pub enum InvalidPair {
    #[error(
        "OTEL_RESOURCE_ATTRIBUTES: {0:?} is not key=value; separate pairs with commas, and write %2C for a comma in a value"
    )]
    NotKeyValue(String),
    #[error(
        "OTEL_RESOURCE_ATTRIBUTES: {0:?} has a % without two hexadecimal digits; write %25 for a literal %"
    )]
    PercentEncoding(String),
}

/// All or nothing, as in the Collector and the SDKs.
pub fn parse(text: &str) -> Result<Attributes, InvalidPair> {
    let mut attributes = Attributes::new();
    for pair in text.split(',').map(str::trim) {
        if pair.is_empty() {
            continue;
        }
        let (key, value) = pair
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| InvalidPair::NotKeyValue(pair.to_owned()))?;
        let value =
            unescaped(value).ok_or_else(|| InvalidPair::PercentEncoding(value.to_owned()))?;
        attributes.retain(|known: &KeyValue| &*known.key != key);
        attributes.push(KeyValue::new(key, value.as_str()));
    }
    Ok(attributes)
}

/// Decodes percent encoding: `%2C` is a comma.
fn unescaped(text: &str) -> Option<String> {
    let is_escape = |after: &str| {
        let digits = after.as_bytes().first_chunk::<2>();
        digits.is_some_and(|it| it.iter().all(u8::is_ascii_hexdigit))
    };
    let decoded = percent_decode_str(text).decode_utf8_lossy();
    let mut escapes = text.split('%').skip(1);
    escapes.all(is_escape).then(|| decoded.into_owned())
}
