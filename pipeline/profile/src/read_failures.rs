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

/// The value, or an empty one on failure.
pub(crate) fn or_default<T: Default, E: std::fmt::Display>(
    part: &'static str,
    read: Result<T, E>,
) -> T {
    read.unwrap_or_else(|error| {
        READ_FAILURES.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            part,
            %error,
            "Failed to decode a validated batch; the part is dropped. This is a bug in profcol: please report it."
        );
        T::default()
    })
}
