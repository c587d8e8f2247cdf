//! A regular expression that a whole text has to match.

use regex::{Captures, Regex};

use super::REGEX;
use super::syntax;
use super::template::Template;

#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    /// Prometheus' default, which takes everything.
    is_default: bool,
}

/// What the groups of a pattern matched.
pub enum Groups<'t> {
    /// The one group of the default, and the whole.
    All(&'t str),
    Of(Captures<'t>),
}

impl Pattern {
    pub fn new(regex: &str) -> Result<Self, syntax::Refused> {
        let anchored = syntax::translated(&format!("^(?s:{regex})$"))?;
        let compiled = Regex::new(&anchored).map_err(|error| syntax::Refused::of(&error))?;
        Ok(Self {
            regex: compiled,
            is_default: regex == REGEX,
        })
    }

    pub fn matches(&self, text: &str) -> bool {
        self.is_default || self.regex.is_match(text)
    }

    pub fn groups<'t>(&self, text: &'t str) -> Option<Groups<'t>> {
        match self.is_default {
            true => Some(Groups::All(text)),
            false => self.regex.captures(text).map(Groups::Of),
        }
    }

    pub fn replace_all(&self, text: &str, template: &Template) -> String {
        let fill = |groups: &Captures<'_>| template.filled_with(groups);
        self.regex.replace_all(text, fill).into_owned()
    }

    /// How many groups there are, the whole included.
    pub fn group_count(&self) -> usize {
        self.regex.captures_len()
    }

    pub fn group_named(&self, name: &str) -> Option<usize> {
        let mut names = self.regex.capture_names();
        names.position(|known| known == Some(name))
    }
}

impl<'t> Groups<'t> {
    pub fn get(&self, group: usize) -> &str {
        match self {
            Groups::All(text) if group <= 1 => text,
            Groups::All(_) => "",
            Groups::Of(groups) => groups.get(group).map_or("", |found| found.as_str()),
        }
    }
}
