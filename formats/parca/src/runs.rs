//! Run-end encoded columns, which store equal adjacent values once.

use std::sync::Arc;

use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, RunArray, StringArray, UInt32Array,
};
use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// One value per row, stored as runs of equal rows.
#[derive(Clone, Debug)]
pub struct Runs<T> {
    values: Vec<T>,
    /// The end row of each run.
    ends: Vec<i32>,
}

/// An optional string per row.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    entries: IndexSet<Box<[u8]>, RandomState>,
    runs: Runs<Option<u32>>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<T: PartialEq> Runs<T> {
    pub fn rows(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    /// Appends a row.
    pub fn push(&mut self, value: T) {
        self.push_rows(value, 1);
    }

    pub fn push_rows(&mut self, value: T, rows: usize) {
        if rows == 0 {
            return;
        }
        let end = i32::try_from(self.rows() + rows).expect("a table has far below 2 billion rows");
        if self.values.last() == Some(&value)
            && let Some(last) = self.ends.last_mut()
        {
            *last = end;
            return;
        }
        self.values.push(value);
        self.ends.push(end);
    }

    /// One value per row.
    pub fn expanded(&self) -> Vec<T>
    where
        T: Clone,
    {
        let mut rows = Vec::with_capacity(self.rows());
        for (value, &end) in self.values.iter().zip(&self.ends) {
            rows.resize(end as usize, value.clone());
        }
        rows
    }

    /// The Arrow column; `values` creates the array of the run values.
    pub fn array(&self, values: impl FnOnce(&[T]) -> ArrayRef) -> ArrayRef {
        run_array(&self.ends, &values(&self.values))
    }
}

impl Texts {
    /// The key of a text, for pushing it repeatedly.
    pub fn key(&mut self, text: &str) -> u32 {
        self.key_of_bytes(text.as_bytes())
    }

    fn key_of_bytes(&mut self, text: &[u8]) -> u32 {
        let row = match self.entries.get_index_of(text) {
            Some(row) => row,
            None => self.entries.insert_full(text.into()).0,
        };
        u32::try_from(row).expect("a table has far below 4 billion texts")
    }

    pub fn rows(&self) -> usize {
        self.runs.rows()
    }

    pub fn push(&mut self, text: Option<&str>) {
        self.push_rows(text, 1);
    }

    /// Arbitrary bytes, for binary columns only.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let key = self.key_of_bytes(bytes);
        self.push_key(Some(key));
    }

    pub fn push_key(&mut self, key: Option<u32>) {
        self.runs.push(key);
    }

    pub fn push_rows(&mut self, text: Option<&str>, rows: usize) {
        let key = text.map(|text| self.key(text));
        self.runs.push_rows(key, rows);
    }

    /// Replaces missing values with this text.
    pub fn replace_none(&mut self, text: &str) {
        let key = self.key(text);
        let mut runs = Runs::default();
        let mut rows = 0;
        for (value, end) in self.runs.values.drain(..).zip(self.runs.ends.drain(..)) {
            runs.push_rows(value.or(Some(key)), end as usize - rows);
            rows = end as usize;
        }
        self.runs = runs;
    }

    pub fn has_some(&self) -> bool {
        self.runs.values.iter().any(Option::is_some)
    }

    /// Pads with missing values up to `rows`.
    pub fn fill(&mut self, rows: usize) {
        let missing = rows.saturating_sub(self.rows());
        self.runs.push_rows(None, missing);
    }

    /// The key of each row.
    pub fn keys(&self) -> Vec<Option<u32>> {
        self.runs.expanded()
    }

    /// Runs of keys into a dictionary of bytes.
    pub fn binary_runs(&self) -> ArrayRef {
        self.runs.array(|keys| self.binary_dictionary(keys))
    }

    /// One key per row into a dictionary of bytes.
    pub fn binary(&self) -> ArrayRef {
        self.binary_dictionary(&self.runs.expanded())
    }

    /// Runs of keys into a dictionary of strings.
    pub fn text_runs(&self) -> ArrayRef {
        self.runs.array(|keys| self.text_dictionary(keys))
    }

    /// One key per row into a dictionary of strings.
    pub fn text(&self) -> ArrayRef {
        self.text_dictionary(&self.runs.expanded())
    }

    /// Runs of strings without a dictionary.
    pub fn plain_runs(&self) -> ArrayRef {
        self.runs.array(|keys| {
            let text = |key: &Option<u32>| self.text_of(*key);
            Arc::new(keys.iter().map(text).collect::<StringArray>())
        })
    }

    fn binary_dictionary(&self, keys: &[Option<u32>]) -> ArrayRef {
        let texts = self.entries.iter().map(|text| Some(&**text));
        dictionary(keys, Arc::new(texts.collect::<BinaryArray>()))
    }

    fn text_dictionary(&self, keys: &[Option<u32>]) -> ArrayRef {
        let texts = self.entries.iter().map(|text| str::from_utf8(text).ok());
        dictionary(keys, Arc::new(texts.collect::<StringArray>()))
    }

    /// The text of a key.
    pub fn text_of(&self, key: Option<u32>) -> Option<&str> {
        let text = self.entries.get_index(key? as usize)?;
        str::from_utf8(text).ok()
    }
}

fn run_array(ends: &[i32], values: &dyn Array) -> ArrayRef {
    let ends = Int32Array::from(ends.to_vec());
    let runs = RunArray::<Int32Type>::try_new(&ends, values);
    Arc::new(runs.expect("run ends are ascending"))
}

/// Keys with their dictionary.
pub fn dictionary(keys: &[Option<u32>], values: ArrayRef) -> ArrayRef {
    let keys = UInt32Array::from_iter(keys.iter().copied());
    let array = DictionaryArray::<UInt32Type>::try_new(keys, values);
    Arc::new(array.expect("each key refers to a row of the dictionary"))
}
