//! The stack record, and the record of stack ids that a server requests.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt64Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Fields};
use profcol_profile::{Idx, Interner, LocationIdx, Mapping, StackIdx};

use crate::arrays::{list, offset, structs};
use crate::columns::{Column, Columns, Keyed};
use crate::error::RecordError;
use crate::frame_row::{FrameRow, LineRow};
use crate::frames::{Frame, Frames, SourceLine};
use crate::ipc::{self, NotEncoded};
use crate::runs::{Runs, Texts};
use crate::samples::check_version;
use crate::schema::{
    STACK_ID, Version, always, binary_runs, dictionary_of, list_of, runs_of, schema,
};
use crate::stack_id::StackId;

/// Index of the column number among the fields of a line.
const COLUMN: usize = 1;

/// The function name of a stack that is no longer known.
const MISSING: &str = "missing stacktrace";

/// The fields of a line that the server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineLayout {
    WithColumn,
    WithoutColumn,
}

/// Stacks by id. Unknown ids get a placeholder: Parca's server rejects a record that omits a requested stack.
pub fn encode_stacks(
    frames: &Frames<'_>,
    stacks: &[(StackId, Option<StackIdx>)],
) -> Result<Vec<u8>, NotEncoded> {
    encode(frames, stacks, LineLayout::WithColumn)
}

/// For Parca before 0.27, which rejects lines with unknown fields.
pub fn encode_stacks_without_columns(
    frames: &Frames<'_>,
    stacks: &[(StackId, Option<StackIdx>)],
) -> Result<Vec<u8>, NotEncoded> {
    encode(frames, stacks, LineLayout::WithoutColumn)
}

fn encode(
    frames: &Frames<'_>,
    stacks: &[(StackId, Option<StackIdx>)],
    layout: LineLayout,
) -> Result<Vec<u8>, NotEncoded> {
    let location_type = location_type(layout);
    let mut locations = Locations::new(frames);
    let mut ends = vec![0];
    let mut complete = Vec::with_capacity(stacks.len());
    for (_, stack) in stacks {
        let is_complete = match stack {
            Some(stack) => {
                let stack = frames.model().dictionary.stacks.get(*stack);
                stack
                    .iter()
                    .fold(true, |all, &location| locations.add(frames, location) & all)
            }
            None => {
                locations.add_missing();
                false
            }
        };
        complete.push(is_complete);
        ends.push(offset(locations.addresses.len()));
    }
    let ids = stacks.iter().map(|(id, _)| Some(id));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids.collect::<BinaryArray>()),
        Arc::new(BooleanArray::from(complete)),
        list(&location_type, ends, locations.finish(layout), None),
    ];
    let fields = vec![
        always(STACK_ID, DataType::Binary),
        always("is_complete", DataType::Boolean),
        always("locations", list_of(location_type)),
    ];
    ipc::write(&schema(Version::V1, fields), columns)
}

/// Encodes a record that requests stacks.
pub fn encode_stack_request<'a>(
    ids: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, NotEncoded> {
    let ids: BinaryArray = ids.into_iter().map(Some).collect();
    let fields = vec![always(STACK_ID, DataType::Binary)];
    let schema = schema(Version::V1, fields);
    ipc::write(&schema, vec![Arc::new(ids)])
}

/// The ids in a record that requests stacks.
pub fn read_stack_request(batch: &RecordBatch) -> Result<Vec<Box<[u8]>>, RecordError> {
    if batch.num_columns() != 1 {
        let reason = format!(
            "{} columns, expected one column of ids",
            batch.num_columns()
        );
        return Err(RecordError::Layout(reason));
    }
    let ids = Columns::new(batch).column(STACK_ID)?.binary()?;
    Ok(ids.iter().flatten().map(Into::into).collect())
}

fn location_type(layout: LineLayout) -> DataType {
    DataType::Struct(Fields::from(vec![
        always("address", DataType::UInt64),
        always("frame_type", binary_runs()),
        always("mapping_start", runs_of(DataType::UInt64)),
        always("mapping_limit", runs_of(DataType::UInt64)),
        always("mapping_offset", runs_of(DataType::UInt64)),
        always("mapping_file", binary_runs()),
        always("mapping_build_id", binary_runs()),
        always("lines", list_of(line_type(layout))),
    ]))
}

