//! How `OTEL_RESOURCE_ATTRIBUTES` is written: `key=value,…`.

use profcol_profile::{Attributes, KeyValue};

/// All of it or nothing, as the Collector and the SDKs do.
pub(crate) fn parse(text: &str) -> Result<Attributes, String> {
    let mut attributes = Attributes::new();
    for pair in text.split(',').map(str::trim) {
        if pair.is_empty() {
            continue;
        }
        let (key, value) = pair
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| {
                format!("OTEL_RESOURCE_ATTRIBUTES: {pair:?} is not key=value; separate them by commas, and write %2C for a comma in a value")
            })?;
        let value = unescaped(value).ok_or_else(|| {
            format!("OTEL_RESOURCE_ATTRIBUTES: {value:?} has a % that no two hexadecimal digits follow; write %25 for it")
        })?;
        attributes.retain(|known: &KeyValue| &*known.key != key);
        attributes.push(KeyValue::new(key, value.as_str()));
    }
    Ok(attributes)
}

/// `%2C` is a comma.
fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
