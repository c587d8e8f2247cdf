//! Table metadata for checking references to its rows.

use std::collections::BTreeMap;

use super::invalid::{Fault, Invalid, Reason, WithPath};
use crate::Idx;

/// A table whose rows were checked.
pub(super) struct Known<T: ?Sized> {
    /// The name in messages.
    name: &'static str,
    /// Rows on the wire.
    rows: u32,
    /// Rows that must not be referenced; only filled in repair.
    bad: BTreeMap<u32, Reason>,
    marker: std::marker::PhantomData<fn(&T)>,
}

impl<T: ?Sized> Known<T> {
    pub fn new(name: &'static str, rows: u32) -> Self {
        Self {
            name,
            rows,
            bad: BTreeMap::new(),
            marker: std::marker::PhantomData,
        }
    }

    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    pub fn mark_bad(&mut self, row: usize, why: Reason) {
        self.bad.insert(row as u32, why);
    }

    #[inline(always)]
    pub fn check(&self, index: Idx<T>) -> Result<(), Fault> {
        if index.get() < self.rows && self.bad.is_empty() {
            return Ok(());
        }
        self.check_closely(index)
    }

    #[cold]
    #[inline(never)]
    fn check_closely(&self, index: Idx<T>) -> Result<(), Fault> {
        let index = index.get();
        if let Some(&why) = self.bad.get(&index) {
            return Err(Fault::BadRow { index, why });
        }
        // Row 0, "not set", exists even in an omitted table.
        if index < self.rows.max(1) {
            return Ok(());
        }
        Err(Fault::OutOfRange {
            index: index.cast_signed(),
            table: self.name,
            rows: self.rows,
        })
    }

    /// Checks all items of the field `list`.
    #[inline(always)]
    pub fn check_list(&self, items: &[Idx<T>], list: &'static str) -> Result<(), Invalid> {
        let highest = items
            .iter()
            .fold(0, |highest, item| item.get().max(highest));
        if highest < self.rows && self.bad.is_empty() {
            return Ok(());
        }
        self.check_list_closely(items, list)
    }

    #[cold]
    #[inline(never)]
    fn check_list_closely(&self, items: &[Idx<T>], list: &'static str) -> Result<(), Invalid> {
        for (position, &item) in items.iter().enumerate() {
            self.check_closely(item).item(list, position)?;
        }
        Ok(())
    }
}
