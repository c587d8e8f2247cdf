//! The remaining memory budget while a file is read.

use super::error::Problem;

/// Counts down from the limit. Two bytes of a file can become a row of fifty, and other rows can refer to it any number
/// of times.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Deducts memory permanently.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        self.check(bytes)?;
        self.left -= bytes;
        Ok(())
    }

    /// Checks that the memory is available, without deducting it: for buffers that are reused.
    pub fn check(&self, bytes: usize) -> Result<(), Problem> {
        if bytes > self.left {
            return Err(Problem::TooMuch { limit: self.limit });
        }
        Ok(())
    }
}
