//! The name of a function.

use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Name {
    /// The linkage name if there is one; empty without any name.
    pub text: Arc<str>,
    /// The line of the declaration.
    pub line: u32,
}
