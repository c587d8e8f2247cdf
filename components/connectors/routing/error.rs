//! Why a text is not a supported condition.

/// Bound of the text of a condition.
pub(super) const MAX_LENGTH: usize = 4096;

/// Bound of nested parentheses and negations.
pub(super) const MAX_DEPTH: usize = 32;

/// What a condition may contain, for error messages.
const SUPPORTED: &str = "supported are `attributes[\"key\"]` or `resource.attributes[\"key\"]` compared by `==` or `!=` with a \
     string, number, boolean or nil, `IsMatch(attributes[\"key\"], \"regex\")`, `and`, `or`, `not` and parentheses";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConditionError {
    #[error("longer than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("character {position}: more than {MAX_DEPTH} nested parentheses and negations")]
    TooDeep { position: usize },
    #[error("character {position}: expected {expected}, found {found}")]
    Unexpected {
        position: usize,
        expected: &'static str,
        found: String,
    },
    #[error("character {position}: {reason}")]
    BadText { position: usize, reason: String },
}

impl ConditionError {
    /// How to fix it.
    pub fn help(&self) -> String {
        match self {
            Self::TooLong | Self::TooDeep { .. } => {
                "split it into several routes with the same pipelines".to_owned()
            }
            Self::Unexpected { .. } | Self::BadText { .. } => SUPPORTED.to_owned(),
        }
    }
}
