//! Columns in which equal neighbours stand once, as Arrow's run-end encoding has them.

use std::sync::Arc;

use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, RunArray, StringArray, UInt32Array,
};
use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// A value for each row, or for each run of rows.
#[derive(Clone, Debug)]
pub struct Runs<T> {
    values: Vec<T>,
    /// How many rows there are up to the end of each run.
    ends: Vec<i32>,
}

/// Text, or none, for each row.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    known: IndexSet<Box<[u8]>, RandomState>,
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

    /// A value for each row.
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

    /// The column; `values` makes Arrow's array of the values of the runs.
    pub fn array(&self, values: impl FnOnce(&[T]) -> ArrayRef) -> ArrayRef {
        run_array(&self.ends, &values(&self.values))
    }
}

impl Texts {
    /// The key of a text, by which it can be pushed.
    pub fn key(&mut self, text: &str) -> u32 {
        self.key_of_bytes(text.as_bytes())
    }

    fn key_of_bytes(&mut self, text: &[u8]) -> u32 {
        let row = match self.known.get_index_of(text) {
            Some(row) => row,
            None => self.known.insert_full(text.into()).0,
        };
        u32::try_from(row).expect("a table has far below 4 billion texts")
    }

    pub fn rows(&self) -> usize {
        self.runs.rows()
    }

    pub fn push(&mut self, text: Option<&str>) {
        self.push_rows(text, 1);
    }

    /// Bytes that need not be text, for columns of bytes alone.
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

    /// Has this text in the rows that have none.
    pub fn replace_none(&mut self, text: &str) {
        let key = self.key(text);
        let mut runs = Runs::default();
        let mut rows = 0;
        for (known, end) in self.runs.values.drain(..).zip(self.runs.ends.drain(..)) {
            runs.push_rows(known.or(Some(key)), end as usize - rows);
            rows = end as usize;
        }
        self.runs = runs;
    }

    pub fn has_some(&self) -> bool {
        self.runs.values.iter().any(Option::is_some)
    }

    /// Has none in the rows up to `rows`.
    pub fn fill(&mut self, rows: usize) {
        let missing = rows.saturating_sub(self.rows());
        self.runs.push_rows(None, missing);
    }

    /// The key of each row.
    pub fn keys(&self) -> Vec<Option<u32>> {
        self.runs.expanded()
    }

    /// Runs of keys of a dictionary of bytes.
    pub fn binary_runs(&self) -> ArrayRef {
        self.runs.array(|keys| self.binary_dictionary(keys))
    }

    /// A key of a dictionary of bytes for each row.
    pub fn binary(&self) -> ArrayRef {
        self.binary_dictionary(&self.runs.expanded())
    }

    /// Runs of keys of a dictionary of texts.
    pub fn text_runs(&self) -> ArrayRef {
        self.runs.array(|keys| self.text_dictionary(keys))
    }

    /// A key of a dictionary of texts for each row.
    pub fn text(&self) -> ArrayRef {
        self.text_dictionary(&self.runs.expanded())
    }

    /// Runs of texts without a dictionary.
    pub fn plain_runs(&self) -> ArrayRef {
        self.runs.array(|keys| {
            let text = |key: &Option<u32>| self.text_of(*key);
            Arc::new(keys.iter().map(text).collect::<StringArray>())
        })
    }

    fn binary_dictionary(&self, keys: &[Option<u32>]) -> ArrayRef {
        let texts = self.known.iter().map(|text| Some(&**text));
        dictionary(keys, Arc::new(texts.collect::<BinaryArray>()))
    }

    fn text_dictionary(&self, keys: &[Option<u32>]) -> ArrayRef {
        let texts = self.known.iter().map(|text| str::from_utf8(text).ok());
        dictionary(keys, Arc::new(texts.collect::<StringArray>()))
    }

    /// The text of a key.
    pub fn text_of(&self, key: Option<u32>) -> Option<&str> {
        let text = self.known.get_index(key? as usize)?;
        str::from_utf8(text).ok()
    }
}

fn run_array(ends: &[i32], values: &dyn Array) -> ArrayRef {
    let ends = Int32Array::from(ends.to_vec());
    let runs = RunArray::<Int32Type>::try_new(&ends, values);
    Arc::new(runs.expect("each run ends behind the one before"))
}

/// Keys with their dictionary.
pub fn dictionary(keys: &[Option<u32>], values: ArrayRef) -> ArrayRef {
    let keys = UInt32Array::from_iter(keys.iter().copied());
    let array = DictionaryArray::<UInt32Type>::try_new(keys, values);
    Arc::new(array.expect("each key was given out for a row of the dictionary"))
}
