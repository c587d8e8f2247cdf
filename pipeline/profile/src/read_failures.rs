//! Handles validated bytes that fail to decode.
//!
//! Validation and decoding use the same functions, so this is a bug in this crate. It loses the content of that batch,
//! but must not crash the process.

use std::sync::atomic::{AtomicU64, Ordering};

static READ_FAILURES: AtomicU64 = AtomicU64::new(0);

/// Number of batches in this process that passed validation but failed to decode.
pub fn read_failures() -> u64 {
    READ_FAILURES.load(Ordering::Relaxed)
}

/// Something read from validated bytes; an empty value if that failed.
pub(crate) struct Decoded<T> {
    pub value: T,
    pub has_failed: bool,
}

impl<T: Default> Decoded<T> {
    /// Logs and counts a failure.
    pub fn of<E: std::fmt::Display>(part: &'static str, read: Result<T, E>) -> Self {
        match read {
            Ok(value) => Self::from(value),
            Err(error) => {
                READ_FAILURES.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    part,
                    %error,
                    "Failed to decode a validated batch; the part is dropped. This is a bug in profcol: please report it."
                );
                Self {
                    value: T::default(),
                    has_failed: true,
                }
            }
        }
    }
}

impl<T> From<T> for Decoded<T> {
    fn from(value: T) -> Self {
        Self {
            value,
            has_failed: false,
        }
    }
}
