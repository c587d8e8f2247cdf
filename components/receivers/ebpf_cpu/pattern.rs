//! Patterns of the rules for processes.

use regex::Regex;

const REGEX: &str = "regex:";

/// A pattern for `comm`, `executable` and `cgroup`.
#[derive(Debug)]
pub enum Pattern {
    Glob(glob::Pattern),
    Regex(Regex),
}

#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("invalid glob pattern: {0}")]
    Glob(#[from] glob::PatternError),
    #[error("invalid regular expression: {0}")]
    Regex(#[from] regex::Error),
}

impl Pattern {
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Ok(match text.strip_prefix(REGEX) {
            Some(regex) => Self::Regex(Regex::new(regex)?),
            None => Self::Glob(glob::Pattern::new(text)?),
        })
    }

    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(text),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

/// Returns why the pattern is invalid.
pub fn check_pattern(text: &str) -> Result<(), PatternError> {
    Pattern::new(text).map(drop)
}
