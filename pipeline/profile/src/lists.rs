//! A column of lists: all items in one vector, and the end of each list.

use std::ops::Range;

/// Lists of `T`, stored end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists<T> {
    ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self {
            ends: Vec::new(),
            items: Vec::new(),
        }
    }
}

impl<T: Copy> Lists<T> {
    pub fn with_capacity(lists: usize, items: usize) -> Self {
        Self {
            ends: Vec::with_capacity(lists),
            items: Vec::with_capacity(items),
        }
    }

    /// Reserves capacity for more lists and their items.
    pub fn reserve(&mut self, lists: usize, items: usize) {
        self.ends.reserve(lists);
        self.items.reserve(items);
    }

    /// Removes all lists but keeps the capacity.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.items.clear();
    }

    /// Number of lists.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All items of all lists.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    pub fn items_mut(&mut self) -> &mut [T] {
        &mut self.items
    }

    pub fn push(&mut self, list: &[T]) {
        self.items.extend_from_slice(list);
        self.close();
    }

    /// Adds an item to the list ended by the next [`close`](Self::close).
    pub fn push_item(&mut self, item: T) {
        self.items.push(item);
    }

    /// Ends the current list, which may be empty.
    pub fn close(&mut self) {
        let end = u32::try_from(self.items.len()).expect("a batch is far below 4 billion items");
        self.ends.push(end);
    }

    /// The list at `row`; empty if out of range.
    #[inline(always)]
    pub fn get(&self, row: usize) -> &[T] {
        let Some(&end) = self.ends.get(row) else {
            return &[];
        };
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.items[start as usize..end as usize]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[T]> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Appends lists of another column, translating each item.
    pub(crate) fn extend_mapped(&mut self, other: &Self, rows: Range<usize>, map: impl Fn(T) -> T) {
        let Some(ends) = other.ends.get(rows.clone()) else {
            return;
        };
        let Some(&last) = ends.last() else {
            return;
        };
        let first = if rows.start == 0 {
            0
        } else {
            other.ends[rows.start - 1]
        };
        let base = u32::try_from(self.items.len() + (last - first) as usize)
            .expect("a batch is far below 4 billion items")
            - (last - first);
        let items = &other.items[first as usize..last as usize];
        self.items.extend(items.iter().map(|&item| map(item)));
        self.ends.extend(ends.iter().map(|end| end - first + base));
    }
}
