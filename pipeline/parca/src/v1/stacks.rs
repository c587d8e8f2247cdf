//! The record of stacks, and that of the ids that a server asks for.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, ListArray, RecordBatch, StructArray,
    UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use profcol_profile::{Idx, Interner, LocationIdx, StackIdx};

use crate::columns::{Column, Columns, Keyed};
use crate::frames::{Frames, SourceLine};
use crate::ipc::{self, NotEncoded};
use crate::model::{FrameRow, LineRow};
use crate::read::{Refused, check_version};
use crate::runs::{Runs, Texts};
use crate::schema::{
    STACK_ID, Version, always, binary_runs, dictionary_of, list_of, relaxed_type, runs_of, schema,
};
use crate::stack_id::StackId;

/// What is told of a stack that is not known any more.
const MISSING: &str = "missing stacktrace";

/// Stacks under their ids. Ids of which no stack is known are answered too: Parca's server refuses
/// a record that leaves out one that it asked for.
pub fn encode_stacks(
    frames: &Frames<'_>,
    stacks: &[(StackId, Option<StackIdx>)],
) -> Result<Vec<u8>, NotEncoded> {
    let mut locations = Locations::default();
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
        list(location_type(), ends, locations.finish(), None),
    ];
    let fields = vec![
        always(STACK_ID, DataType::Binary),
        always("is_complete", DataType::Boolean),
        always("locations", list_of(location_type())),
    ];
    ipc::write(&schema(Version::V1, fields), columns)
}

/// A record that asks for stacks.
pub fn encode_wanted<'a>(ids: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, NotEncoded> {
    let ids: BinaryArray = ids.into_iter().map(Some).collect();
    let fields = vec![always(STACK_ID, DataType::Binary)];
    let schema = schema(Version::V1, fields);
    ipc::write(&schema, vec![Arc::new(ids)])
}

/// The ids of a record that asks for stacks.
pub fn read_wanted(batch: &RecordBatch) -> Result<Vec<Box<[u8]>>, Refused> {
    if batch.num_columns() != 1 {
        let reason = format!("{} columns, and not one of ids", batch.num_columns());
        return Err(Refused::Shape(reason));
    }
    let ids = Columns::new(batch).column(STACK_ID)?.binary()?;
    Ok(ids.iter().flatten().map(Into::into).collect())
}

fn location_type() -> DataType {
    DataType::Struct(Fields::from(vec![
        always("address", DataType::UInt64),
        always("frame_type", binary_runs()),
        always("mapping_start", runs_of(DataType::UInt64)),
        always("mapping_limit", runs_of(DataType::UInt64)),
        always("mapping_offset", runs_of(DataType::UInt64)),
        always("mapping_file", binary_runs()),
        always("mapping_build_id", binary_runs()),
        always("lines", list_of(line_type())),
    ]))
}

fn line_type() -> DataType {
    DataType::Struct(Fields::from(vec![
        always("line", DataType::Int64),
        always("column", DataType::UInt64),
        always("function_name", dictionary_of(DataType::Binary)),
        always("function_system_name", dictionary_of(DataType::Binary)),
        always("function_filename", binary_runs()),
        always("function_start_line", DataType::Int64),
    ]))
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
}

impl Locations {
    /// Whether it is known what code it is.
    fn add(&mut self, frames: &Frames<'_>, location: LocationIdx) -> bool {
        let frame = frames.frame(location);
        self.addresses.push(frame.address);
        self.kinds.push(Some(frame.kind));
        self.starts.push(frame.memory.memory_start);
        self.limits.push(frame.memory.memory_limit);
        self.offsets.push(frame.memory.file_offset);
        // Parca's server dies of a record none of whose frames has a file.
        self.files.push(Some(frame.file));
        let build_id = Some(frame.build_id).filter(|id| !id.is_empty());
        self.build_ids.push(build_id);
        for line in frames.lines(&frame) {
            self.lines.add(&line);
        }
        self.line_ends.push(self.lines.lines.len());
        frame.is_known
    }

    fn add_missing(&mut self) {
        self.addresses.push(0);
        self.kinds.push(Some("unknown"));
        self.starts.push(0);
        self.limits.push(0);
        self.offsets.push(0);
        self.files.push(Some(""));
        self.build_ids.push(None);
        self.lines.add(&SourceLine {
            name: MISSING,
            ..SourceLine::default()
        });
        self.line_ends.push(self.lines.lines.len());
    }

