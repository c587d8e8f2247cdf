//! The `grpc-timeout` header: at most eight digits and a unit.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Encodes a timeout in the finest unit that fits, rounded up.
pub(crate) fn encode(timeout: Duration) -> HeaderValue {
    const LIMIT: u128 = 100_000_000;
    let nanos = timeout.as_nanos();
    let units = [
        ("n", 1),
        ("u", 1_000),
        ("m", 1_000_000),
        ("S", 1_000_000_000),
    ];
    let text = units
        .into_iter()
        .map(|(unit, size)| (unit, nanos.div_ceil(size)))
        .find(|(_, count)| *count < LIMIT)
        .map_or_else(
            || "99999999H".to_owned(),
            |(unit, count)| format!("{count}{unit}"),
        );
    HeaderValue::try_from(text).expect("digits and a letter are a valid header value")
}

/// Decodes a timeout; `None` if invalid.
pub(crate) fn decode(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "n" => Duration::from_nanos(count),
        "u" => Duration::from_micros(count),
        "m" => Duration::from_millis(count),
        "S" => Duration::from_secs(count),
        "M" => Duration::from_secs(count * 60),
        "H" => Duration::from_secs(count * 3600),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_finest_unit_that_fits() {
        for (timeout, text) in [
            (Duration::from_nanos(1), "1n"),
            (Duration::from_secs(5), "5000000u"),
            (Duration::from_secs(300), "300000m"),
            (Duration::from_millis(100_000_001), "100001S"),
            (Duration::MAX, "99999999H"),
        ] {
            assert_eq!(encode(timeout), text);
        }
    }

    #[test]
    fn reads_only_what_the_protocol_allows() {
        for (text, timeout) in [
            ("5S", Some(Duration::from_secs(5))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("250m", Some(Duration::from_millis(250))),
            ("123456789S", None),
            ("-1S", None),
            ("+1S", None),
            ("S", None),
            ("5", None),
            ("", None),
            ("5s", None),
        ] {
            assert_eq!(decode(&HeaderValue::from_static(text)), timeout, "{text}");
        }
    }
}
