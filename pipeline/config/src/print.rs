//! Prints a configuration in the format of the Collector's `print-config`: four spaces, sorted keys, quotes only where
//! a plain scalar would not be read as the same string.

use std::cmp::Ordering;

use profcol_printable::is_printable;
use serde_json::{Map, Value as Json};

use crate::node::Value;
use crate::yaml::scalar;

const INDENT: usize = 4;

/// YAML, ending in a line break.
pub fn to_yaml(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::Object(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Json::Array(items) if !items.is_empty() => write_list(&mut out, items, 0),
        leaf => {
            write_leaf(&mut out, leaf, INDENT);
            out.push('\n');
        }
    }
    out
}

/// Indented JSON with sorted keys, ending in a line break.
pub fn to_json(value: &Json) -> String {
    fn sorted(value: &Json) -> Json {
        match value {
            Json::Array(items) => items.iter().map(sorted).collect(),
            Json::Object(map) => {
                let mut entries: Vec<_> = map
                    .iter()
                    .map(|(key, value)| (key.clone(), sorted(value)))
                    .collect();
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                Json::Object(entries.into_iter().collect())
            }
            leaf => leaf.clone(),
        }
    }
    // `{:#}` prints indented JSON.
    let text = format!("{:#}\n", sorted(value));
    profcol_printable::json(&text).into_owned()
}

fn write_map(out: &mut String, map: &Map<String, Json>, column: usize) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by(|(a, _), (b, _)| natural(a, b));
    // Go's printer indents to the next multiple of four, even after the two columns of a `- `.
    let inner_column = (column / INDENT + 1) * INDENT;
    for (i, (key, value)) in entries.into_iter().enumerate() {
        if i > 0 {
            pad(out, column);
        }
        write_text(out, key);
        out.push(':');
        match value {
            Json::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                pad(out, inner_column);
                write_map(out, inner, inner_column);
            }
            Json::Array(items) if !items.is_empty() => {
                out.push('\n');
                pad(out, inner_column);
                write_list(out, items, inner_column);
            }
            leaf => {
                out.push(' ');
                write_leaf(out, leaf, inner_column);
                out.push('\n');
            }
        }
    }
}

fn write_list(out: &mut String, items: &[Json], column: usize) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            pad(out, column);
        }
        out.push_str("- ");
        match item {
            Json::Object(inner) if !inner.is_empty() => write_map(out, inner, column + 2),
            Json::Array(inner) if !inner.is_empty() => write_list(out, inner, column + 2),
            leaf => {
                write_leaf(out, leaf, column + INDENT);
                out.push('\n');
            }
        }
    }
}

fn write_leaf(out: &mut String, value: &Json, column: usize) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => out.push_str(&go_float(float)),
            _ => out.push_str(&number.to_string()),
        },
        Json::String(text) if text.contains('\n') => write_lines(out, text, column),
        Json::String(text) => write_text(out, text),
        Json::Array(_) => out.push_str("[]"),
        Json::Object(_) => out.push_str("{}"),
    }
}

/// Writes multi-line text as a literal block if YAML can represent it.
fn write_lines(out: &mut String, text: &str, column: usize) {
    let body = text.trim_end_matches('\n');
    let blocked =
        text.chars().any(|c| c != '\n' && !is_printable(c)) || text.starts_with([' ', '\n', '\t']);
    if blocked || body.is_empty() {
        return write_double_quoted(out, text);
    }
    out.push('|');
    match text.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    let kept = if text.ends_with("\n\n") {
        text.strip_suffix('\n').unwrap_or(text)
    } else {
        body
    };
    for line in kept.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, column);
            out.push_str(line);
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    let reads_as_text = matches!(scalar::resolve(text), Value::Str(_)) && !was_special(text);
    if text.contains('\n') || text.chars().any(|c| !is_printable(c)) || !reads_as_text {
        write_double_quoted(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
}

fn write_double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) <= 0xff => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            c if u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
}

/// Words and numbers that YAML 1.1 reads as booleans or base-60 numbers, and the merge key.
fn was_special(text: &str) -> bool {
    const WORDS: [&str; 12] = [
        "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No",
    ];
    const MORE: [&str; 5] = ["NO", "off", "Off", "OFF", "<<"];
    WORDS.contains(&text) || MORE.contains(&text) || is_base_60(text) || is_date(text)
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = unsigned
        .split_once('.')
        .map_or(unsigned, |(whole, _)| whole);
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let fraction_ok = unsigned[whole.len()..]
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '_' | '.'));
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.chars().all(|c| c.is_ascii_digit() || c == '_')
        && !rest.is_empty()
        && rest
            .iter()
            .all(|part| part.parse::<u8>().is_ok_and(|n| n < 60) && part.len() <= 2)
        && fraction_ok
}

/// `2006-01-02`, alone or with a time, which YAML 1.1 parsers read as a timestamp.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes
            .get(from..to)
            .is_some_and(|d| d.iter().all(u8::is_ascii_digit))
    };
    digits(0, 4)
        && bytes.get(4) == Some(&b'-')
        && digits(5, 7)
        && bytes.get(7) == Some(&b'-')
        && digits(8, 10)
        && matches!(bytes.get(10), None | Some(b'T' | b't' | b' '))
}

