//! File names, and which files in a directory match them.
//!
//! Names contain untrusted text, so all characters but letters, digits, `.`, `_` and `-`
//! are replaced, and each part is bounded: a name never leaves the directory and always fits.
//! Changed text gets a checksum of the original, so that different texts stay different.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A template such as `{type}-{group}-{time}-{sequence}.pb.gz`.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Type,
    Group,
    Time,
    Sequence,
}

/// The values of the placeholders.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) time: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("`{{sequence}}` is missing in file_name: without it names are not unique")]
    NoSequence,
    #[error(
        "`{{{0}}}` is not a placeholder of file_name: use {{type}}, {{group}}, {{time}} or {{sequence}}"
    )]
    UnknownPlaceholder(String),
    #[error("file_name contains a placeholder twice")]
    Twice,
    #[error("file_name has an unmatched brace")]
    Unbalanced,
    #[error("file_name must not contain `/` or control characters, or start with `.`")]
    NotAName,
    #[error(
        "file_name is too long: the text around the placeholders takes up to {MAX_LITERAL} bytes"
    )]
    TooLong,
}

// Together with the affixes of temporary files they stay below the 255 bytes of a name.
const MAX_LITERAL: usize = 64;
const MAX_TYPE: usize = 60;
const MAX_GROUP: usize = 80;
const TIME: usize = "20260801T123000Z".len();
const SEQUENCE_DIGITS: std::ops::RangeInclusive<usize> = 6..=12;

const TEMPORARY_PREFIX: &str = ".";
const TEMPORARY_SUFFIX: &str = ".partial";

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let literal = rest.find(['{', '}']).unwrap_or(rest.len());
            let (before, after) = rest.split_at(literal);
            if !before.is_empty() {
                pieces.push(Piece::Literal(before.to_owned()));
            }
            rest = after;
            if !rest.is_empty() {
                let inner = rest.strip_prefix('{').ok_or(TemplateError::Unbalanced)?;
                let (name, after) = inner.split_once('}').ok_or(TemplateError::Unbalanced)?;
                let piece = Piece::of(name)?;
                if pieces.contains(&piece) {
                    return Err(TemplateError::Twice);
                }
                pieces.push(piece);
                rest = after;
            }
        }
        let template = Self(pieces);
        template.check(text)?;
        Ok(template)
    }

    fn check(&self, text: &str) -> Result<(), TemplateError> {
        if !self.0.contains(&Piece::Sequence) {
            return Err(TemplateError::NoSequence);
        }
        if text.starts_with('.') || text.contains(|c: char| c == '/' || c.is_control()) {
            return Err(TemplateError::NotAName);
        }
        let literals = self.0.iter().map(|piece| match piece {
            Piece::Literal(text) => text.len(),
            _ => 0,
        });
        if literals.sum::<usize>() > MAX_LITERAL {
            return Err(TemplateError::TooLong);
        }
        Ok(())
    }

    pub(super) fn name(&self, parts: &Parts, sequence: u64) -> String {
        let mut name = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => name.push_str(text),
                Piece::Type => name.push_str(&clean(&parts.kind, MAX_TYPE)),
                Piece::Group => name.push_str(&clean(&parts.group, MAX_GROUP)),
                Piece::Time => name.push_str(&time(parts.time)),
                Piece::Sequence => {
                    let width = *SEQUENCE_DIGITS.start();
                    let _ = write!(name, "{sequence:0width$}");
                }
            }
        }
        name
    }

    /// The sequence number in a matching name; `None` for other names.
    pub(super) fn sequence_in(&self, name: &str) -> Option<u64> {
        find(&self.0, name)
    }

    /// Whether this is the name of an incomplete file.
    pub(super) fn is_temporary(&self, name: &str) -> bool {
        let inner = name
            .strip_prefix(TEMPORARY_PREFIX)
            .and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX));
        inner.is_some_and(|name| self.sequence_in(name).is_some())
    }
}

impl Piece {
    fn of(name: &str) -> Result<Self, TemplateError> {
        match name {
            "type" => Ok(Self::Type),
            "group" => Ok(Self::Group),
            "time" => Ok(Self::Time),
            "sequence" => Ok(Self::Sequence),
            _ => Err(TemplateError::UnknownPlaceholder(name.to_owned())),
        }
    }
}

/// The hidden name of a file until it is complete.
pub(super) fn temporary(name: &str) -> String {
    format!("{TEMPORARY_PREFIX}{name}{TEMPORARY_SUFFIX}")
}

/// Matches `rest` with `pieces` and returns the sequence number; 0 if there is none.
fn find(pieces: &[Piece], rest: &str) -> Option<u64> {
    let Some((piece, later)) = pieces.split_first() else {
        return rest.is_empty().then_some(0);
    };
    match piece {
        Piece::Literal(text) => find(later, rest.strip_prefix(text.as_str())?),
        Piece::Time => {
            let (time, rest) = rest.split_at_checked(TIME)?;
            is_time(time).then(|| find(later, rest))?
        }
        Piece::Sequence => SEQUENCE_DIGITS.rev().find_map(|length| {
            let (digits, rest) = rest.split_at_checked(length)?;
            let number: u64 = digits.parse().ok()?;
            let is_ours = digits.bytes().all(|byte| byte.is_ascii_digit());
            find(later, rest).filter(|_| is_ours).map(|_| number)
        }),
        Piece::Type => find_after_text(later, rest, MAX_TYPE),
        Piece::Group => find_after_text(later, rest, MAX_GROUP),
    }
}

