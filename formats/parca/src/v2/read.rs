//! Decodes a record.

use std::collections::HashMap;
use std::ops::Range;

use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, ListViewArray, RecordBatch, UInt64Array};
use profcol_profile::{Idx, Interner, LocationIdx, StackIdx};

use crate::columns::{Column, Columns};
use crate::error::RecordError;
use crate::frame_row::{FrameRow, LineRow};
use crate::samples::{InlineStacks, Lines, Locations, Samples, StackRefs, check_version};
use crate::schema::{STACK_ID, Version};

/// Limit on the total frames of a record, with each stack counted once. Stacks are views of one list, so that a short
/// record can have any number of long ones.
const MAX_FRAMES: usize = 1 << 24;

/// Reads a record, as strictly as Parca's server.
pub fn read_samples(batch: &RecordBatch) -> Result<Samples, RecordError> {
    check_version(batch.schema_ref(), Version::V2)?;
    let columns = Columns::new(batch);
    let mut labels = Vec::new();
    if batch.schema_ref().index_of("labels").is_ok() {
        for column in columns.column("labels")?.structs()?.all() {
            labels.push((column.name().to_owned(), column.runs()?.text_dictionary()?));
        }
    }
    let ids: &FixedSizeBinaryArray = columns.column(STACK_ID)?.array("16 bytes")?;
    if ids.value_length() != 16 {
        let reason = format!("{STACK_ID:?} has {} bytes, expected 16", ids.value_length());
        return Err(RecordError::Layout(reason));
    }
    let stacks: &ListViewArray = columns.column("stacktrace")?.array("views of lists")?;
    let (frames, locations) = Column::new(stacks.values(), "stacktrace").dictionary()?;
    let stacks = InlineStacks {
        stacks: stacks.clone(),
        frames: frames.clone(),
        locations: Locations::read(locations)?,
    };
    let stacks = StackRefs::Inline(Box::new(stacks));
    Samples::read(&columns, labels, stacks, Version::V2)
}

impl InlineStacks {
    pub fn interning(&self) -> Interning<'_> {
        Interning {
            inline: self,
            stacks: HashMap::new(),
            locations: HashMap::new(),
            left: MAX_FRAMES,
        }
    }
}

/// Interns the stacks of a record.
pub struct Interning<'a> {
    inline: &'a InlineStacks,
    stacks: HashMap<Range<usize>, StackIdx>,
    locations: HashMap<usize, LocationIdx>,
    /// Frames and lines by row.
    left: usize,
}

impl Interning<'_> {
    /// The row of a sample's stack.
    pub fn stack(&mut self, rows: &mut Interner, sample: usize) -> Result<StackIdx, RecordError> {
        let stacks = &self.inline.stacks;
        if sample >= stacks.len() || stacks.is_null(sample) {
            return Ok(Idx::UNSET);
        }
        let view = range(stacks, sample);
        if let Some(&stack) = self.stacks.get(&view) {
            return Ok(stack);
        }
        self.take(view.len())?;
        let frames = &self.inline.frames;
        let mut locations = Vec::new();
        for frame in view.clone() {
            if frame < frames.len() && frames.is_valid(frame) {
                locations.push(self.location(rows, frames.value(frame) as usize)?);
            }
        }
        let stack = rows.stack(&locations);
        self.stacks.insert(view, stack);
        Ok(stack)
    }

    fn location(&mut self, rows: &mut Interner, row: usize) -> Result<LocationIdx, RecordError> {
        if let Some(&location) = self.locations.get(&row) {
            return Ok(location);
        }
        let locations = &self.inline.locations;
        let lines = locations.lines_of(row);
        self.take(lines.len())?;
        let location = locations.intern(rows, row, lines);
        self.locations.insert(row, location);
        Ok(location)
    }

    fn take(&mut self, frames: usize) -> Result<(), RecordError> {
        let left = self.left.checked_sub(frames);
        self.left = left.ok_or_else(|| {
            RecordError::Layout(format!("the stacks have more than {MAX_FRAMES} frames"))
        })?;
        Ok(())
    }
}

impl Locations {
    fn read(array: &ArrayRef) -> Result<Self, RecordError> {
        let fields = Column::new(array, "stacktrace").structs()?;
        let lists: &ListViewArray = fields.column("lines")?.array("views of lists")?;
        Ok(Self {
            addresses: fields.column("address")?.uint64()?.clone(),
            kinds: fields.column("frame_type")?.text_dictionary()?,
            files: fields.column("mapping_file")?.text_dictionary()?,
            build_ids: fields.column("mapping_build_id")?.text_dictionary()?,
            line_lists: lists.clone(),
            lines: Lines::read(lists.values())?,
        })
    }

    fn lines_of(&self, row: usize) -> Range<usize> {
        if row < self.line_lists.len() && self.line_lists.is_valid(row) {
            range(&self.line_lists, row)
        } else {
            0..0
        }
    }

    fn intern(&self, rows: &mut Interner, row: usize, lines: Range<usize>) -> LocationIdx {
        FrameRow {
            kind: self.kinds.text(row),
            address: number(&self.addresses, row),
            start: 0,
            limit: 0,
            offset: 0,
            file: self.files.text(row),
            build_id: self.build_ids.text(row),
        }
        .intern(rows, lines.map(|row| self.lines.line(row)))
    }
}

impl Lines {
    fn read(array: &ArrayRef) -> Result<Self, RecordError> {
        let fields = Column::new(array, "lines").structs()?;
        let (keys, functions) = fields.column("function")?.dictionary()?;
        let functions = Column::new(functions, "function").structs()?;
        Ok(Self {
            lines: fields.column("line")?.uint64()?.clone(),
            columns: fields.column("column")?.uint64()?.clone(),
            functions: keys.clone(),
            names: functions.column("system_name")?.text_view()?.clone(),
            files: functions.column("filename")?.text_dictionary()?,
            start_lines: functions.column("start_line")?.uint64()?.clone(),
        })
    }

    fn line(&self, row: usize) -> LineRow<'_> {
        let has_function = row < self.functions.len() && self.functions.is_valid(row);
        let function = if has_function {
            self.functions.value(row) as usize
        } else {
            usize::MAX
        };
        let has_name = function < self.names.len() && self.names.is_valid(function);
        let name = if has_name {
            self.names.value(function)
        } else {
            ""
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        LineRow {
            name: name.into(),
            system_name: name.into(),
            file: self.files.text(function),
            start_line: signed(number(&self.start_lines, function)),
            line: signed(number(&self.lines, row)),
            column: signed(number(&self.columns, row)),
        }
    }
}

fn number(numbers: &UInt64Array, row: usize) -> u64 {
    numbers.values().get(row).copied().unwrap_or_default()
}

/// The items of a list.
fn range(lists: &ListViewArray, row: usize) -> Range<usize> {
    let start = lists.value_offset(row).max(0) as usize;
    start..start + lists.value_size(row).max(0) as usize
}