    fn finish(self) -> ArrayRef {
        let numbers =
            |runs: &Runs<u64>| runs.array(|numbers| Arc::new(UInt64Array::from(numbers.to_vec())));
        let mut ends = vec![0];
        ends.extend(self.line_ends.iter().map(|&end| offset(end)));
        // A frame without lines has none, rather than an empty list of them.
        let has_lines: NullBuffer = ends.windows(2).map(|ends| ends[0] != ends[1]).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(self.addresses)),
            self.kinds.binary_runs(),
            numbers(&self.starts),
            numbers(&self.limits),
            numbers(&self.offsets),
            self.files.binary_runs(),
            self.build_ids.binary_runs(),
            list(line_type(), ends, self.lines.finish(), Some(has_lines)),
        ];
        structs(&location_type(), columns)
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
    fn add(&mut self, line: &SourceLine<'_>) {
        self.lines.push(line.line);
        self.columns.push(line.column.try_into().unwrap_or(0));
        self.names.push(Some(line.name));
        self.system_names.push(Some(line.system_name));
        let file = Some(line.file).filter(|file| !file.is_empty());
        self.files.push(file);
        self.start_lines.push(line.start_line);
    }

    fn finish(self) -> ArrayRef {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(self.lines)),
            Arc::new(UInt64Array::from(self.columns)),
            self.names.binary(),
            self.system_names.binary(),
            self.files.binary_runs(),
            Arc::new(Int64Array::from(self.start_lines)),
        ];
        structs(&line_type(), columns)
    }
}

fn structs(kind: &DataType, columns: Vec<ArrayRef>) -> ArrayRef {
    let DataType::Struct(fields) = relaxed_type(kind) else {
        unreachable!("it is called with structs");
    };
    let structs = StructArray::try_new(fields, columns, None);
    Arc::new(structs.expect("all columns have a value for each row"))
}

fn list(item: DataType, ends: Vec<i32>, items: ArrayRef, nulls: Option<NullBuffer>) -> ArrayRef {
    let item = Field::new("item", relaxed_type(&item), true);
    let ends = OffsetBuffer::new(ends.into());
    let lists = ListArray::try_new(Arc::new(item), ends, items, nulls);
    Arc::new(lists.expect("each list ends behind the one before"))
}

fn offset(rows: usize) -> i32 {
    i32::try_from(rows).expect("a record has far below 2 billion frames")
}

/// Stacks that were told, of one record or of several.
#[derive(Default)]
pub struct Stacks {
    records: Vec<Told>,
    places: HashMap<Box<[u8]>, (usize, usize)>,
}

/// A record of stacks, read.
struct Told {
    /// Where the frames of each stack end; the first entry is where the first one begins.
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
    /// Adds the stacks of a record; of two with one id the later one counts.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), Refused> {
        check_version(batch.schema_ref(), Version::V1)?;
        if batch.num_columns() != 3 {
            let reason = format!("{} columns, and not three", batch.num_columns());
            return Err(Refused::Shape(reason));
        }
        let columns = Columns::new(batch);
        let ids = columns.column(STACK_ID)?.binary()?;
        columns.column("is_complete")?.booleans()?;
        let stacks = columns.column("locations")?.list()?;
        let frames = FrameColumns::read(Column::new(stacks.values(), "locations"))?;
        let record = self.records.len();
        for (row, id) in ids.iter().enumerate() {
            if let Some(id) = id {
                self.places.insert(id.into(), (record, row));
            }
        }
        self.records.push(Told {
            ends: stacks.value_offsets().to_vec(),
            has_frames: (0..stacks.len()).map(|row| stacks.is_valid(row)).collect(),
            frames,
        });
        Ok(())
    }

    pub fn contains(&self, id: &[u8]) -> bool {
        self.places.contains_key(id)
    }

    /// The row of a stack in a dictionary; none where it was not told.
    pub fn intern(&self, rows: &mut Interner, id: &[u8]) -> Option<StackIdx> {
        let &(record, row) = self.places.get(id)?;
        let told = self.records.get(record)?;
        if told.has_frames.get(row) != Some(&true) {
            return Some(Idx::UNSET);
        }
        let (start, end) = (*told.ends.get(row)?, *told.ends.get(row + 1)?);
        let frames = start as usize..end as usize;
        let locations: Vec<LocationIdx> = frames.map(|row| told.frames.intern(rows, row)).collect();
        Some(rows.stack(&locations))
    }
}

impl FrameColumns {
    fn read(column: Column<'_>) -> Result<Self, Refused> {
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
    fn read(column: Column<'_>) -> Result<Self, Refused> {
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
        // No line is negative, and OTLP refuses one that is.
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
