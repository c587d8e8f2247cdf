//! Label selectors in Prometheus syntax: `{comm="nginx", pid=~"1.*"}`.

use std::borrow::Cow;

use profcol_labels::{LabelSource, attribute_of, sanitized};
use regex::Regex;

#[derive(Clone, Debug, Default)]
pub struct Selector(Vec<Matcher>);

#[derive(Clone, Debug)]
struct Matcher {
    label: String,
    test: Test,
    is_negated: bool,
}

#[derive(Clone, Debug)]
enum Test {
    Equals(String),
    Matches(Regex),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("the selector is not closed: add `}}` at its end")]
    NotClosed,
    #[error(
        "{0:?} is not a matcher such as comm=\"nginx\", pid!=\"1\", comm=~\"ngi.*\" or comm!~\"ngi.*\""
    )]
    Matcher(String),
    #[error("the value of {0:?} must be in quotes")]
    Quotes(String),
    #[error("the regular expression of {label:?} is not valid: {reason}")]
    Regex { label: String, reason: String },
    #[error("the selector has more than {MAX_MATCHERS} matchers")]
    TooMany,
}

const MAX_MATCHERS: usize = 32;
/// Maximum size of a compiled regular expression.
const MAX_REGEX_BYTES: usize = 1 << 20;

impl Selector {
    /// Matches one label with exactly this value.
    pub fn equals(label: &str, value: &str) -> Self {
        Self(vec![Matcher {
            label: label_name(label).into_owned(),
            test: Test::Equals(value.to_owned()),
            is_negated: false,
        }])
    }

    /// Parses a selector with or without braces; an empty one matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let text = text.trim();
        let mut rest = match text.strip_prefix('{') {
            Some(inner) => inner.strip_suffix('}').ok_or(SelectorError::NotClosed)?,
            None => text,
        };
        let mut matchers = Vec::new();
        loop {
            rest = rest.trim_start_matches([',', ' ', '\t', '\n']);
            if rest.is_empty() {
                return Ok(Self(matchers));
            }
            if matchers.len() == MAX_MATCHERS {
                return Err(SelectorError::TooMany);
            }
            let (matcher, behind) = Matcher::parse(rest)?;
            matchers.push(matcher);
            rest = behind.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(SelectorError::Matcher(rest.to_owned()));
            }
        }
    }

    /// The remaining matchers if `label` has this value; `None` if it does not match.
    pub fn given(self, label: &str, value: &str) -> Option<Self> {
        let (of_label, others): (Vec<Matcher>, Vec<Matcher>) =
            self.0.into_iter().partition(|it| it.label == label);
        let fits = of_label.iter().all(|matcher| matcher.fits(value));
        fits.then_some(Self(others))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it tests this label.
    pub(super) fn names(&self, label: &str) -> bool {
        self.0.iter().any(|matcher| matcher.label == label)
    }

    /// `value` returns the value of a label; a missing label is empty, as in Prometheus.
    pub fn matches<'a>(&self, value: impl Fn(&str) -> &'a str) -> bool {
        self.0
            .iter()
            .all(|matcher| matcher.fits(value(&matcher.label)))
    }
}

impl Matcher {
    fn fits(&self, value: &str) -> bool {
        let fits = match &self.test {
            Test::Equals(text) => text == value,
            Test::Matches(regex) => regex.is_match(value),
        };
        fits != self.is_negated
    }

    fn parse(text: &str) -> Result<(Self, &str), SelectorError> {
        let wrong = || SelectorError::Matcher(text.to_owned());
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let end = text.find(|it| !is_name(it)).ok_or_else(wrong)?;
        let (label, rest) = text.split_at(end);
        let rest = rest.trim_start();
        let operators = [
            ("=~", true, false),
            ("!~", true, true),
            ("!=", false, true),
            ("=", false, false),
        ];
        let found = operators
            .into_iter()
            .find_map(|(operator, is_regex, is_negated)| {
                Some((rest.strip_prefix(operator)?, is_regex, is_negated))
            });
        let (rest, is_regex, is_negated) = found.ok_or_else(wrong)?;
        if label.is_empty() {
            return Err(wrong());
        }
        let (value, rest) =
            quoted(rest.trim_start()).ok_or_else(|| SelectorError::Quotes(label.to_owned()))?;
        let test = match is_regex {
            false => Test::Equals(value),
            true => {
                // Anchored, as in Prometheus.
                let regex = regex::RegexBuilder::new(&format!("^(?s:{value})$"))
                    .size_limit(MAX_REGEX_BYTES)
                    .build();
                Test::Matches(regex.map_err(|error| SelectorError::Regex {
                    label: label.to_owned(),
                    reason: error.to_string(),
                })?)
            }
        };
        let matcher = Self {
            label: label_name(label).into_owned(),
            test,
            is_negated,
        };
        Ok((matcher, rest))
    }
}

/// The stored name of a label: its attribute's, also for the names of Parca Agent.
pub(super) fn label_name(name: &str) -> Cow<'_, str> {
    match attribute_of(name, LabelSource::Resource) {
        Some(attribute) => sanitized(attribute),
        None if name == "pid" => Cow::Borrowed("process_pid"),
        None => Cow::Borrowed(name),
    }
}

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// The quoted text at the start, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    let quote = characters.next().filter(|it| QUOTES.contains(it))?;
    while let Some(character) = characters.next() {
        match character {
            end if end == quote => return Some((value, characters.as_str())),
            // Backquoted text has no escapes.
            other if quote == '`' => value.push(other),
            '\\' => match characters.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escaped @ ('"' | '\'' | '\\') => value.push(escaped),
                // An escape of a regular expression.
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}
