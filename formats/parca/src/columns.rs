//! Reads columns of unknown type.

use std::sync::Arc;

use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Int64Array, ListArray,
    RecordBatch, RunArray, StringArray, StringViewArray, StructArray, TimestampNanosecondArray,
    UInt32Array, UInt64Array,
};

use crate::error::RecordError;

/// The columns of a batch by name.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    batch: &'a RecordBatch,
}

/// A column and its path.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    array: &'a dyn Array,
    outer: &'a str,
    name: &'a str,
}

/// A run-end encoded column.
#[derive(Clone, Copy)]
pub struct RunColumn<'a> {
    column: Column<'a>,
    ends: &'a [i32],
    values: &'a dyn Array,
}

/// The fields of a struct column.
#[derive(Clone, Copy)]
pub struct StructColumn<'a> {
    array: &'a StructArray,
    name: &'a str,
}

/// An optional byte string for each row.
#[derive(Clone, Debug, Default)]
pub struct Keyed {
    values: Vec<Box<[u8]>>,
    keys: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Keyed {
    pub fn bytes(&self, row: usize) -> Option<&[u8]> {
        let key = *self.keys.get(row)?;
        Some(self.values.get(key as usize)?)
    }

    /// Replaces invalid UTF-8.
    pub fn text(&self, row: usize) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(row).unwrap_or_default())
    }

    /// Equal for rows with the same value, unless the dictionary contains duplicates.
    pub fn key(&self, row: usize) -> u32 {
        self.keys.get(row).copied().unwrap_or(NONE)
    }

    pub fn rows(&self) -> usize {
        self.keys.len()
    }

    /// All values in use, in the order of their first rows.
    pub fn used(&self) -> Vec<&[u8]> {
        let mut is_used = vec![false; self.values.len()];
        let mut used = Vec::new();
        for &key in &self.keys {
            let (Some(is_used), Some(value)) =
                (is_used.get_mut(key as usize), self.values.get(key as usize))
            else {
                continue;
            };
            if !std::mem::replace(is_used, true) {
                used.push(&**value);
            }
        }
        used
    }
}

impl<'a> Columns<'a> {
    pub fn new(batch: &'a RecordBatch) -> Self {
        Self { batch }
    }

    pub fn column(&self, name: &'a str) -> Result<Column<'a>, RecordError> {
        let column = self.batch.column_by_name(name);
        let column = column.ok_or_else(|| RecordError::Missing {
            column: name.to_owned(),
        })?;
        Ok(Column {
            array: column,
            outer: "",
            name,
        })
    }

    pub fn all(&self) -> impl Iterator<Item = Column<'a>> {
        let schema = self.batch.schema_ref();
        let columns = schema.fields().iter().zip(self.batch.columns());
        columns.map(|(field, array)| Column {
            array,
            outer: "",
            name: field.name(),
        })
    }
}

impl<'a> Column<'a> {
    pub fn new(array: &'a dyn Array, name: &'a str) -> Self {
        Self {
            array,
            outer: "",
            name,
        }
    }

