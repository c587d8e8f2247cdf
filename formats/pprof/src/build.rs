//! Merges profiles of any number of batches into one file.

use super::attributes::MAPPING_FLAGS;
use super::executables::Executables;
use super::labels::{Label, LabelSelection};
use super::rows::{ListRows, Rows};
use super::sets::{ProfileSet, texts};
use super::translated_ids::TranslatedIds;
use profcol_profile::{Function, Interner, StringIdx, StringTable, ValueType};

/// A pprof under construction. Each string, function, mapping, location, stack, label set and sample is stored once,
/// however often it is added.
#[derive(Default)]
pub struct Builder {
    pub(super) options: Options,
    pub(super) executables: Executables,
    pub(super) header: MergedHeader,
    /// Only its string table is used.
    pub(super) strings: Interner,
    pub(super) functions: Rows<Function>,
    pub(super) mappings: Rows<MappingRow>,
    pub(super) lines: ListRows<LineRow>,
    pub(super) locations: Rows<LocationRow>,
    pub(super) stacks: ListRows<Id>,
    pub(super) label_sets: ListRows<Label>,
    pub(super) samples: Rows<SampleRow>,
    /// Row-major: the values of the first sample, one per sample type, then those of the second.
    pub(super) values: Vec<i64>,
    pub(super) translated: TranslatedIds,
}

/// A location of a [`Builder`] that was added without lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnnamedLocation(pub(super) Id);

/// How profiles are written to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub labels: LabelSelection,
    /// Also write the weight of the samples by their period, and make it the default: `cpu/nanoseconds` next to
    /// `samples/count`.
    pub period_values: bool,
}

impl From<LabelSelection> for Options {
    fn from(labels: LabelSelection) -> Self {
        Self {
            labels,
            ..Self::default()
        }
    }
}

/// Why profiles cannot be added to a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddProfilesError {
    #[error("sample types {found} do not match those of the file, {expected}")]
    SampleTypes { found: String, expected: String },
    #[error("period type {found} does not match that of the file, {expected}")]
    PeriodType { found: String, expected: String },
    #[error("the file has reached {limit} bytes; start a new one")]
    Full { limit: usize },
}

/// The id of a row in the file, from 1; 0 means none.
pub(super) type Id = u32;