fn line_type(layout: LineLayout) -> DataType {
    let mut fields = vec![
        always("line", DataType::Int64),
        always("column", DataType::UInt64),
        always("function_name", dictionary_of(DataType::Binary)),
        always("function_system_name", dictionary_of(DataType::Binary)),
        always("function_filename", binary_runs()),
        always("function_start_line", DataType::Int64),
    ];
    if layout == LineLayout::WithoutColumn {
        fields.remove(COLUMN);
    }
    DataType::Struct(fields.into())
}

/// The columns of locations.
#[derive(Default)]
struct Locations {
    addresses: Vec<u64>,
    kinds: Texts,
    starts: Runs<u64>,
    limits: Runs<u64>,
    offsets: Runs<u64>,
    files: Texts,
    build_ids: Texts,
    line_ends: Vec<usize>,
    lines: Lines,
    /// By location row: most frames occur in many stacks.
    encoded: Vec<Option<EncodedFrame>>,
    encoded_lines: Vec<EncodedLine>,
}

/// A frame with its strings as column keys.
#[derive(Clone, Copy)]
struct EncodedFrame {
    address: u64,
    kind: u32,
    memory: Mapping,
    file: u32,
    build_id: Option<u32>,
    /// The range of its `encoded_lines`.
    lines: (usize, usize),
    /// Whether the code of the frame could be identified.
    is_known: bool,
}

/// A line with its strings as column keys.
#[derive(Clone, Copy)]
struct EncodedLine {
    line: i64,
    column: u64,
    name: u32,
    system_name: u32,
    file: Option<u32>,
    start_line: i64,
}

impl Locations {
    fn new(frames: &Frames<'_>) -> Self {
        let rows = frames.model().dictionary.locations.rows().len();
        Self {
            encoded: vec![None; rows],
            ..Self::default()
        }
    }

    /// Returns whether the code of the frame could be identified.
    fn add(&mut self, frames: &Frames<'_>, location: LocationIdx) -> bool {
        let encoded = match self.encoded.get(location.row()) {
            Some(Some(encoded)) => *encoded,
            _ => {
                let frame = frames.frame(location);
                let lines: Vec<_> = frames.lines(&frame).collect();
                let encoded = self.encode(&frame, &lines);
                if let Some(slot) = self.encoded.get_mut(location.row()) {
                    *slot = Some(encoded);
                }
                encoded
            }
        };
        self.push(encoded);
        encoded.is_known
    }

    fn add_missing(&mut self) {
        let frame = Frame {
            kind: "unknown",
            ..Frame::default()
        };
        let line = SourceLine {
            name: MISSING,
            ..SourceLine::default()
        };
        let encoded = self.encode(&frame, &[line]);
        self.push(encoded);
    }

    fn encode(&mut self, frame: &Frame<'_>, lines: &[SourceLine<'_>]) -> EncodedFrame {
        let first = self.encoded_lines.len();
        for line in lines {
            self.encoded_lines.push(self.lines.encode(line));
        }
        EncodedFrame {
            address: frame.address,
            kind: self.kinds.key(frame.kind),
            memory: frame.memory,
            // Parca's server crashes on a record in which no frame has a file.
            file: self.files.key(frame.file),
            build_id: (!frame.build_id.is_empty()).then(|| self.build_ids.key(frame.build_id)),
            lines: (first, self.encoded_lines.len()),
            is_known: frame.is_known,
        }
    }

    fn push(&mut self, encoded: EncodedFrame) {
        self.addresses.push(encoded.address);
        self.kinds.push_key(Some(encoded.kind));
        self.starts.push(encoded.memory.memory_start);
        self.limits.push(encoded.memory.memory_limit);
        self.offsets.push(encoded.memory.file_offset);
        self.files.push_key(Some(encoded.file));
        self.build_ids.push_key(encoded.build_id);
        let (first, end) = encoded.lines;
        for line in self.encoded_lines.get(first..end).unwrap_or_default() {
            self.lines.push(*line);
        }
        self.line_ends.push(self.lines.lines.len());
    }

    fn finish(self, layout: LineLayout) -> ArrayRef {
        let rows = self.addresses.len();
        let numbers =
            |runs: &Runs<u64>| runs.array(|numbers| Arc::new(UInt64Array::from(numbers.to_vec())));
        let mut ends = vec![0];
        ends.extend(self.line_ends.iter().map(|&end| offset(end)));
        // A frame without lines is null instead of an empty list.
        let has_lines: NullBuffer = ends.windows(2).map(|ends| ends[0] != ends[1]).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(self.addresses)),
            self.kinds.binary_runs(),
            numbers(&self.starts),
            numbers(&self.limits),
            numbers(&self.offsets),
            self.files.binary_runs(),
            self.build_ids.binary_runs(),
            list(
                &line_type(layout),
                ends,
                self.lines.finish(layout),
                Some(has_lines),
            ),
        ];
        structs(&location_type(layout), columns, rows)
    }
}

