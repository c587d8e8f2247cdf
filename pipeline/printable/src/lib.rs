//! Escapes untrusted text for terminals, logs and pages, and writes errors with their causes.
//!
//! A process may be called `e\x1b[2Jvil\n`, a backend may respond with lines that look like log entries, and bidi
//! controls reorder text. All output to a terminal or a log goes through this crate: control and invisible characters
//! are escaped as in Rust and Go (`\n`, `\x1b`, `\u{202e}`). Backslashes are not escaped, so the result is readable but
//! not always reversible.
//!
//! ```
//! assert_eq!(profcol_printable::line("e\x1b[2Jvil\n"), r"e\x1b[2Jvil\n");
//! ```

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Write};

/// Treatment of line breaks, and escape syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Escapes line breaks and tabs: for a name or a value.
    Line,
    /// Keeps line breaks and tabs: for multi-line text with trusted breaks.
    Lines,
    /// Keeps line breaks and tabs and adds a tab after each break, so that no line can pass for the start of a log
    /// entry.
    Indented,
    /// JSON escapes, so that the JSON value is unchanged.
    Json,
}

/// Escapes text written to it.
pub struct Writer<W> {
    inner: W,
    style: Style,
}

/// Escapes `text` to a single line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, Style::Line)
}

/// Escapes `text`, keeping its line breaks.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, Style::Lines)
}

/// Escapes `text` and indents each line but the first.
pub fn indented(text: &str) -> Cow<'_, str> {
    escaped(text, Style::Indented)
}

/// Escapes `text` for HTML and XML, also as the value of an attribute in double quotes.
pub fn markup(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// An error with its causes. Those that a message has already are not repeated: most include their cause, some do not.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = cause.source();
    }
    text
}

/// Escapes JSON text.
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, Style::Json)
}

