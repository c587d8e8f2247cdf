//! Limits that all processes and files share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of all tables of methods that were compiled ahead of time. The framework's have some MiB.
const MAX_TABLE_BYTES: usize = 64 << 20;

static TABLE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Reserves memory for a table of methods; None if there are too many.
pub fn table_memory(bytes: usize) -> Option<BudgetShare> {
    let reserved = BudgetShare::take(&TABLE_BYTES, bytes, MAX_TABLE_BYTES);
    if reserved.is_none() {
        tracing::debug!(
            limit = MAX_TABLE_BYTES,
            "too many methods in .NET assemblies"
        );
    }
    reserved
}

/// A part of a total that has a limit, until it is dropped.
#[derive(Debug)]
pub struct BudgetShare {
    of: &'static AtomicUsize,
    amount: usize,
}

impl BudgetShare {
    pub fn take(of: &'static AtomicUsize, amount: usize, limit: usize) -> Option<Self> {
        let add = |used: usize| used.checked_add(amount).filter(|used| *used <= limit);
        of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(Self { of, amount })
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.of.fetch_sub(self.amount, Ordering::Relaxed);
    }
}
