//! Adds profiles up, over any number of batches, into one file.

use super::attributes::MAPPING_FLAGS;
use super::executables::Executables;
use super::labels::{Label, LabelSelection};
use super::late::UnnamedLocation;
use super::rows::{ListRows, Rows};
use super::sets::{ProfileSet, texts};
use super::translate::{TranslatedIds, Translation};
use profcol_profile::{Function, Interner, LocationIdx, StringIdx, StringTable, ValueType};

/// A pprof under construction. It holds each string, function, mapping, location, stack, label set
/// and sample once, however often it is added.
#[derive(Default)]
pub struct Builder {
    pub(super) options: Options,
    pub(super) executables: Executables,
    pub(super) header: Header,
    /// Used for its strings alone.
    pub(super) strings: Interner,
    pub(super) functions: Rows<Function>,
    pub(super) mappings: Rows<MappingRow>,
    pub(super) lines: ListRows<LineRow>,
    pub(super) locations: Rows<LocationRow>,
    pub(super) stacks: ListRows<Id>,
    pub(super) label_sets: ListRows<Label>,
    pub(super) samples: Rows<SampleRow>,
    /// Those of the first sample, of the second, and so on, each time one per sample type.
    pub(super) values: Vec<i64>,
    pub(super) known: TranslatedIds,
}

/// How profiles become a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub labels: LabelSelection,
    /// Beside the number of samples, write what they stand for by their period, and let tools show
    /// that first: `cpu/nanoseconds` beside `samples/count`.
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
pub enum Refused {
    #[error("the sample types are {found}, those of the file {expected}")]
    SampleTypes { found: String, expected: String },
    #[error("the period type is {found}, that of the file {expected}")]
    PeriodType { found: String, expected: String },
    #[error("the file has reached {limit} bytes; start a new one")]
    Full { limit: usize },
}

/// Writes one file with all `sets`.
pub fn write<'a>(
    sets: impl IntoIterator<Item = ProfileSet<'a>>,
    options: impl Into<Options>,
) -> Result<Vec<u8>, Refused> {
    let mut builder = Builder::new(options);
    for set in sets {
        builder.add(&set)?;
    }
    Ok(builder.finish())
}

/// The number of a row in the file, from 1; 0 means none.
pub(super) type Id = u32;

#[derive(Default)]
pub(super) struct Header {
    pub sample_types: Vec<ValueType>,
    pub period_type: Option<ValueType>,
    pub period: i64,
    /// In nanoseconds; as long as none is known the start is at the end of time.
    pub start: Option<u64>,
    pub end: u64,
    /// Of profiles that do not say when they were taken.
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
    /// `None` where it is to be seen from the locations.
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
    /// A row of the builder's lists of lines.
    pub lines: u32,
    pub is_folded: bool,
}

/// What samples have to have in common to be added up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SampleRow {
    pub stack: u32,
    pub labels: u32,
}

/// Far below what the 32-bit indices of the tables can count.
const MAX_BYTES: usize = 1 << 30;

impl Builder {
    pub fn new(options: impl Into<Options>) -> Self {
        Self {
            options: options.into(),
            ..Self::default()
        }
    }

    /// Adds profiles of the same sample types as those before.
    pub fn add(&mut self, set: &ProfileSet<'_>) -> Result<(), Refused> {
        self.add_and_tell(set, &mut |_, _| {})
    }

    /// The same, and tells of locations without lines, so that they can be [set](Self::set_lines) later.
    pub fn add_and_tell(
        &mut self,
        set: &ProfileSet<'_>,
        on_unnamed: &mut dyn FnMut(LocationIdx, UnnamedLocation),
    ) -> Result<(), Refused> {
        if self.heap_size() > MAX_BYTES {
            return Err(Refused::Full { limit: MAX_BYTES });
        }
        self.check_types(set)?;
        Translation::new(self, set, on_unnamed).run();
        Ok(())
    }

    /// Adds the values of one sample, one per sample type, to those of its row.
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

    /// How many different samples there are.
    pub fn sample_count(&self) -> usize {
        self.samples.len()
    }

    /// About how much memory it holds; the file will be smaller.
    pub fn heap_size(&self) -> usize {
        /// Its end, and its place in the hash table with room to grow.
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
            + self.known.heap_size()
            + self.values.capacity() * size_of::<i64>()
    }

    pub(super) fn string_table(&self) -> &StringTable {
        &self.strings.dictionary().strings
    }

    fn check_types(&mut self, set: &ProfileSet<'_>) -> Result<(), Refused> {
        let header = &self.header;
        let known = self.string_table();
        let same = |row: &ValueType, found| texts(known, Some(*row)) == found;
        let types = self.sample_types(set);
        let fits = header.sample_types.len() == types.len()
            && header
                .sample_types
                .iter()
                .zip(&types)
                .all(|(row, found)| same(row, *found));
        if !fits && !header.sample_types.is_empty() {
            let expected = header.sample_types.iter();
            return Err(Refused::SampleTypes {
                found: names(types.into_iter()),
                expected: names(expected.map(|row| texts(known, Some(*row)))),
            });
        }
        let period_type = set.period_type();
        if let (Some(expected), Some(found)) = (header.period_type, period_type)
            && !same(&expected, found)
        {
            return Err(Refused::PeriodType {
                found: names([found].into_iter()),
                expected: names([texts(known, Some(expected))].into_iter()),
            });
        }
        // Nothing is refused any more, and so nothing is left behind of what is.
        if self.header.sample_types.is_empty() {
            self.header.sample_types = types
                .into_iter()
                .map(|texts| self.value_type(texts))
                .collect();
        }
        if let (None, Some(found)) = (self.header.period_type, period_type) {
            self.header.period_type = Some(self.value_type(found));
        }
        Ok(())
    }

    /// What is written of each sample of the set.
    fn sample_types<'a>(&self, set: &ProfileSet<'a>) -> Vec<(&'a str, &'a str)> {
        let types = set.sample_types();
        types.chain(self.period_value(set)).collect()
    }

    /// Kind and unit of what its samples stand for by their period, where that is written too.
    pub(super) fn period_value<'a>(&self, set: &ProfileSet<'a>) -> Option<(&'a str, &'a str)> {
        let is_counted = set.sample_types().eq([("samples", "count")]);
        let (kind, unit) = set.period_type()?;
        let is_told = self.options.period_values && !matches!(kind, "" | "samples");
        (is_told && is_counted && set.period() > 0).then_some((kind, unit))
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
