//! The tables shared by all resources of a batch.
//!
//! Rows that hold lists (mappings, locations, stacks) keep them in [`Lists`] columns and are read
//! through borrowed views, so that no row owns an allocation.

use crate::value::Value;
use crate::{Idx, Lists, StringIdx, StringTable};

pub type FunctionIdx = Idx<Function>;
pub type MappingIdx = Idx<Mapping>;
pub type LocationIdx = Idx<Location>;
pub type StackIdx = Idx<Stack>;
pub type AttributeIdx = Idx<Attribute>;
pub type LinkIdx = Idx<Link>;

/// Every table of a batch. Row 0 of each is its zero value and means "not set".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dictionary {
    pub strings: StringTable,
    pub functions: Table<Function>,
    pub mappings: Mappings,
    pub locations: Locations,
    pub stacks: Stacks,
    pub attributes: Table<Attribute>,
    pub links: Table<Link>,
}

/// A table of plain rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<Row> {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: StringIdx,
    pub system_name: StringIdx,
    pub filename: StringIdx,
    pub start_line: i64,
}

/// A key, its value and, for numbers, their unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attribute {
    pub key: StringIdx,
    pub value: Value,
    pub unit: StringIdx,
}

/// An attribute that may not be in a table yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttributeRef<'a> {
    pub key: StringIdx,
    pub value: &'a Value,
    pub unit: StringIdx,
}

/// The span active when a sample was taken; all zero if none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
}

/// The scalar columns of a mapping; [`Mappings`] holds its attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    pub memory_start: u64,
    pub memory_limit: u64,
    pub file_offset: u64,
    pub filename: StringIdx,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MappingRef<'a> {
    pub mapping: Mapping,
    pub attributes: &'a [AttributeIdx],
}

/// The scalar columns of a location; [`Locations`] holds its lines and attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    pub mapping: MappingIdx,
    pub address: u64,
}

/// One source line of a location; with several, the last is the outermost caller of an inline chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    pub function: FunctionIdx,
    pub line: i64,
    pub column: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LocationRef<'a> {
    pub location: Location,
    pub lines: &'a [Line],
    pub attributes: &'a [AttributeIdx],
}

/// Marker type of [`StackIdx`]; a stack is its list of locations, leaf first.
#[derive(Clone, Copy, Debug)]
pub struct Stack;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mappings {
    rows: Vec<Mapping>,
    attributes: Lists<AttributeIdx>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locations {
    rows: Vec<Location>,
    lines: Lists<Line>,
    attributes: Lists<AttributeIdx>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacks {
    locations: Lists<LocationIdx>,
}

// === impl Table ===

impl<Row: Default> Default for Table<Row> {
    fn default() -> Self {
        Self {
            rows: vec![Row::default()],
        }
    }
}

impl<Row: Default> Table<Row> {
    /// Appends a row, even if an equal one exists.
    pub fn push(&mut self, row: Row) -> Idx<Row> {
        self.rows.push(row);
        last_row(self.rows.len())
    }

    /// Reserves capacity for more rows.
    pub fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows);
    }

    pub fn get(&self, index: Idx<Row>) -> Option<&Row> {
        self.rows.get(index.row())
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

// === impl Mappings ===

impl Default for Mappings {
    fn default() -> Self {
        let mut attributes = Lists::default();
        attributes.close();
        Self {
            rows: vec![Mapping::default()],
            attributes,
        }
    }
}

impl Mappings {
    pub fn push(&mut self, row: MappingRef<'_>) -> MappingIdx {
        self.rows.push(row.mapping);
        self.attributes.push(row.attributes);
        last_row(self.rows.len())
    }

    pub fn get(&self, index: MappingIdx) -> MappingRef<'_> {
        MappingRef {
            mapping: self.rows.get(index.row()).copied().unwrap_or_default(),
            attributes: self.attributes.get(index.row()),
        }
    }

    pub fn rows(&self) -> &[Mapping] {
        &self.rows
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = MappingRef<'_>> {
        (0..self.rows.len()).map(|row| self.get(Idx::new(row as u32)))
    }
}

// === impl Locations ===

impl Default for Locations {
    fn default() -> Self {
        let mut lines = Lists::default();
        lines.close();
        let mut attributes = Lists::default();
        attributes.close();
        Self {
            rows: vec![Location::default()],
            lines,
            attributes,
        }
    }
}

impl Locations {
    pub fn push(&mut self, row: LocationRef<'_>) -> LocationIdx {
        self.rows.push(row.location);
        self.lines.push(row.lines);
        self.attributes.push(row.attributes);
        last_row(self.rows.len())
    }

    /// Reserves capacity for more rows, most with one line.
    pub fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows);
        self.lines.reserve(rows, rows);
        self.attributes.reserve(rows, rows);
    }

    pub fn get(&self, index: LocationIdx) -> LocationRef<'_> {
        LocationRef {
            location: self.rows.get(index.row()).copied().unwrap_or_default(),
            lines: self.lines.get(index.row()),
            attributes: self.attributes.get(index.row()),
        }
    }

    /// Whether the row equals `row`.
    #[inline(always)]
    pub(crate) fn is(&self, index: LocationIdx, row: &LocationRef<'_>) -> bool {
        self.rows.get(index.row()) == Some(&row.location)
            && self.lines.get(index.row()) == row.lines
            && self.attributes.get(index.row()) == row.attributes
    }

    pub fn rows(&self) -> &[Location] {
        &self.rows
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = LocationRef<'_>> {
        (0..self.rows.len()).map(|row| self.get(Idx::new(row as u32)))
    }
}

// === impl Stacks ===

impl Default for Stacks {
    fn default() -> Self {
        let mut locations = Lists::default();
        locations.close();
        Self { locations }
    }
}

impl Stacks {
    /// Appends a stack, leaf first.
    pub fn push(&mut self, locations: &[LocationIdx]) -> StackIdx {
        self.locations.push(locations);
        last_row(self.locations.len())
    }

    /// Reserves capacity for more stacks and their locations.
    pub fn reserve(&mut self, stacks: usize, locations: usize) {
        self.locations.reserve(stacks, locations);
    }

    pub fn get(&self, index: StackIdx) -> &[LocationIdx] {
        self.locations.get(index.row())
    }

    pub fn len(&self) -> usize {
        self.locations.len()
    }

    /// Always false: row 0 always exists.
    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[LocationIdx]> {
        self.locations.iter()
    }

    /// Number of locations in all stacks.
    pub fn location_count(&self) -> usize {
        self.locations.items().len()
    }
}

fn last_row<T: ?Sized>(rows: usize) -> Idx<T> {
    Idx::new(u32::try_from(rows - 1).expect("a batch is far below 4 billion rows"))
}
