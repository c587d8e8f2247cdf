//! Limits that all processes and files share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A part of a total that has a limit, until it is dropped.
#[derive(Debug)]
pub struct Reserved {
    of: &'static AtomicUsize,
    amount: usize,
}

impl Reserved {
    pub fn take(of: &'static AtomicUsize, amount: usize, limit: usize) -> Option<Self> {
        let add = |used: usize| used.checked_add(amount).filter(|used| *used <= limit);
        of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(Self { of, amount })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.of.fetch_sub(self.amount, Ordering::Relaxed);
    }
}
