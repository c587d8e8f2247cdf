//! Messages to stderr outside the log.

use std::io::Write;

/// Prints to stderr. A closed terminal or pipe is not an error.
pub fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
