//! Durations in Go's format, as in Collector configurations: `200ms`, `1m30s`, and a bare number for nanoseconds.
//! Negative durations parse, so that components can reject them with their own message.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A duration in nanoseconds, up to ±292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanos: i64,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DurationError {
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit { unit: String, text: String },
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Duration {
    pub const ZERO: Duration = Duration::from_nanos(0);

    pub const fn from_nanos(nanos: i64) -> Self {
        Duration { nanos }
    }

    /// Saturates at 292 years.
    pub const fn from_millis(millis: i64) -> Self {
        Duration::from_nanos(millis.saturating_mul(1_000_000))
    }

    /// Saturates at 292 years.
    pub const fn from_secs(secs: i64) -> Self {
        Duration::from_nanos(secs.saturating_mul(1_000_000_000))
    }

    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Converts to a standard duration; negative ones become zero.
    pub const fn to_std(self) -> time::Duration {
        if self.nanos < 0 {
            time::Duration::ZERO
        } else {
            time::Duration::from_nanos(self.nanos.unsigned_abs())
        }
    }
}

impl From<time::Duration> for Duration {
    fn from(duration: time::Duration) -> Self {
        Duration::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl From<Duration> for time::Duration {
    fn from(duration: Duration) -> Self {
        duration.to_std()
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned == "0" {
            return Ok(Duration::ZERO);
        }
        if unsigned.is_empty() {
            return Err(invalid());
        }
        let mut rest = unsigned;
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (number, after) = split_where(rest, |c| !(c.is_ascii_digit() || c == '.'));
            let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return Err(invalid());
            }
            if unit.is_empty() {
                return Err(DurationError::MissingUnit(text.to_owned()));
            }
            let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(DurationError::UnknownUnit {
                    unit: unit.to_owned(),
                    text: text.to_owned(),
                });
            };
            let part = nanos(whole, fraction, *scale).ok_or_else(invalid)?;
            total = total.checked_add(part).ok_or_else(invalid)?;
            rest = after;
        }
        let signed = if negative {
            -i128::from(total)
        } else {
            i128::from(total)
        };
        i64::try_from(signed)
            .map(Duration::from_nanos)
            .map_err(|_| invalid())
    }
}

fn split_where(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

/// `whole.fraction` units of `scale` nanoseconds, truncated to nanoseconds.
fn nanos(whole: &str, fraction: &str, scale: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    whole
        .checked_mul(scale)?
        .checked_add(fraction_of(fraction, scale)?)
}

fn fraction_of(fraction: &str, scale: u64) -> Option<u64> {
    // Twenty digits are far below a nanosecond in any unit.
    let digits = fraction.get(..20).unwrap_or(fraction);
    let mut numerator: u128 = 0;
    let mut denominator: u128 = 1;
    for digit in digits.chars() {
        numerator = numerator * 10 + u128::from(digit.to_digit(10)?);
        denominator *= 10;
    }
    u64::try_from(numerator.checked_mul(u128::from(scale))? / denominator).ok()
}

/// Go's format: `1m30s`, `5m0s`, `1.5s`, `200ms`, `0s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        let decimal = |whole: u64, fraction: u64, digits: usize| {
            let fraction = format!("{fraction:0digits$}");
            match fraction.trim_end_matches('0') {
                "" => whole.to_string(),
                fraction => format!("{whole}.{fraction}"),
            }
        };
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return write!(f, "{}µs", decimal(nanos / 1_000, nanos % 1_000, 3)),
            1_000_000..1_000_000_000 => {
                return write!(f, "{}ms", decimal(nanos / 1_000_000, nanos % 1_000_000, 6));
            }
            _ => {}
        }
        let (secs, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let (hours, minutes) = (secs / 3600, secs / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if secs >= 60 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(secs % 60, fraction, 9))
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"1m30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<Duration, E> {
                Ok(Duration::from_nanos(nanos))
            }

            fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<Duration, E> {
                i64::try_from(nanos)
                    .map(Duration::from_nanos)
                    .map_err(|_| E::custom(DurationError::Invalid(nanos.to_string())))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl schemars::JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "integer"], "format": "go-duration" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_like_go() {
        for (input, nanos, printed) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1ns", 1, "1ns"),
            ("1500ns", 1_500, "1.5µs"),
            ("3us", 3_000, "3µs"),
            ("3µs", 3_000, "3µs"),
            ("200ms", 200_000_000, "200ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("5m", 300_000_000_000, "5m0s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("1h0m0.5s", 3_600_500_000_000, "1h0m0.5s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("-1s", -1_000_000_000, "-1s"),
            ("+2s", 2_000_000_000, "2s"),
            ("0.000000001s", 1, "1ns"),
            (
                "0.3333333333333333333h",
                1_199_999_999_999,
                "19m59.999999999s",
            ),
            (
                "9223372036854775807ns",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-9223372036854775808ns",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            let duration: Duration = input.parse().unwrap_or_else(|e| panic!("{input}: {e}"));
            assert_eq!(duration.as_nanos(), nanos, "{input}");
            assert_eq!(duration.to_string(), printed, "{input}");
            assert_eq!(printed.parse(), Ok(duration), "{printed}");
        }
    }

    #[test]
    fn rejects_with_gos_messages() {
        for (input, expected) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            (".", "time: invalid duration \".\""),
            ("s", "time: invalid duration \"s\""),
            ("1.2.3s", "time: invalid duration \"1.2.3s\""),
            ("3", "time: missing unit in duration \"3\""),
            (
                "5parsecs",
                "time: unknown unit \"parsecs\" in duration \"5parsecs\"",
            ),
            ("1 s", "time: unknown unit \" s\" in duration \"1 s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            (
                "9223372036854775808ns",
                "time: invalid duration \"9223372036854775808ns\"",
            ),
            ("99999999999h", "time: invalid duration \"99999999999h\""),
        ] {
            let error = input.parse::<Duration>().expect_err(input);
            assert_eq!(error.to_string(), expected, "{input}");
        }
    }
}