/// Whether `c` is visible or blank, and does not affect its surroundings.
///
/// Not printable: controls, separators of lines and paragraphs, the default ignorable code points of Unicode
/// (zero-width characters, bidi controls, fillers, variation selectors, tags), interlinear annotations, noncharacters
/// next to them.
pub fn is_printable(c: char) -> bool {
    !matches!(
        c,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{fffe}'..='\u{ffff}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

fn escaped(text: &str, style: Style) -> Cow<'_, str> {
    if style.is_clean(text) {
        return Cow::Borrowed(text);
    }
    let mut writer = Writer::new(String::with_capacity(text.len() + 16), style);
    // Writing to a string cannot fail.
    let _ = writer.write_str(text);
    Cow::Owned(writer.inner)
}

// === impl Style ===

impl Style {
    /// Whether `text` needs no escaping. Nearly all text is plain ASCII, checked in one pass over its bytes.
    fn is_clean(self, text: &str) -> bool {
        let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        is_plain || text.chars().all(|c| self.is_unescaped(c))
    }

    fn is_unescaped(self, c: char) -> bool {
        is_printable(c)
            || match self {
                Self::Line => false,
                Self::Lines => matches!(c, '\n' | '\t'),
                Self::Indented => c == '\t',
                // JSON strings contain no raw control characters.
                Self::Json => c < ' ',
            }
    }

    fn write(self, out: &mut impl Write, c: char) -> fmt::Result {
        match (self, c) {
            (Self::Indented, '\n') => out.write_str("\n\t"),
            (Self::Json, c) => {
                let units = &mut [0; 2];
                let mut units = c.encode_utf16(units).iter();
                units.try_for_each(|unit| write!(out, "\\u{unit:04x}"))
            }
            (_, '\n') => out.write_str("\\n"),
            (_, '\r') => out.write_str("\\r"),
            (_, '\t') => out.write_str("\\t"),
            (_, c) if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            (_, c) => write!(out, "\\u{{{:x}}}", u32::from(c)),
        }
    }
}

// === impl Writer ===

impl<W: Write> Writer<W> {
    pub fn new(inner: W, style: Style) -> Self {
        Self { inner, style }
    }
}

impl<W: Write> Write for Writer<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Self { inner, style } = self;
        if style.is_clean(text) {
            return inner.write_str(text);
        }
        let mut rest = text;
        while let Some(at) = rest.find(|c| !style.is_unescaped(c)) {
            let (kept, after) = rest.split_at(at);
            inner.write_str(kept)?;
            let mut chars = after.chars();
            if let Some(c) = chars.next() {
                style.write(inner, c)?;
            }
            rest = chars.as_str();
        }
        inner.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, as_line: &str, as_lines: &str) {
        assert_eq!(
            (line(text).as_ref(), lines(text).as_ref()),
            (as_line, as_lines)
        );
        // Escaping is idempotent.
        assert_eq!(line(as_line), as_line);
        assert!(as_line.chars().all(is_printable), "{as_line:?}");
    }

    #[test]
    fn keeps_printable_text() {
        for text in [
            "",
            "plain ASCII, with C:\\backslashes and \"quotes\"",
            "libstdc++.so.6 (deleted)",
            "søker naïve e\u{301} 你好 हिन्दी عربي עברית ελληνικά",
            "── 10 s × 3 … “quoted” 🚀 \u{a0}no break",
            "\u{fffd}",
        ] {
            check(text, text, text);
            assert!(matches!(line(text), Cow::Borrowed(_)), "{text:?}");
        }
    }

    #[test]
    fn escapes_terminal_control_characters() {
        check("e\x1b[2Jvil\n", r"e\x1b[2Jvil\n", "e\\x1b[2Jvil\n");
        check(
            "a\r\x08\x07\0b\x7f",
            r"a\r\x08\x07\x00b\x7f",
            r"a\r\x08\x07\x00b\x7f",
        );
        check("a\tb", r"a\tb", "a\tb");
        check(
            "\u{9b}31mred\u{85}",
            r"\u{9b}31mred\u{85}",
            r"\u{9b}31mred\u{85}",
        );
    }

    #[test]
    fn escapes_invisible_and_bidi_characters() {
        for c in [
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0041}',
            '\u{e0100}',
        ] {
            let expected = format!("a\\u{{{:x}}}é", u32::from(c));
            check(&format!("a{c}é"), &expected, &expected);
        }
    }

    #[test]
    fn no_line_of_untrusted_text_passes_for_a_log_entry() {
        assert_eq!(
            indented("first\n2026-11-22T00:00:00Z ERROR forged\r\x1b[0m\n"),
            "first\n\t2026-11-22T00:00:00Z ERROR forged\\r\\x1b[0m\n\t"
        );
    }

    #[test]
    fn markup_has_no_tags_or_quotes_of_its_text() {
        assert_eq!(
            markup("<a href=\"x\">R&D</a>"),
            "&lt;a href=&quot;x&quot;&gt;R&amp;D&lt;/a&gt;"
        );
        assert!(matches!(markup("std::vec é"), Cow::Borrowed(_)));
    }

    #[test]
    fn causes_missing_from_a_message_follow_it() {
        #[derive(Debug)]
        struct Failed(&'static str, Option<Box<Self>>);
        impl fmt::Display for Failed {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Failed {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                self.1.as_deref().map(|cause| cause as _)
            }
        }
        let chain = |messages: [&'static str; 3]| {
            let mut messages = messages.into_iter().rev();
            let last = Failed(messages.next().unwrap(), None);
            messages.fold(last, |cause, message| {
                Failed(message, Some(Box::new(cause)))
            })
        };
        let check = |messages, expected| assert_eq!(with_causes(&chain(messages)), expected);
        check(["load", "map", "EPERM"], "load: map: EPERM");
        check(["load: map", "map", "EPERM"], "load: map: EPERM");
        check(["load: EPERM", "map", "EPERM"], "load: EPERM: map");
    }

    #[test]
    fn json_keeps_its_value() {
        let text = "{\"a\":\"\\u001b\u{202e}\u{7f}\u{9b}\u{e0041}é\"}\n";
        let expected = "{\"a\":\"\\u001b\\u202e\\u007f\\u009b\\udb40\\udc41é\"}\n";
        assert_eq!(json(text), expected);
    }

    #[test]
    fn a_writer_escapes_each_piece() {
        let mut writer = Writer::new(String::new(), Style::Line);
        write!(writer, "a\x1b\n{:>4}", 7).unwrap();
        assert_eq!(writer.inner, r"a\x1b\n   7");
    }
}
