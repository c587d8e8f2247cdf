//! Resolves unquoted YAML scalars by the YAML 1.2 core schema plus the YAML 1.1 rules that the Collector's YAML library
//! (Go's yaml.v3) keeps, as configurations rely on them: `0123` is octal, `_` may group digits, and `yes`, `no`, `on`,
//! `off` are text.

use crate::node::Value;

/// The value of an unquoted, untagged scalar.
pub fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Value::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or_else(|| Value::Str(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let digits = text.replace('_', "");
    integer(&digits).or_else(|| float(&digits))
}

fn integer(text: &str) -> Option<Value> {
    let (negative, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match magnitude.get(..2) {
        Some("0x" | "0X") => (16, &magnitude[2..]),
        Some("0b" | "0B") => (2, &magnitude[2..]),
        Some("0o" | "0O") => (8, &magnitude[2..]),
        Some(two) if two.starts_with('0') => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (i64::try_from(magnitude), negative) {
        (Ok(value), false) => Some(Value::Int(value)),
        (Ok(value), true) => Some(Value::Int(-value)),
        (Err(_), false) => Some(Value::UInt(magnitude)),
        (Err(_), true) => (magnitude == i64::MIN.unsigned_abs()).then_some(Value::Int(i64::MIN)),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => all_digits(fraction),
        Some((whole, fraction)) => {
            all_digits(whole) && (fraction.is_empty() || all_digits(fraction))
        }
        None => all_digits(mantissa),
    };
    let exponent_ok = exponent.is_none_or(|e| all_digits(e.strip_prefix(['-', '+']).unwrap_or(e)));
    if !(mantissa_ok && exponent_ok) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Value::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_scalars_as_the_collector_does() {
        let text = |s: &str| Value::Str(s.to_owned());
        for (input, expected) in [
            ("", Value::Null),
            ("~", Value::Null),
            ("Null", Value::Null),
            ("true", Value::Bool(true)),
            ("FALSE", Value::Bool(false)),
            ("yes", text("yes")),
            ("off", text("off")),
            ("t", text("t")),
            ("123", Value::Int(123)),
            ("-1", Value::Int(-1)),
            ("+1", Value::Int(1)),
            ("0", Value::Int(0)),
            ("0123", Value::Int(83)),
            ("0o17", Value::Int(15)),
            ("08", Value::Float(8.0)),
            ("0xdeadbeef", Value::Int(3_735_928_559)),
            ("-0b11", Value::Int(-3)),
            ("0x", text("0x")),
            ("--1", text("--1")),
            ("0x-1", text("0x-1")),
            ("1_000", Value::Int(1000)),
            ("_1", text("_1")),
            ("9223372036854775808", Value::UInt(1 << 63)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            (
                "18446744073709551616",
                Value::Float(18_446_744_073_709_551_616.0),
            ),
            ("1.5", Value::Float(1.5)),
            (".5", Value::Float(0.5)),
            ("1.", Value::Float(1.0)),
            ("1e3", Value::Float(1000.0)),
            ("-1.5E-3", Value::Float(-0.0015)),
            ("1e400", text("1e400")),
            ("1e", text("1e")),
            (".", text(".")),
            ("-", text("-")),
            ("-.inf", Value::Float(f64::NEG_INFINITY)),
            ("1.2.3", text("1.2.3")),
            ("10s", text("10s")),
            ("2006-01-02", text("2006-01-02")),
            ("1:30", text("1:30")),
        ] {
            assert_eq!(resolve(input), expected, "{input:?}");
        }
        assert!(matches!(resolve(".nan"), Value::Float(f) if f.is_nan()));
    }
}
