//! Tables of a new file with unique rows.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use profcol_profile::Lists;

/// Finds existing rows by hash.
#[derive(Default)]
struct Index {
    rows: HashTable<u32>,
    hasher: RandomState,
}

/// Fixed-size rows.
pub(super) struct Rows<T> {
    rows: Vec<T>,
    index: Index,
}

/// Variable-length rows.
pub(super) struct ListRows<T> {
    lists: Lists<T>,
    index: Index,
}

impl Index {
    /// The row that holds `value`, or `Err(next)` if the caller has to add it there.
    fn find_or_add<'a, V: Hash + Eq + ?Sized + 'a>(
        &mut self,
        value: &V,
        next: usize,
        row_at: impl Fn(usize) -> &'a V,
    ) -> Result<u32, u32> {
        let hash = self.hasher.hash_one(value);
        let same = |row: &u32| row_at(*row as usize) == value;
        if let Some(row) = self.rows.find(hash, same) {
            return Ok(*row);
        }
        let next = u32::try_from(next).expect("builders and files stay below 4 billion rows");
        let hasher = &self.hasher;
        self.rows
            .insert_unique(hash, next, |row| hasher.hash_one(row_at(*row as usize)));
        Err(next)
    }

    fn heap_size(&self) -> usize {
        self.rows.capacity() * (size_of::<u32>() + 1)
    }
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            index: Index::default(),
        }
    }
}

impl<T: Hash + Eq> Rows<T> {
    pub fn intern(&mut self, row: T) -> u32 {
        let rows = &self.rows;
        let index = self.index.find_or_add(&row, rows.len(), |at| &rows[at]);
        index.unwrap_or_else(|added| {
            self.rows.push(row);
            added
        })
    }
}

impl<T> Rows<T> {
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn heap_size(&self) -> usize {
        self.rows.capacity() * size_of::<T>() + self.index.heap_size()
    }
}

impl<T> Default for ListRows<T> {
    fn default() -> Self {
        Self {
            lists: Lists::default(),
            index: Index::default(),
        }
    }
}

impl<T: Hash + Eq + Copy> ListRows<T> {
    pub fn intern(&mut self, list: &[T]) -> u32 {
        let lists = &self.lists;
        let index = self
            .index
            .find_or_add(list, lists.len(), |at| lists.get(at));
        index.unwrap_or_else(|added| {
            self.lists.push(list);
            added
        })
    }

    pub fn get(&self, row: u32) -> &[T] {
        self.lists.get(row as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[T]> {
        (0..self.lists.len()).map(|row| self.lists.get(row))
    }

    pub fn heap_size(&self) -> usize {
        let lists = self.lists.len() * size_of::<u32>();
        lists + size_of_val(self.lists.items()) + self.index.heap_size()
    }
}
