//! A frame of an address.

use std::sync::Arc;

/// A function at an address, possibly inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The linkage name; empty if only the line is known.
    pub name: Arc<str>,
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    /// The line of the function's declaration.
    pub start_line: u32,
}