#[derive(Default)]
pub(super) struct MergedHeader {
    pub sample_types: Vec<ValueType>,
    pub period_type: Option<ValueType>,
    pub period: i64,
    /// In nanoseconds; `None` until a profile states a time.
    pub start: Option<u64>,
    pub end: u64,
    /// The total duration of profiles without a time.
    pub duration: u64,
    pub comments: Rows<StringIdx>,
    pub drop_frames: StringIdx,
    pub keep_frames: StringIdx,
    pub doc_url: StringIdx,
    pub default_sample_type: StringIdx,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MappingRow {
    pub memory_start: u64,
    pub memory_limit: u64,
    pub file_offset: u64,
    pub filename: StringIdx,
    pub build_id: StringIdx,
    /// `None` if derived from the locations.
    pub flags: [Option<bool>; MAPPING_FLAGS.len()],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineRow {
    pub function: Id,
    pub line: i64,
    pub column: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LocationRow {
    pub mapping: Id,
    pub address: u64,
    /// Row in the builder's lists of lines.
    pub lines: u32,
    pub is_folded: bool,
}

/// Samples with an equal row are merged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SampleRow {
    pub stack: u32,
    pub labels: u32,
}

/// Keeps the tables far below the range of their 32-bit indices.
const MAX_BYTES: usize = 1 << 30;

impl Builder {
    pub fn new(options: impl Into<Options>) -> Self {
        Self {
            options: options.into(),
            ..Self::default()
        }
    }

    /// Adopts the sample types of the first profiles; later ones must have the same.
    pub(super) fn prepare(&mut self, set: &ProfileSet<'_>) -> Result<(), AddProfilesError> {
        if self.heap_size() > MAX_BYTES {
            return Err(AddProfilesError::Full { limit: MAX_BYTES });
        }
        self.check_types(set)
    }

    /// Adds the values of a sample, one per sample type, to its row.
    pub(super) fn add_values(
        &mut self,
        row: SampleRow,
        values: impl ExactSizeIterator<Item = i64>,
    ) {
        let start = self.samples.intern(row) as usize * values.len();
        if start == self.values.len() {
            self.values.resize(start + values.len(), 0);
        }
        let sums = self.values.get_mut(start..).unwrap_or_default();
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = sum.saturating_add(value);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.samples.len() == 0
    }

    /// The number of distinct samples.
    pub fn sample_count(&self) -> usize {
        self.samples.len()
    }

    /// Estimated memory use; the file is smaller.
    pub fn heap_size(&self) -> usize {
        /// The end of the list, and the hash table entry with spare capacity.
        const BYTES_PER_STRING: usize = 20;
        let strings = self.string_table();
        strings.text_len()
            + strings.len() * BYTES_PER_STRING
            + self.functions.heap_size()
            + self.mappings.heap_size()
            + self.lines.heap_size()
            + self.locations.heap_size()
            + self.stacks.heap_size()
            + self.label_sets.heap_size()
            + self.samples.heap_size()
            + self.translated.heap_size()
            + self.values.capacity() * size_of::<i64>()
    }

    pub(super) fn string_table(&self) -> &StringTable {
        &self.strings.dictionary().strings
    }

    fn check_types(&mut self, set: &ProfileSet<'_>) -> Result<(), AddProfilesError> {
        let header = &self.header;
        let strings = self.string_table();
        let same = |row: &ValueType, actual| texts(strings, Some(*row)) == actual;
        let types = self.sample_types(set);
        let fits = header.sample_types.len() == types.len()
            && header
                .sample_types
                .iter()
                .zip(&types)
                .all(|(row, actual)| same(row, *actual));
        if !fits && !header.sample_types.is_empty() {
            let expected = header.sample_types.iter();
            return Err(AddProfilesError::SampleTypes {
                found: names(types.into_iter()),
                expected: names(expected.map(|row| texts(strings, Some(*row)))),
            });
        }
        let period_type = set.period_type();
        if let (Some(expected), Some(actual)) = (header.period_type, period_type)
            && !same(&expected, actual)
        {
            return Err(AddProfilesError::PeriodType {
                found: names([actual].into_iter()),
                expected: names([texts(strings, Some(expected))].into_iter()),
            });
        }
        // All checks have passed: a rejected set leaves no changes behind.
        if self.header.sample_types.is_empty() {
            self.header.sample_types = types
                .into_iter()
                .map(|texts| self.value_type(texts))
                .collect();
        }
        if let (None, Some(actual)) = (self.header.period_type, period_type) {
            self.header.period_type = Some(self.value_type(actual));
        }
        Ok(())
    }

    /// The sample types written for the set.
    fn sample_types<'a>(&self, set: &ProfileSet<'a>) -> Vec<(&'a str, &'a str)> {
        let types = set.sample_types();
        types.chain(self.period_value(set)).collect()
    }

    /// Kind and unit of the period weight, if it is written.
    pub(super) fn period_value<'a>(&self, set: &ProfileSet<'a>) -> Option<(&'a str, &'a str)> {
        let is_counted = set.sample_types().eq([("samples", "count")]);
        let (kind, unit) = set.period_type()?;
        let is_enabled = self.options.period_values && !matches!(kind, "" | "samples");
        (is_enabled && is_counted && set.period() > 0).then_some((kind, unit))
    }

    fn value_type(&mut self, (kind, unit): (&str, &str)) -> ValueType {
        ValueType {
            kind: self.strings.string(kind),
            unit: self.strings.string(unit),
        }
    }
}

fn names<'a>(types: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let names = types.map(|(kind, unit)| format!("{kind}/{unit}"));
    names.collect::<Vec<_>>().join(", ")
}