    pub fn name(&self) -> &'a str {
        self.name
    }

    fn path(&self) -> String {
        match self.outer {
            "" => self.name.to_owned(),
            outer => format!("{outer}.{}", self.name),
        }
    }

    fn is<T: 'static>(&self, expected: &'static str) -> Result<&'a T, RecordError> {
        let array = self.array.as_any().downcast_ref::<T>();
        array.ok_or_else(|| self.unexpected_type(expected))
    }

    fn unexpected_type(&self, expected: &'static str) -> RecordError {
        RecordError::Kind {
            column: self.path(),
            found: self.array.data_type().clone(),
            expected,
        }
    }

    pub fn runs(&self) -> Result<RunColumn<'a>, RecordError> {
        let runs: &RunArray<Int32Type> = self.is("runs with 32-bit ends")?;
        let ends = runs.run_ends();
        let is_whole =
            ends.offset() == 0 && ends.values().last().map_or(0, |&end| end as usize) == ends.len();
        if !is_whole {
            let path = self.path();
            let reason = format!("the runs of {path:?} do not end with its last row");
            return Err(RecordError::Layout(reason));
        }
        Ok(RunColumn {
            column: *self,
            ends: ends.values(),
            values: runs.values(),
        })
    }

    pub fn int64(&self) -> Result<Vec<i64>, RecordError> {
        let numbers: &Int64Array = self.is("64-bit integers")?;
        Ok(numbers.values().to_vec())
    }

    pub fn uint64(&self) -> Result<&'a UInt64Array, RecordError> {
        self.is("unsigned 64-bit integers")
    }

    pub fn nanoseconds(&self) -> Result<Vec<i64>, RecordError> {
        let times: &TimestampNanosecondArray = self.is("times in nanoseconds")?;
        Ok(times.values().to_vec())
    }

    pub fn booleans(&self) -> Result<&'a BooleanArray, RecordError> {
        self.is("booleans")
    }

    pub fn binary(&self) -> Result<&'a BinaryArray, RecordError> {
        self.is("bytes")
    }

    pub fn text_view(&self) -> Result<&'a StringViewArray, RecordError> {
        self.is("views of text")
    }

    pub fn list(&self) -> Result<&'a ListArray, RecordError> {
        self.is("lists")
    }

    pub fn structs(&self) -> Result<StructColumn<'a>, RecordError> {
        Ok(StructColumn {
            array: self.is("structs")?,
            name: self.name,
        })
    }

    pub fn array<T: 'static>(&self, expected: &'static str) -> Result<&'a T, RecordError> {
        self.is(expected)
    }

    /// 32-bit dictionary keys and the values.
    pub fn dictionary(&self) -> Result<(&'a UInt32Array, &'a ArrayRef), RecordError> {
        let dictionary: &DictionaryArray<UInt32Type> = self.is("keys of a dictionary")?;
        Ok((dictionary.keys(), dictionary.values()))
    }

    pub fn binary_dictionary(&self) -> Result<Keyed, RecordError> {
        let (keys, values) = self.dictionary()?;
        let values: &BinaryArray = self.values(values, "keys of a dictionary of bytes")?;
        Ok(keyed(keys, (0..values.len()).map(|row| values.value(row))))
    }

    pub fn text_dictionary(&self) -> Result<Keyed, RecordError> {
        let (keys, values) = self.dictionary()?;
        let values: &StringArray = self.values(values, "keys of a dictionary of text")?;
        let texts = (0..values.len()).map(|row| values.value(row).as_bytes());
        Ok(keyed(keys, texts))
    }

    fn values<T: 'static>(
        &self,
        values: &'a ArrayRef,
        expected: &'static str,
    ) -> Result<&'a T, RecordError> {
        let values: &'a Arc<dyn Array> = values;
        let array = values.as_any().downcast_ref::<T>();
        array.ok_or_else(|| self.unexpected_type(expected))
    }
}

fn keyed<'a>(keys: &UInt32Array, values: impl Iterator<Item = &'a [u8]>) -> Keyed {
    Keyed {
        values: values.map(Into::into).collect(),
        keys: keys.iter().map(|key| key.unwrap_or(NONE)).collect(),
    }
}

impl<'a> RunColumn<'a> {
    fn of_values(&self) -> Column<'a> {
        Column {
            array: self.values,
            ..self.column
        }
    }

    pub fn binary_dictionary(&self) -> Result<Keyed, RecordError> {
        Ok(self.expanded(self.of_values().binary_dictionary()?))
    }

    pub fn text_dictionary(&self) -> Result<Keyed, RecordError> {
        Ok(self.expanded(self.of_values().text_dictionary()?))
    }

    /// Runs of strings without a dictionary.
    pub fn texts(&self) -> Result<Keyed, RecordError> {
        let values: &StringArray = self.of_values().is("runs of text")?;
        let keys = (0..values.len()).map(|row| values.is_valid(row).then_some(row as u32));
        let texts = (0..values.len()).map(|row| values.value(row).as_bytes());
        Ok(self.expanded(keyed(&keys.collect(), texts)))
    }

    pub fn int64(&self) -> Result<Vec<i64>, RecordError> {
        let numbers = self.of_values().int64()?;
        Ok(self.expand(&numbers))
    }

    pub fn uint64(&self) -> Result<Vec<u64>, RecordError> {
        let numbers = self.of_values().uint64()?;
        Ok(self.expand(numbers.values()))
    }

    /// Saturates values that do not fit.
    pub fn uint64_as_signed(&self) -> Result<Vec<i64>, RecordError> {
        let numbers = self.uint64()?.into_iter();
        Ok(numbers
            .map(|number| i64::try_from(number).unwrap_or(i64::MAX))
            .collect())
    }

    fn expanded(&self, keyed: Keyed) -> Keyed {
        Keyed {
            keys: self.expand(&keyed.keys),
            values: keyed.values,
        }
    }

    fn expand<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let mut rows = Vec::new();
        for (&value, &end) in values.iter().zip(self.ends) {
            rows.resize(end as usize, value);
        }
        rows
    }
}

impl<'a> StructColumn<'a> {
    pub fn column(&self, name: &'a str) -> Result<Column<'a>, RecordError> {
        self.optional(name).ok_or_else(|| RecordError::Missing {
            column: format!("{}.{name}", self.name),
        })
    }

    pub fn optional(&self, name: &'a str) -> Option<Column<'a>> {
        Some(Column {
            array: self.array.column_by_name(name)?,
            outer: self.name,
            name,
        })
    }

    pub fn all(&self) -> impl Iterator<Item = Column<'a>> {
        let columns = self.array.fields().iter().zip(self.array.columns());
        let outer = self.name;
        columns.map(move |(field, array)| Column {
            array,
            outer,
            name: field.name(),
        })
    }
}
