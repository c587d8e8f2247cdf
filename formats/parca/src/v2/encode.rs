//! Encodes a record.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, Int64Array, StringViewArray, TimestampNanosecondArray,
    UInt64Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use indexmap::IndexSet;
use profcol_profile::{LocationIdx, StackIdx};

use super::{function_type, id_field, line_type, location_type};
use crate::arrays::{int64_runs, list_view, offset, structs};
use crate::frames::{Frames, SourceLine};
use crate::ipc::{self, NotEncoded};
use crate::runs::{Texts, dictionary};
use crate::schema::{
    STACK_ID, Version, always, dictionary_of, list_view_of, maybe, nanoseconds, runs_of, schema,
    text_runs,
};
use crate::stack_id::StackIds;
use crate::table::Table;

/// The samples of a table with their stacks.
pub fn encode(
    table: &Table,
    frames: &Frames<'_>,
    ids: &mut StackIds<'_>,
) -> Result<Vec<u8>, NotEncoded> {
    let label_fields = table.labels.iter();
    let label_fields = label_fields.map(|(name, _)| maybe(name, text_runs()));
    let label_type = DataType::Struct(label_fields.collect());
    let texts = runs_of(DataType::Utf8);
    let fields = vec![
        always("labels", label_type.clone()),
        maybe("stacktrace", list_view_of(dictionary_of(location_type()))),
        id_field(STACK_ID),
        always("value", DataType::Int64),
        always("producer", texts.clone()),
        always("sample_type", texts.clone()),
        always("sample_unit", texts.clone()),
        always("period_type", texts.clone()),
        always("period_unit", texts.clone()),
        maybe("temporality", texts),
        always("period", runs_of(DataType::Int64)),
        always("duration", runs_of(DataType::UInt64)),
        always("timestamp", nanoseconds()),
    ];
    let labels = table.labels.iter().map(|(_, texts)| texts.text_runs());
    let stack_ids = table.stacks.iter().map(|&stack| ids.id(stack));
    let stack_ids = FixedSizeBinaryArray::try_from_iter(stack_ids)?;
    let timestamps = TimestampNanosecondArray::from(table.timestamp.expanded());
    let columns: Vec<ArrayRef> = vec![
        structs(&label_type, labels.collect(), table.rows()),
        stack_column(table, frames),
        Arc::new(stack_ids),
        Arc::new(Int64Array::from(table.values.clone())),
        table.producer.plain_runs(),
        table.sample_type.plain_runs(),
        table.sample_unit.plain_runs(),
        table.period_type.plain_runs(),
        table.period_unit.plain_runs(),
        table.temporality.plain_runs(),
        int64_runs(&table.period),
        table.duration.array(|numbers| {
            let numbers = numbers
                .iter()
                .map(|&number| u64::try_from(number).unwrap_or(0));
            Arc::new(numbers.collect::<UInt64Array>())
        }),
        Arc::new(timestamps.with_timezone("UTC")),
    ];
    ipc::write(&schema(Version::V2, fields), columns)
}

/// Stores each stack once, however many samples have it.
fn stack_column(table: &Table, frames: &Frames<'_>) -> ArrayRef {
    let mut locations: IndexSet<LocationIdx> = IndexSet::new();
    let mut encoded: HashMap<StackIdx, (i32, i32)> = HashMap::new();
    let mut items = Vec::new();
    let (mut offsets, mut sizes) = (Vec::new(), Vec::new());
    for &stack in &table.stacks {
        let &mut (start, size) = encoded.entry(stack).or_insert_with(|| {
            let start = offset(items.len());
            let stack = frames.model().dictionary.stacks.get(stack);
            for &location in stack {
                let (key, _) = locations.insert_full(location);
                items.push(Some(offset(key).cast_unsigned()));
            }
            (start, offset(stack.len()))
        });
        offsets.push(start);
        sizes.push(size);
    }
    let mut rows = Locations::default();
    for &location in &locations {
        rows.add(frames, location);
    }
    let items = dictionary(&items, rows.finish());
    list_view(&dictionary_of(location_type()), offsets, sizes, items, None)
}

#[derive(Default)]
struct Locations {
    addresses: Vec<u64>,
    kinds: Texts,
    files: Texts,
    build_ids: Texts,
    line_offsets: Vec<i32>,
    line_sizes: Vec<i32>,
    lines: Lines,
}

impl Locations {
    fn add(&mut self, frames: &Frames<'_>, location: LocationIdx) {
        let frame = frames.frame(location);
        self.addresses.push(frame.address);
        self.kinds.push(Some(frame.kind));
        self.files.push(some(frame.file));
        self.build_ids.push(some(frame.build_id));
        let start = self.lines.lines.len();
        for line in frames.lines(&frame) {
            self.lines.add(&line);
        }
        self.line_offsets.push(offset(start));
        self.line_sizes.push(offset(self.lines.lines.len() - start));
    }

    fn finish(self) -> ArrayRef {
        // A frame without lines is null instead of an empty list.
        let has_lines: NullBuffer = self.line_sizes.iter().map(|&size| size != 0).collect();
        let (offsets, sizes) = (self.line_offsets, self.line_sizes);
        let rows = self.addresses.len();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(self.addresses)),
            self.kinds.text(),
            self.files.text(),
            self.build_ids.text(),
            list_view(
                &line_type(),
                offsets,
                sizes,
                self.lines.finish(),
                Some(has_lines),
            ),
        ];
        structs(&location_type(), columns, rows)
    }
}

#[derive(Default)]
struct Lines {
    lines: Vec<u64>,
    columns: Vec<u64>,
    functions: Vec<Option<u32>>,
    rows: IndexSet<(Box<str>, Box<str>, i64)>,
}

impl Lines {
    fn add(&mut self, line: &SourceLine<'_>) {
        self.lines.push(line.line.try_into().unwrap_or(0));
        self.columns.push(line.column.try_into().unwrap_or(0));
        let function = (line.name.into(), line.file.into(), line.start_line);
        let (key, _) = self.rows.insert_full(function);
        self.functions.push(Some(offset(key).cast_unsigned()));
    }

    fn finish(self) -> ArrayRef {
        let names = self.rows.iter().map(|(name, _, _)| some(name));
        let mut files = Texts::default();
        for (_, file, _) in &self.rows {
            files.push(some(file));
        }
        let starts = self
            .rows
            .iter()
            .map(|&(_, _, start)| u64::try_from(start).unwrap_or(0));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(names.collect::<StringViewArray>()),
            files.text(),
            Arc::new(starts.collect::<UInt64Array>()),
        ];
        let functions = structs(&function_type(), columns, self.rows.len());
        let rows = self.lines.len();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(self.lines)),
            Arc::new(UInt64Array::from(self.columns)),
            dictionary(&self.functions, functions),
        ];
        structs(&line_type(), columns, rows)
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
