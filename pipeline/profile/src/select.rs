//! Selects used rows of a dictionary and copies them to another.
//!
//! Garbage collection, merging and splitting share three steps: select the rows that samples use, copy them in
//! ascending order, translate the samples. Only the destination differs: an [`Interner`] deduplicates, a plain
//! [`Dictionary`] appends.

use std::ops::Range;
use std::sync::Arc;

use crate::dictionary::{Attribute, AttributeRef, Dictionary, Function, Link, Location, Mapping};
use crate::samples::Translate;
use crate::{
    AttributeIdx, FunctionIdx, Idx, Line, LinkIdx, LocationIdx, LocationRef, MappingIdx,
    MappingRef, Profile, SampleRef, Stack, StackIdx, StringIdx, ValueType,
};

/// The used rows of each table of a dictionary, and after copying their new places.
#[derive(Default)]
pub(crate) struct Selection {
    pub strings: UsedRows<str>,
    pub functions: UsedRows<Function>,
    pub mappings: UsedRows<Mapping>,
    pub locations: UsedRows<Location>,
    pub stacks: UsedRows<Stack>,
    pub attributes: UsedRows<Attribute>,
    pub links: UsedRows<Link>,
}

/// The used rows of one table. Out-of-range indices are never selected and translate to "not set".
pub(crate) struct UsedRows<T: ?Sized> {
    /// For each row, [`UNUSED`](UsedRows::UNUSED) or, once copied, its new place.
    new_indices: Vec<u32>,
    /// The used rows, in the order of first use.
    used: Vec<Idx<T>>,
}

