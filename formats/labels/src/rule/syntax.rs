//! Translates Go regular expressions to the syntax of the regex crate.
//!
//! The two are nearly the same language. Where they differ, Go's meaning wins: `\d`, `\w`, `\s` and `\b` are
//! ASCII-only, `{` is a literal unless a repeat count follows, classes have no set operators, and Go's errors stay
//! errors.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use regex_automata::meta::BuildError;

/// Why a regular expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(String);

/// Go's limit.
const MAX_REPEATS: u32 = 1000;

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
}

pub fn translated(pattern: &str) -> Result<String, SyntaxError> {
    let mut translation = Translation {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 8),
    };
    translation.run()?;
    Ok(translation.out)
}

impl SyntaxError {
    fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The last line of the library's error; the lines before it point into the translation.
    pub fn of(error: &BuildError) -> Self {
        let text = match (error.syntax_error(), error.size_limit()) {
            (Some(error), _) => error.to_string(),
            (_, Some(limit)) => format!("compiled size exceeds {limit} bytes"),
            _ => error.to_string(),
        };
        let last = text.lines().last().unwrap_or_default();
        Self(last.trim_start_matches("error: ").to_owned())
    }
}

impl Translation<'_> {
    fn run(&mut self) -> Result<(), SyntaxError> {
        let mut follows_count = false;
        while let Some(c) = self.rest.next() {
            let mut is_count = matches!(c, '*' | '+' | '?');
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' if self.rest.peek() == Some(&'?') => self.flags()?,
                '{' => match self.count() {
                    Some(count) => {
                        is_count = true;
                        self.check_count(&count)?;
                        self.out.push_str(&count);
                    }
                    None => self.out.push_str("\\{"),
                },
                '}' => self.out.push_str("\\}"),
                _ => self.out.push(c),
            }
            if is_count {
                if follows_count {
                    return Err(SyntaxError::new("invalid nested repetition operator"));
                }
                if let Some(lazy) = self.rest.next_if_eq(&'?') {
                    self.out.push(lazy);
                }
            }
            follows_count = is_count;
        }
        Ok(())
    }

    fn escape(&mut self, in_class: bool) -> Result<(), SyntaxError> {
        let trailing = || SyntaxError::new("trailing backslash at end of expression");
        let c = self.rest.next().ok_or_else(trailing)?;
        let class = match c {
            'd' | 'D' => "0-9",
            's' | 'S' => r"\t\n\x0C\r ",
            'w' | 'W' => "0-9A-Za-z_",
            _ => "",
        };
        match c {
            'D' | 'S' | 'W' => self.write(format_args!("[^{class}]")),
            'd' | 's' | 'w' if in_class => self.out.push_str(class),
            'd' | 's' | 'w' => self.write(format_args!("[{class}]")),
            'b' | 'B' if !in_class => self.write(format_args!("(?-u:\\{c})")),
            'Q' if !in_class => self.quoted(),
            'A' | 'z' if !in_class => self.write(format_args!("\\{c}")),
            'p' | 'P' => {
                self.write(format_args!("\\{c}"));
                self.group_name();
            }
            _ => {
                let character = self.character(c)?;
                self.literal(character);
            }
        }
        Ok(())
    }

    /// The character that an escape stands for; `c` follows the backslash.
    fn character(&mut self, c: char) -> Result<char, SyntaxError> {
        let invalid = || SyntaxError(format!("invalid escape sequence: `\\{c}`"));
        let code = match c {
            'a' => 7,
            'f' => 12,
            't' => 9,
            'n' => 10,
            'r' => 13,
            'v' => 11,
            'x' => self.hexadecimal().ok_or_else(invalid)?,
            '1'..='7'
                if !self
                    .rest
                    .peek()
                    .is_some_and(|next| matches!(next, '0'..='7')) =>
            {
                return Err(invalid());
            }
            '0'..='7' => {
                let mut code = u32::from(c) - u32::from('0');
                for _ in 0..2 {
                    if let Some(digit) = self.rest.next_if(|next| matches!(next, '0'..='7')) {
                        code = code * 8 + u32::from(digit) - u32::from('0');
                    }
                }
                code
            }
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => return Ok(c),
            _ => return Err(invalid()),
        };
        char::from_u32(code).ok_or_else(invalid)
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        let digits: String = if self.rest.next_if_eq(&'{').is_some() {
            self.rest.by_ref().take_while(|&c| c != '}').collect()
        } else {
            self.rest.by_ref().take(2).collect()
        };
        let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(&digits, 16)
            .ok()
            .filter(|_| is_hexadecimal)
    }

    fn quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(c);
        }
    }

    /// Parses `L` or `{Greek}`.
    fn group_name(&mut self) {
        let first = self.rest.next();
        self.out.extend(first);
        if first == Some('{') {
            for c in self.rest.by_ref() {
                self.out.push(c);
                if c == '}' {
                    return;
                }
            }
        }
    }

    fn class(&mut self) -> Result<(), SyntaxError> {
        let missing = || SyntaxError::new("missing closing ]");
        self.out.push('[');
        if let Some(not) = self.rest.next_if_eq(&'^') {
            self.out.push(not);
        }
        let mut is_first = true;
        loop {
            let c = self.rest.next().ok_or_else(missing)?;
            match c {
                ']' if !is_first => break,
                '[' if self.is_named_class() => {
                    self.out.push(c);
                    for c in self.rest.by_ref() {
                        self.out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
                '\\' if self.rest.peek().is_some_and(|c| "dDsSwWpP".contains(*c)) => {
                    self.escape(true)?;
                }
                _ => self.range(c)?,
            }
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// Whether `:name:]` follows.
    fn is_named_class(&self) -> bool {
        let rest: String = self.rest.clone().take_while(|&c| c != ']').collect();
        rest.len() > 1 && rest.starts_with(':') && rest.ends_with(':')
    }

    /// A single character of a class, or the range that starts with it.
    fn range(&mut self, first: char) -> Result<(), SyntaxError> {
        let low = self.class_character(first)?;
        self.literal(low);
        let mut ahead = self.rest.clone();
        let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
        if is_range {
            self.rest.next();
            let next = self.rest.next().unwrap_or_default();
            let high = self.class_character(next)?;
            if high < low {
                return Err(SyntaxError(format!(
                    "invalid character class range: `{low}-{high}`"
                )));
            }
            self.out.push('-');
            self.literal(high);
        }
        Ok(())
    }

    fn class_character(&mut self, c: char) -> Result<char, SyntaxError> {
        match c {
            '\\' => {
                let trailing = || SyntaxError::new("trailing backslash at end of expression");
                let c = self.rest.next().ok_or_else(trailing)?;
                self.character(c)
            }
            _ => Ok(c),
        }
    }

    /// `(?flags)`, `(?flags:`, `(?P<name>` and `(?<name>`.
    fn flags(&mut self) -> Result<(), SyntaxError> {
        self.out.push('(');
        self.out.extend(self.rest.next());
        let mut is_name = false;
        while let Some(&c) = self.rest.peek() {
            let ends = if is_name {
                c == '>'
            } else {
                matches!(c, ':' | ')')
            };
            is_name |= c == '<';
            if !is_name && !matches!(c, 'i' | 'm' | 's' | 'U' | '-' | 'P' | ':' | ')') {
                return Err(SyntaxError(format!(
                    "invalid or unsupported Perl syntax: `(?{c}`"
                )));
            }
            self.rest.next();
            self.out.push(c);
            if ends {
                break;
            }
        }
        Ok(())
    }

    /// Parses a repeat count in braces, if one follows; the opening brace is already consumed.
    fn count(&mut self) -> Option<String> {
        let mut ahead = self.rest.clone();
        let inner: String = ahead.by_ref().take_while(|&c| c != '}').collect();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_closed = self.rest.clone().any(|c| c == '}');
        let is_count = match inner.split_once(',') {
            Some((low, high)) => is_number(low) && (high.is_empty() || is_number(high)),
            None => is_number(&inner),
        };
        (is_closed && is_count).then(|| {
            self.rest = ahead;
            format!("{{{inner}}}")
        })
    }

    fn check_count(&self, count: &str) -> Result<(), SyntaxError> {
        let numbers = count.trim_matches(['{', '}']).split(',');
        for number in numbers.filter(|number| !number.is_empty()) {
            if number
                .parse::<u32>()
                .is_ok_and(|number| number <= MAX_REPEATS)
            {
                continue;
            }
            return Err(SyntaxError(format!("invalid repeat count: `{count}`")));
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        match c.is_alphanumeric() {
            true => self.out.push(c),
            false => self.write(format_args!("\\x{{{:X}}}", u32::from(c))),
        }
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.out
            .write_fmt(text)
            .expect("writing to a String cannot fail");
    }
}