/// Whether single-line text needs no quotes in block context.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let (Some(first), second) = (chars.next(), chars.next()) else {
        return false;
    };
    let blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
    let first_ok = match first {
        '-' | '?' | ':' => !blank(second),
        _ => !"#,[]{}&*!|>'\"%@`".contains(first),
    };
    let no_marker = !text.starts_with("---") && !text.starts_with("...");
    let no_comment = !text.contains(" #");
    let no_key = !text.contains(": ") && !text.ends_with(':');
    let no_edge = !text.starts_with(char::is_whitespace) && !text.ends_with(char::is_whitespace);
    first_ok && no_marker && no_comment && no_key && no_edge && !text.contains('\t')
}

fn pad(out: &mut String, column: usize) {
    out.extend(std::iter::repeat_n(' ', column));
}

/// Go's shortest general format: exponent at 1e6 and above or below 1e-4, no trailing `.0`.
fn go_float(float: f64) -> String {
    if float.is_nan() {
        return ".nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => float.to_string(),
    }
}

/// Go's order of map keys: letters by code point, other characters before letters, digit runs by value.
fn natural(a: &str, b: &str) -> Ordering {
    let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(i) = x.iter().zip(&y).position(|(x, y)| x != y) else {
        return x.len().cmp(&y.len());
    };
    let (Some(&p), Some(&q)) = (x.get(i), y.get(i)) else {
        return x.len().cmp(&y.len());
    };
    let after_digit = i
        .checked_sub(1)
        .and_then(|before| x.get(before))
        .is_some_and(char::is_ascii_digit);
    match (p.is_alphabetic(), q.is_alphabetic()) {
        (true, true) => p.cmp(&q),
        // After equal digits a letter ends the number, which makes it smaller.
        (true, false) => {
            if after_digit {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if after_digit {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let run = |chars: &[char]| {
                chars
                    .iter()
                    .skip(i)
                    .take_while(|c| c.is_ascii_digit())
                    .count()
            };
            match (run(&x), run(&y)) {
                (n, m) if n > 0 && m > 0 && n != m => n.cmp(&m),
                _ => p.cmp(&q),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, yaml};
    use serde_json::json;

    #[test]
    fn writes_scalars_as_the_collector_does() {
        for (value, expected) in [
            (json!(null), "null"),
            (json!(true), "true"),
            (json!(-5), "-5"),
            (json!(1.5), "1.5"),
            (json!(2.0), "2"),
            (json!(1_000_000.0), "1e+06"),
            (json!(0.00001), "1e-05"),
            (json!([]), "[]"),
            (json!({}), "{}"),
            (json!(""), "\"\""),
            (json!("plain text"), "plain text"),
            (json!("h:1"), "h:1"),
            (json!("http://h:2"), "http://h:2"),
            (json!("0123"), "\"0123\""),
            (json!("true"), "\"true\""),
            (json!("yes"), "\"yes\""),
            (json!("1:30"), "\"1:30\""),
            (json!("2006-01-02"), "\"2006-01-02\""),
            (json!("~"), "\"~\""),
            (json!("[REDACTED]"), "'[REDACTED]'"),
            (json!("it's: x"), "'it''s: x'"),
            (json!("- x"), "'- x'"),
            (json!("-x"), "-x"),
            (json!(" x"), "' x'"),
            (json!("x #y"), "'x #y'"),
            (json!("$ENV ${x}"), "$ENV ${x}"),
            (json!("a\u{7}b"), "\"a\\x07b\""),
            (json!("a\tb\"c"), "\"a\\tb\\\"c\""),
            (json!("a\nb"), "|-\n    a\n    b"),
            (json!("a\n"), "|\n    a"),
            (json!("a\n\n"), "|+\n    a\n"),
            (json!("\n"), "\"\\n\""),
        ] {
            assert_eq!(
                to_yaml(&json!({ "k": value })),
                format!("k: {expected}\n"),
                "{value}"
            );
        }
    }

    #[test]
    fn writes_nested_sections_sorted() {
        let value = json!({
            "b": [{ "value": 1, "name": "x" }, [1, [2]], {}, "s"],
            "a10": null, "a9": 1, "a": { "x_y": {}, "xa": { "deep": [true] } },
        });
        let expected = "\
a:
    x_y: {}
    xa:
        deep:
            - true
a9: 1
a10: null
b:
    - name: x
      value: 1
    - - 1
      - - 2
    - {}
    - s
";
        assert_eq!(to_yaml(&value), expected);
        assert_eq!(
            to_json(&json!({ "b": 1, "a": [] })),
            "{\n  \"a\": [],\n  \"b\": 1\n}\n"
        );
    }

    proptest::proptest! {
        #[test]
        fn round_trips(texts in proptest::collection::vec("(?s).{0,12}|[-#:'\"{}\\[\\] \n\t0-9a-z&*!|>%@`,.?]{0,8}", 1..5)) {
            let value = json!({ "list": texts.clone(), "nested": { "list": [[texts]] } });
            let mut sources = Sources::default();
            let text = to_yaml(&value);
            let id = sources.add("t.yaml", text.as_str(), None).expect("small");
            let node = yaml::parse(&sources, id);
            proptest::prop_assert!(node.is_ok(), "{:?}\n{}", node, text);
            proptest::prop_assert_eq!(node.expect("just checked").to_json(), value, "{}", text);
        }
    }
}
