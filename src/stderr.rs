//! What is said beside the log.

use std::io::Write;

/// Whoever does not look at it need not have it: nothing fails where the terminal or the reader is gone.
pub fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
