//! An anchored regular expression.
//!
//! Most patterns in use are a few literals, or literals with wildcards after or between them. These are compared
//! directly, without running a regular expression; any other pattern is first checked for its literal prefix.

use std::borrow::Cow;

use regex_automata::meta::Regex;
use regex_automata::util::captures::GroupInfo;
use regex_automata::{Input, PatternID};

use super::groups::{FEW, Groups};
use super::parts::{Parts, is_plain};
use super::syntax;
use super::template::Template;

#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// `a|b` or `(a|b)`.
    Words { words: Vec<String>, is_group: bool },
    /// Literals with wildcards after, before or between them.
    Parts(Parts),
    /// Anything with this prefix.
    Other { start: String },
}

impl Pattern {
    pub fn new(regex: &str) -> Result<Self, syntax::SyntaxError> {
        let anchored = syntax::translated(&format!("^(?s:{regex})$"))?;
        let compiled = Regex::new(&anchored).map_err(|error| syntax::SyntaxError::of(&error))?;
        Ok(Self {
            regex: compiled,
            shape: Shape::of(regex),
        })
    }

    pub fn matches(&self, text: &str) -> bool {
        match &self.shape {
            Shape::Words { words, .. } => words.iter().any(|word| word == text),
            Shape::Parts(parts) => parts.find(text).is_some(),
            Shape::Other { start } => text.starts_with(start) && self.regex.is_match(text),
        }
    }

    pub fn groups(&self, text: &str) -> Option<Groups> {
        match &self.shape {
            Shape::Words { is_group, .. } => self.matches(text).then_some(Groups::Spans([
                Some(0..text.len()),
                is_group.then_some(0..text.len()),
                None,
                None,
            ])),
            Shape::Parts(parts) => Some(Groups::Spans(parts.groups(parts.find(text)?, text))),
            Shape::Other { start } => match text.starts_with(start) {
                true => self.search(text),
                false => None,
            },
        }
    }

    /// Go's `ReplaceAllString`: a pattern with an unbalanced bracket may match parts of a text.
    pub fn replace_all(&self, text: &str, template: &Template) -> String {
        if let Shape::Words { .. } | Shape::Parts(_) = &self.shape {
            let groups = self.groups(text);
            return groups.map_or(text.to_owned(), |groups| {
                template.filled(&Cow::Borrowed(text), &groups).into_owned()
            });
        }
        let mut replaced = String::new();
        let mut end = 0;
        for captures in self.regex.captures_iter(text) {
            let slots = captures.slots().to_vec();
            let whole = captures.get_match().map_or(end..end, |it| it.range());
            replaced.push_str(text.get(end..whole.start).unwrap_or_default());
            replaced.push_str(&template.filled(&Cow::Borrowed(text), &Groups::Many(slots)));
            end = whole.end;
        }
        replaced.push_str(text.get(end..).unwrap_or_default());
        replaced
    }

    pub fn group_info(&self) -> &GroupInfo {
        self.regex.group_info()
    }

    fn search(&self, text: &str) -> Option<Groups> {
        let count = 2 * self.group_info().group_len(PatternID::ZERO);
        let input = Input::new(text);
        if count <= 2 * FEW {
            let mut slots = [None; 2 * FEW];
            let own = slots.get_mut(..count)?;
            self.regex.search_slots(&input, own)?;
            return Some(Groups::Few(slots));
        }
        let mut slots = vec![None; count];
        self.regex.search_slots(&input, &mut slots)?;
        Some(Groups::Many(slots))
    }
}

// === impl Shape ===

impl Shape {
    fn of(regex: &str) -> Self {
        let (inner, is_group) = match regex.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
            Some(inner) => (inner, true),
            None => (regex, false),
        };
        if inner.chars().all(|c| is_plain(c) || c == '|') {
            let words = inner.split('|').map(str::to_owned).collect();
            return Shape::Words { words, is_group };
        }
        if let Some(parts) = Parts::of(regex) {
            return Shape::Parts(parts);
        }
        let end = regex.find(|c| !is_plain(c)).unwrap_or(regex.len());
        let (start, rest) = regex.split_at(end);
        // Alternatives may start differently, and a repeat count applies to the last character.
        let start = match rest.chars().next() {
            _ if rest.contains('|') => "",
            Some('*' | '?' | '{' | '+') => start.strip_suffix(|_: char| true).unwrap_or_default(),
            _ => start,
        };
        Shape::Other {
            start: start.to_owned(),
        }
    }
}
