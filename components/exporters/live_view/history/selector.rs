//! Label selectors as Prometheus writes them: `{comm="nginx", pid=~"1.*"}`.

use std::borrow::Cow;

use profcol_labels::{Place, attribute_of, sanitized};
use regex::Regex;

#[derive(Clone, Debug, Default)]
pub(in crate::live_view) struct Selector(Vec<Matcher>);

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
pub(in crate::live_view) enum SelectorError {
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
/// Memory that a regular expression may take once it is compiled.
const MAX_REGEX_BYTES: usize = 1 << 20;

impl Selector {
    /// One label with this very value.
    pub fn equals(label: &str, value: &str) -> Self {
        Self(vec![Matcher {
            label: label_name(label).into_owned(),
            test: Test::Equals(value.to_owned()),
            is_negated: false,
        }])
    }

    /// With or without braces; an empty one matches everything.
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

    /// What is still to be tested where `label` has this value; `None` where it does not fit.
    pub fn given(self, label: &str, value: &str) -> Option<Self> {
        let (of_label, others): (Vec<Matcher>, Vec<Matcher>) =
            self.0.into_iter().partition(|it| it.label == label);
        let fits = of_label.iter().all(|matcher| matcher.fits(value));
        fits.then_some(Self(others))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value` gives the text of a label; one that is not there is empty, as in Prometheus.
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
                // Matched whole, as in Prometheus.
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

/// The name under which a label is kept: that of its attribute, also where Parca's agent has another for it.
pub(super) fn label_name(name: &str) -> Cow<'_, str> {
    match attribute_of(name, Place::Resource) {
        Some(attribute) => sanitized(attribute),
        None if name == "pid" => Cow::Borrowed("process_pid"),
        None => Cow::Borrowed(name),
    }
}

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// The text in quotes at the beginning, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    let quote = characters.next().filter(|it| QUOTES.contains(it))?;
    while let Some(character) = characters.next() {
        match character {
            end if end == quote => return Some((value, characters.as_str())),
            // Between these nothing is escaped.
            other if quote == '`' => value.push(other),
            '\\' => match characters.next()? {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escaped @ ('"' | '\'' | '\\') => value.push(escaped),
                // Of a regular expression.
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}