fn find_after_text(later: &[Piece], rest: &str, max: usize) -> Option<u64> {
    let length = rest.chars().take_while(|&c| is_clean(c)).count().min(max);
    // Only ASCII was counted.
    (1..=length)
        .rev()
        .find_map(|length| find(later, rest.get(length..)?))
}

fn time(time: Timestamp) -> String {
    let time = time.to_zoned(TimeZone::UTC);
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn is_time(text: &str) -> bool {
    text.bytes()
        .enumerate()
        .all(|(position, byte)| match position {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

fn is_clean(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// The text with only the allowed characters.
fn clean(text: &str, max: usize) -> String {
    const CHECKSUM: usize = "-01234567".len();
    if text.is_empty() {
        return "none".to_owned();
    }
    let is_fine = text.len() <= max && !text.starts_with('.') && text.chars().all(is_clean);
    if is_fine {
        return text.to_owned();
    }
    let characters = text.chars().enumerate().take(max - CHECKSUM);
    let mut cleaned: String = characters
        .map(|(position, c)| match c {
            '.' if position == 0 => '_',
            c if is_clean(c) => c,
            _ => '_',
        })
        .collect();
    let _ = write!(cleaned, "-{:08x}", checksum(text));
    cleaned
}

/// FNV-1a, which is the same in every version of profcol.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pprof_file::config::DEFAULT_FILE_NAME;

    fn parts(kind: &str, group: &str) -> Parts {
        Parts {
            kind: kind.to_owned(),
            group: group.to_owned(),
            time: Timestamp::from_second(1_785_587_400).unwrap(),
        }
    }

    #[test]
    fn a_name_contains_its_parts_and_stays_in_the_directory() {
        let template = Template::parse(DEFAULT_FILE_NAME).unwrap();
        #[track_caller]
        fn check(template: &Template, kind: &str, group: &str, expected: &str) {
            let name = template.name(&parts(kind, group), 7);
            assert_eq!(name, format!("{expected}-20260801T123000Z-000007.pb.gz"));
            assert_eq!(template.sequence_in(&name), Some(7), "{name}");
            assert!(template.is_temporary(&temporary(&name)), "{name}");
            assert!(!template.is_temporary(&name), "{name}");
        }
        let check = |kind, group, expected| check(&template, kind, group, expected);
        check("samples.cpu", "shop-7", "samples.cpu-shop-7");
        check("cpu", "", "cpu-none");
        check("cpu", "../../etc/passwd", "cpu-_._.._etc_passwd-6fadc99a");
        check("..", "a\0b\nc", "_.-a3d4a70d-a_b_c-de870771");
        check("/", "ä/ß", "_-2a0c975e-___-f7f738b9");
        check("20260801T123000Z-000001", "9", "20260801T123000Z-000001-9");
    }

    #[test]
    fn names_are_short_enough_for_every_file_system() {
        let text = format!(
            "{}{{type}}{{group}}{{time}}{{sequence}}",
            "x".repeat(MAX_LITERAL)
        );
        let template = Template::parse(&text).unwrap();
        let long = "ü/".repeat(1 << 20);
        let name = temporary(&template.name(&parts(&long, &long), 999_999_999_999));
        assert!(name.len() <= 255, "{}", name.len());
    }

    #[test]
    fn different_texts_have_different_names() {
        assert_ne!(clean("a/b", 20), clean("a:b", 20));
        assert_ne!(clean(&"x".repeat(30), 20), clean(&"x".repeat(31), 20));
    }

    #[test]
    fn recognizes_foreign_names() {
        let template = Template::parse(DEFAULT_FILE_NAME).unwrap();
        for foreign in [
            "",
            "profiles.jsonl",
            "cpu-all-20260801T123000Z-000007.pb.gz.bak",
            "cpu-all-20260801T123000Z-00007.pb.gz",
            "cpu-all-20260801T123000Z-+00007.pb.gz",
            "cpu-all-20260801-123000Z-000007.pb.gz",
            "cpu-äll-20260801T123000Z-000007.pb.gz",
            ".cpu-all-20260801T123000Z-000007.pb.gz.partial",
            "-20260801T123000Z-000007.pb.gz",
            "cpu-20260801T123000Z-000007.pb.gz",
        ] {
            assert_eq!(template.sequence_in(foreign), None, "{foreign}");
            assert_eq!(
                template.is_temporary(foreign),
                foreign.starts_with('.'),
                "{foreign}"
            );
        }
    }

    #[test]
    fn refuses_a_template_that_does_not_make_unique_names() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        check("", "`{sequence}` is missing");
        check("{type}-{time}.pb.gz", "`{sequence}` is missing");
        check("{pid}{sequence}", "`{pid}` is not a placeholder");
        check("{sequence}{sequence}", "placeholder twice");
        check("{sequence", "unmatched brace");
        check("sequence}", "unmatched brace");
        check("a/{sequence}", "must not contain `/`");
        check("../{sequence}", "must not contain `/`");
        check(".{sequence}", "start with `.`");
        check("a\0{sequence}", "control");
        check(&format!("{}{{sequence}}", "x".repeat(65)), "too long");
    }
}
