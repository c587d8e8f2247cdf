//! How much memory a file may still ask for while it is read.

use super::read::Problem;

/// Counts down from the limit. Rows of two bytes become rows of fifty, and what stands in the
/// file once can be referred to any number of times.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Sets memory aside for good.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        self.check(bytes)?;
        self.left -= bytes;
        Ok(())
    }

    /// Whether there would be that much left, for what is used again and again.
    pub fn check(&self, bytes: usize) -> Result<(), Problem> {
        if bytes > self.left {
            return Err(Problem::TooMuch { limit: self.limit });
        }
        Ok(())
    }
}