/// The columns of lines.
#[derive(Default)]
struct Lines {
    lines: Vec<i64>,
    columns: Vec<u64>,
    names: Texts,
    system_names: Texts,
    files: Texts,
    start_lines: Vec<i64>,
}

impl Lines {
    fn encode(&mut self, line: &SourceLine<'_>) -> EncodedLine {
        EncodedLine {
            line: line.line,
            column: line.column.try_into().unwrap_or(0),
            name: self.names.key(line.name),
            system_name: self.system_names.key(line.system_name),
            file: (!line.file.is_empty()).then(|| self.files.key(line.file)),
            start_line: line.start_line,
        }
    }

    fn push(&mut self, line: EncodedLine) {
        self.lines.push(line.line);
        self.columns.push(line.column);
        self.names.push_key(Some(line.name));
        self.system_names.push_key(Some(line.system_name));
        self.files.push_key(line.file);
        self.start_lines.push(line.start_line);
    }

    fn finish(self, layout: LineLayout) -> ArrayRef {
        let rows = self.lines.len();
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(self.lines)),
            Arc::new(UInt64Array::from(self.columns)),
            self.names.binary(),
            self.system_names.binary(),
            self.files.binary_runs(),
            Arc::new(Int64Array::from(self.start_lines)),
        ];
        if layout == LineLayout::WithoutColumn {
            columns.remove(COLUMN);
        }
        structs(&line_type(layout), columns, rows)
    }
}

/// Stacks received in one or several records.
#[derive(Default)]
pub struct Stacks {
    records: Vec<StackRecord>,
    positions: HashMap<Box<[u8]>, (usize, usize)>,
}

/// A decoded stack record.
struct StackRecord {
    /// The end of each stack's frames; the first entry is the start of the first stack.
    ends: Vec<i32>,
    has_frames: Vec<bool>,
    frames: FrameColumns,
}

struct FrameColumns {
    addresses: UInt64Array,
    kinds: Option<Keyed>,
    starts: Vec<u64>,
    limits: Vec<u64>,
    offsets: Vec<u64>,
    files: Keyed,
    build_ids: Keyed,
    line_ends: Vec<i32>,
    has_lines: Vec<bool>,
    lines: LineColumns,
}

struct LineColumns {
    lines: Vec<i64>,
    columns: Option<UInt64Array>,
    names: Keyed,
    system_names: Keyed,
    files: Keyed,
    start_lines: Vec<i64>,
}