/// Destination of copied rows.
pub(crate) trait Sink {
    fn string(&mut self, text: &str) -> StringIdx;
    fn function(&mut self, row: Function) -> FunctionIdx;
    fn mapping(&mut self, row: MappingRef<'_>) -> MappingIdx;
    fn location(&mut self, row: LocationRef<'_>) -> LocationIdx;
    fn stack(&mut self, row: &[LocationIdx]) -> StackIdx;
    fn attribute(&mut self, row: AttributeRef<'_>) -> AttributeIdx;
    fn link(&mut self, row: Link) -> LinkIdx;
}

// === impl Selection ===

impl Selection {
    /// An empty selection for `dictionary`.
    pub fn of(dictionary: &Dictionary) -> Self {
        let mut selection = Self::default();
        selection.clear_for(dictionary);
        selection
    }

    /// Resets to another dictionary.
    pub fn clear_for(&mut self, dictionary: &Dictionary) {
        self.strings.resize(dictionary.strings.len());
        self.functions.resize(dictionary.functions.rows().len());
        self.mappings.resize(dictionary.mappings.rows().len());
        self.locations.resize(dictionary.locations.rows().len());
        self.stacks.resize(dictionary.stacks.len());
        self.attributes.resize(dictionary.attributes.rows().len());
        self.links.resize(dictionary.links.rows().len());
    }

    /// Resets to a dictionary whose rows will all be copied in order.
    pub fn clear_for_all(&mut self) {
        self.strings.resize(1);
        self.functions.resize(1);
        self.mappings.resize(1);
        self.locations.resize(1);
        self.stacks.resize(1);
        self.attributes.resize(1);
        self.links.resize(1);
    }

    /// Whether every row of the dictionary is used.
    pub fn is_everything(&self) -> bool {
        self.strings.is_everything()
            && self.functions.is_everything()
            && self.mappings.is_everything()
            && self.locations.is_everything()
            && self.stacks.is_everything()
            && self.attributes.is_everything()
            && self.links.is_everything()
    }

    /// Resets to the same dictionary; cost is proportional to the selection.
    pub fn clear(&mut self) {
        self.strings.clear();
        self.functions.clear();
        self.mappings.clear();
        self.locations.clear();
        self.stacks.clear();
        self.attributes.clear();
        self.links.clear();
    }

    /// Selects all rows a profile uses, including those of its samples.
    pub fn profile(&mut self, dictionary: &Dictionary, profile: &Profile) {
        self.profile_head(dictionary, profile);
        for sample in profile.samples.iter() {
            self.sample(dictionary, sample);
        }
    }

    /// Selects the rows a profile uses, without its samples.
    pub fn profile_head(&mut self, dictionary: &Dictionary, profile: &Profile) {
        for value_type in profile.sample_type.iter().chain(&profile.period_type) {
            self.strings.add(value_type.kind);
            self.strings.add(value_type.unit);
        }
        self.attribute_list(dictionary, &profile.attributes);
    }

    pub fn sample(&mut self, dictionary: &Dictionary, sample: SampleRef<'_>) {
        self.links.add(sample.link);
        self.attribute_list(dictionary, sample.attributes);
        if self.stacks.add(sample.stack) {
            for &location in dictionary.stacks.get(sample.stack) {
                self.location(dictionary, location);
            }
        }
    }

    fn location(&mut self, dictionary: &Dictionary, index: LocationIdx) {
        if self.locations.add(index) {
            let row = dictionary.locations.get(index);
            for line in row.lines {
                self.function(dictionary, line.function);
            }
            self.mapping(dictionary, row.location.mapping);
            self.attribute_list(dictionary, row.attributes);
        }
    }

    fn function(&mut self, dictionary: &Dictionary, index: FunctionIdx) {
        if self.functions.add(index)
            && let Some(row) = dictionary.functions.get(index)
        {
            self.strings.add(row.name);
            self.strings.add(row.system_name);
            self.strings.add(row.filename);
        }
    }

    fn mapping(&mut self, dictionary: &Dictionary, index: MappingIdx) {
        if self.mappings.add(index) {
            let row = dictionary.mappings.get(index);
            self.strings.add(row.mapping.filename);
            self.attribute_list(dictionary, row.attributes);
        }
    }

    fn attribute_list(&mut self, dictionary: &Dictionary, list: &[AttributeIdx]) {
        for &index in list {
            if self.attributes.add(index)
                && let Some(row) = dictionary.attributes.get(index)
            {
                self.strings.add(row.key);
                self.strings.add(row.unit);
            }
        }
    }

    /// Reserves capacity for the selected rows.
    pub fn reserve_in(&self, to: &mut Dictionary, from: &Dictionary) {
        // Texts and stacks are taken to have the average length.
        let share = |total: usize, rows: usize, of: usize| total.saturating_mul(rows) / of.max(1);
        let (strings, all) = (self.strings.used.len(), &from.strings);
        to.strings
            .reserve(strings, share(all.text_len(), strings, all.len()));
        let (stacks, all) = (self.stacks.used.len(), &from.stacks);
        to.stacks
            .reserve(stacks, share(all.location_count(), stacks, all.len()));
        to.functions.reserve(self.functions.used.len());
        to.locations.reserve(self.locations.used.len());
        to.attributes.reserve(self.attributes.used.len());
    }

    /// Copies the selected rows, referenced tables first.
    pub fn copy(&mut self, from: &Dictionary, to: &mut impl Sink) {
        let mut attributes: Vec<AttributeIdx> = Vec::new();
        self.strings.copy(|row| to.string(from.strings.get(row)));
        self.attributes.copy(|row| {
            let row = from.attributes.get(row)?;
            Some(to.attribute(AttributeRef {
                key: self.strings.new_index(row.key),
                value: &row.value,
                unit: self.strings.new_index(row.unit),
            }))
        });
        self.functions.copy(|row| {
            let row = from.functions.get(row)?;
            Some(to.function(Function {
                name: self.strings.new_index(row.name),
                system_name: self.strings.new_index(row.system_name),
                filename: self.strings.new_index(row.filename),
                start_line: row.start_line,
            }))
        });
        self.links.copy(|row| Some(to.link(*from.links.get(row)?)));
        self.mappings.copy(|row| {
            let row = from.mappings.get(row);
            self.attributes
                .new_indices_of(row.attributes, &mut attributes);
            to.mapping(MappingRef {
                mapping: Mapping {
                    filename: self.strings.new_index(row.mapping.filename),
                    ..row.mapping
                },
                attributes: &attributes,
            })
        });
        let mut lines: Vec<Line> = Vec::new();
        self.locations.copy(|row| {
            let row = from.locations.get(row);
            self.attributes
                .new_indices_of(row.attributes, &mut attributes);
            lines.clear();
            lines.extend(row.lines.iter().map(|line| Line {
                function: self.functions.new_index(line.function),
                ..*line
            }));
            to.location(LocationRef {
                location: Location {
                    mapping: self.mappings.new_index(row.location.mapping),
                    address: row.location.address,
                },
                lines: &lines,
                attributes: &attributes,
            })
        });
        let mut locations: Vec<LocationIdx> = Vec::new();
        self.stacks.copy(|row| {
            self.locations
                .new_indices_of(from.stacks.get(row), &mut locations);
            to.stack(&locations)
        });
    }

    /// A profile translated to the target dictionary, without samples.
    pub fn translated_head(&self, profile: &Profile) -> Profile {
        let value_type = |row: ValueType| ValueType {
            kind: self.strings.new_index(row.kind),
            unit: self.strings.new_index(row.unit),
        };
        let mut head = profile.head();
        head.sample_type = head.sample_type.map(value_type);
        head.period_type = head.period_type.map(value_type);
        for attribute in &mut head.attributes {
            *attribute = self.attributes.new_index(*attribute);
        }
        head
    }

    /// A profile with the given samples, translated to the target dictionary.
    pub fn translated(&self, profile: &Profile, rows: Range<usize>) -> Arc<Profile> {
        let mut translated = self.translated_head(profile);
        translated
            .samples
            .extend_translated(&profile.samples, rows, self);
        Arc::new(translated)
    }
}

impl Translate for Selection {
    fn stack(&self, index: StackIdx) -> StackIdx {
        self.stacks.new_index(index)
    }

    fn link(&self, index: LinkIdx) -> LinkIdx {
        self.links.new_index(index)
    }

    fn attribute(&self, index: AttributeIdx) -> AttributeIdx {
        self.attributes.new_index(index)
    }
}

// === impl UsedRows ===

impl<T: ?Sized> Default for UsedRows<T> {
    fn default() -> Self {
        Self {
            new_indices: Vec::new(),
            used: Vec::new(),
        }
    }
}

impl<T: ?Sized> UsedRows<T> {
    const UNUSED: u32 = u32::MAX;

    fn resize(&mut self, rows: usize) {
        self.used.clear();
        self.new_indices.clear();
        self.new_indices.resize(rows, Self::UNUSED);
        // Row 0 is "not set" everywhere and is never copied.
        self.new_indices[0] = 0;
    }

    fn clear(&mut self) {
        self.undo_to(0);
    }

    /// Records the new place of the next row.
    #[inline(always)]
    pub fn append(&mut self, new_index: Idx<T>) {
        self.new_indices.push(new_index.get());
    }

    /// Replaces row indices by their new places.
    #[inline(always)]
    pub fn translate(&self, indices: &mut [Idx<T>]) {
        for index in indices {
            *index = self.new_index(*index);
        }
    }

    fn is_everything(&self) -> bool {
        self.used.len() + 1 == self.new_indices.len()
    }

    /// Selects a row; returns whether it was new.
    #[inline(always)]
    fn add(&mut self, index: Idx<T>) -> bool {
        match self.new_indices.get_mut(index.row()) {
            Some(new_index) if *new_index == Self::UNUSED => {
                *new_index = 0;
                self.used.push(index);
                true
            }
            _ => false,
        }
    }

    /// The used rows.
    pub fn used(&self) -> &[Idx<T>] {
        &self.used
    }

    /// Deselects the last rows, keeping the first `keep`.
    pub fn undo_to(&mut self, keep: usize) {
        for index in self.used.drain(keep..) {
            self.new_indices[index.row()] = Self::UNUSED;
        }
    }

    /// Assigns each selected row, in ascending order, the place returned by `copy`.
    fn copy<R: Into<Option<Idx<T>>>>(&mut self, mut copy: impl FnMut(Idx<T>) -> R) {
        self.sort();
        for &index in &self.used {
            self.new_indices[index.row()] = copy(index).into().unwrap_or_default().get();
        }
    }

    /// Sorts few rows of a large table; for many, scanning all is faster.
    fn sort(&mut self) {
        if self.used.len() < self.new_indices.len() / 8 {
            self.used.sort_unstable();
            return;
        }
        self.used.clear();
        let rows = self.new_indices.iter().enumerate().skip(1);
        let used = rows.filter(|(_, new_index)| **new_index != Self::UNUSED);
        self.used.extend(used.map(|(row, _)| Idx::new(row as u32)));
    }

    #[inline(always)]
    pub fn new_index(&self, index: Idx<T>) -> Idx<T> {
        let new_index = self.new_indices.get(index.row()).copied().unwrap_or(0);
        Idx::new(if new_index == Self::UNUSED {
            0
        } else {
            new_index
        })
    }

    #[inline(always)]
    fn new_indices_of(&self, indices: &[Idx<T>], new_indices: &mut Vec<Idx<T>>) {
        new_indices.clear();
        new_indices.extend(indices.iter().map(|&index| self.new_index(index)));
    }
}

// === impl Sink ===

impl Sink for Dictionary {
    fn string(&mut self, text: &str) -> StringIdx {
        self.strings.push(text)
    }

    fn function(&mut self, row: Function) -> FunctionIdx {
        self.functions.push(row)
    }

    fn mapping(&mut self, row: MappingRef<'_>) -> MappingIdx {
        self.mappings.push(row)
    }

    fn location(&mut self, row: LocationRef<'_>) -> LocationIdx {
        self.locations.push(row)
    }

    fn stack(&mut self, row: &[LocationIdx]) -> StackIdx {
        self.stacks.push(row)
    }

    fn attribute(&mut self, row: AttributeRef<'_>) -> AttributeIdx {
        self.attributes.push(Attribute {
            key: row.key,
            value: row.value.clone(),
            unit: row.unit,
        })
    }

    fn link(&mut self, row: Link) -> LinkIdx {
        self.links.push(row)
    }
}
