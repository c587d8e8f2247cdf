//! A frame of a function in its source code, and how the runtime runs it.

use std::borrow::Cow;

/// How a runtime runs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Interpreted,
    /// Compiled at run time.
    Jit,
    /// Compiled ahead of time.
    Aot,
}

/// A frame of a function with its source position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame<'a> {
    pub name: Cow<'a, str>,
    /// Empty if it has none.
    pub file: Cow<'a, str>,
    /// 0 if unknown, as for `line`.
    pub first_line: u32,
    pub line: u32,
}

impl Execution {
    /// The value of `profcol.frame.code`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interpreted => "interpreted",
            Self::Jit => "jit",
            Self::Aot => "aot",
        }
    }
}