impl Stacks {
    /// Adds the stacks of a record; a later stack replaces an earlier one of the same id.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), RecordError> {
        check_version(batch.schema_ref(), Version::V1)?;
        if batch.num_columns() != 3 {
            let reason = format!("{} columns, expected three", batch.num_columns());
            return Err(RecordError::Layout(reason));
        }
        let columns = Columns::new(batch);
        let ids = columns.column(STACK_ID)?.binary()?;
        columns.column("is_complete")?.booleans()?;
        let stacks = columns.column("locations")?.list()?;
        let frames = FrameColumns::read(Column::new(stacks.values(), "locations"))?;
        let record = self.records.len();
        for (row, id) in ids.iter().enumerate() {
            if let Some(id) = id {
                self.positions.insert(id.into(), (record, row));
            }
        }
        self.records.push(StackRecord {
            ends: stacks.value_offsets().to_vec(),
            has_frames: (0..stacks.len()).map(|row| stacks.is_valid(row)).collect(),
            frames,
        });
        Ok(())
    }

    pub fn contains(&self, id: &[u8]) -> bool {
        self.positions.contains_key(id)
    }

    /// Interns a stack in a dictionary; `None` if it was not received.
    pub fn intern(&self, rows: &mut Interner, id: &[u8]) -> Option<StackIdx> {
        let &(record, row) = self.positions.get(id)?;
        let stacks = self.records.get(record)?;
        if stacks.has_frames.get(row) != Some(&true) {
            return Some(Idx::UNSET);
        }
        let (start, end) = (*stacks.ends.get(row)?, *stacks.ends.get(row + 1)?);
        let frames = start as usize..end as usize;
        let locations: Vec<LocationIdx> =
            frames.map(|row| stacks.frames.intern(rows, row)).collect();
        Some(rows.stack(&locations))
    }
}

impl FrameColumns {
    fn read(column: Column<'_>) -> Result<Self, RecordError> {
        let frames = column.structs()?;
        let runs = |name| frames.column(name)?.runs();
        let lines = frames.column("lines")?.list()?;
        let kinds = frames.optional("frame_type");
        let kinds = kinds.map(|kinds| kinds.runs()?.binary_dictionary());
        Ok(Self {
            addresses: frames.column("address")?.uint64()?.clone(),
            kinds: kinds.transpose()?,
            starts: runs("mapping_start")?.uint64()?,
            limits: runs("mapping_limit")?.uint64()?,
            offsets: runs("mapping_offset")?.uint64()?,
            files: runs("mapping_file")?.binary_dictionary()?,
            build_ids: runs("mapping_build_id")?.binary_dictionary()?,
            line_ends: lines.value_offsets().to_vec(),
            has_lines: (0..lines.len()).map(|row| lines.is_valid(row)).collect(),
            lines: LineColumns::read(Column::new(lines.values(), "lines"))?,
        })
    }

    fn intern(&self, rows: &mut Interner, row: usize) -> LocationIdx {
        let has_lines = self.has_lines.get(row) == Some(&true);
        let lines = match (self.line_ends.get(row), self.line_ends.get(row + 1)) {
            (Some(&start), Some(&end)) if has_lines => start as usize..end as usize,
            _ => 0..0,
        };
        let number = |numbers: &[u64]| numbers.get(row).copied().unwrap_or_default();
        let kind = self.kinds.as_ref().map(|kinds| kinds.text(row));
        FrameRow {
            kind: kind.unwrap_or_default(),
            address: number(self.addresses.values()),
            start: number(&self.starts),
            limit: number(&self.limits),
            offset: number(&self.offsets),
            file: self.files.text(row),
            build_id: self.build_ids.text(row),
        }
        .intern(rows, lines.map(|row| self.lines.line(row)))
    }
}

impl LineColumns {
    fn read(column: Column<'_>) -> Result<Self, RecordError> {
        let lines = column.structs()?;
        let columns = lines.optional("column");
        let columns = columns.map(|columns| columns.uint64().cloned());
        Ok(Self {
            lines: lines.column("line")?.int64()?,
            columns: columns.transpose()?,
            names: lines.column("function_name")?.binary_dictionary()?,
            system_names: lines.column("function_system_name")?.binary_dictionary()?,
            files: lines
                .column("function_filename")?
                .runs()?
                .binary_dictionary()?,
            start_lines: lines.column("function_start_line")?.int64()?,
        })
    }

    fn line(&self, row: usize) -> LineRow<'_> {
        // OTLP rejects negative lines.
        let number = |numbers: &[i64]| numbers.get(row).copied().unwrap_or_default().max(0);
        let column = self
            .columns
            .as_ref()
            .and_then(|columns| columns.values().get(row));
        LineRow {
            name: self.names.text(row),
            system_name: self.system_names.text(row),
            file: self.files.text(row),
            start_line: number(&self.start_lines),
            line: number(&self.lines),
            column: column.map_or(0, |&column| column.try_into().unwrap_or(0)),
        }
    }
}
