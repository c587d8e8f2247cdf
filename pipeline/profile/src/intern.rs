//! Builds a dictionary without duplicates.
//!
//! The hash tables hold row numbers instead of copies of rows: keys are compared with rows of the dictionary. This
//! makes merging linear.
//!
//! Batches of one sender repeat rows in runs: a function name comes with its file name, a frame with its callers. So
//! the row after the last hit is compared first, and the hash is computed only if it differs.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::{FoldHasher, RandomState};
use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, VacantEntry};

use crate::dictionary::{Attribute, AttributeRef, Dictionary, Function, Link};
use crate::proto::WireError;
use crate::select::{Selection, Sink};
use crate::{
    AttributeIdx, FunctionIdx, Idx, LinkIdx, LocationIdx, LocationRef, MappingIdx, MappingRef,
    StackIdx, StringIdx, StringTable, Value,
};

/// A growing dictionary: each method returns the row of its argument, adding it if missing.
#[derive(Default)]
pub struct Interner {
    dictionary: Dictionary,
    hasher: RandomState,
    strings: RowSet,
    functions: RowSet,
    mappings: RowSet,
    locations: RowSet,
    stacks: RowSet,
    attributes: RowSet,
    links: RowSet,
}

/// Rows of one table by hash, without row 0: zero values never get here.
#[derive(Default)]
struct RowSet {
    rows: HashTable<HashedRow>,
    /// The row after the one found or added last.
    likely: u32,
}

/// Keeps the hash so that growing does not rehash rows.
struct HashedRow {
    hash: u32,
    row: u32,
}

impl Interner {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves capacity for as many rows as `dictionary` has.
    pub fn reserve_for(&mut self, dictionary: &Dictionary) {
        let tables = &mut self.dictionary;
        let strings = &dictionary.strings;
        tables.strings.reserve(strings.len(), strings.text_len());
        self.strings.reserve(strings.len());
        let rows = dictionary.functions.rows().len();
        tables.functions.reserve(rows);
        self.functions.reserve(rows);
        let rows = dictionary.locations.rows().len();
        tables.locations.reserve(rows);
        self.locations.reserve(rows);
        let stacks = &dictionary.stacks;
        tables.stacks.reserve(stacks.len(), stacks.location_count());
        self.stacks.reserve(stacks.len());
        let rows = dictionary.attributes.rows().len();
        tables.attributes.reserve(rows);
        self.attributes.reserve(rows);
        self.mappings.reserve(dictionary.mappings.rows().len());
        self.links.reserve(dictionary.links.rows().len());
    }

    /// Reserves capacity for the selected rows of `dictionary`.
    pub(crate) fn reserve_for_selection(&mut self, dictionary: &Dictionary, selection: &Selection) {
        selection.reserve_in(&mut self.dictionary, dictionary);
        self.strings.reserve(selection.strings.used().len());
        self.functions.reserve(selection.functions.used().len());
        self.locations.reserve(selection.locations.used().len());
        self.stacks.reserve(selection.stacks.used().len());
        self.attributes.reserve(selection.attributes.used().len());
        self.mappings.reserve(selection.mappings.used().len());
        self.links.reserve(selection.links.used().len());
    }

    /// The dictionary so far.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    pub fn finish(self) -> Dictionary {
        self.dictionary
    }

    pub fn string(&mut self, text: &str) -> StringIdx {
        if text.is_empty() {
            return Idx::UNSET;
        }
        let table = &mut self.dictionary.strings;
        match self.strings.find_text(&self.hasher, table, text.as_bytes()) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(text)),
        }
    }

    /// Like [`string`](Self::string), for validated UTF-8: only new strings are checked again.
    pub(crate) fn valid_string(&mut self, text: &[u8]) -> Result<StringIdx, WireError> {
        if text.is_empty() {
            return Ok(Idx::UNSET);
        }
        let table = &mut self.dictionary.strings;
        Ok(match self.strings.find_text(&self.hasher, table, text) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(valid(text)?)),
        })
    }

    pub fn function(&mut self, function: Function) -> FunctionIdx {
        if function == Function::default() {
            return Idx::UNSET;
        }
        let hash = |hasher: &mut FoldHasher| {
            hash_indices(
                &[function.name, function.system_name, function.filename],
                hasher,
            );
            hasher.write_i64(function.start_line);
        };
        let table = &mut self.dictionary.functions;
        let same = |row| table.get(row) == Some(&function);
        match self.functions.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(function)),
        }
    }

    pub fn mapping(&mut self, mapping: MappingRef<'_>) -> MappingIdx {
        if mapping == MappingRef::default() {
            return Idx::UNSET;
        }
        let hash = |hasher: &mut FoldHasher| {
            mapping.mapping.hash(hasher);
            hash_indices(mapping.attributes, hasher);
        };
        let table = &mut self.dictionary.mappings;
        let same = |row| table.get(row) == mapping;
        match self.mappings.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(mapping)),
        }
    }

    pub fn location(&mut self, location: LocationRef<'_>) -> LocationIdx {
        if location == LocationRef::default() {
            return Idx::UNSET;
        }
        let hash = |hasher: &mut FoldHasher| {
            hasher.write_u64(location.location.address);
            hasher.write_u32(location.location.mapping.get());
            for line in location.lines {
                hasher.write_u32(line.function.get());
                hasher.write_i64(line.line);
                hasher.write_i64(line.column);
            }
            hash_indices(location.attributes, hasher);
        };
        let table = &mut self.dictionary.locations;
        let same = |row| table.is(row, &location);
        match self.locations.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(location)),
        }
    }

    /// A stack, leaf first.
    pub fn stack(&mut self, locations: &[LocationIdx]) -> StackIdx {
        if locations.is_empty() {
            return Idx::UNSET;
        }
        let hash = |hasher: &mut FoldHasher| hash_indices(locations, hasher);
        let table = &mut self.dictionary.stacks;
        let same = |row| table.get(row) == locations;
        match self.stacks.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(locations)),
        }
    }

    pub fn attribute(&mut self, attribute: AttributeRef<'_>) -> AttributeIdx {
        let AttributeRef { key, value, unit } = attribute;
        if let Value::Str(text) = value {
            let value = || Ok::<_, Infallible>(value.clone());
            let Ok(row) = self.text_attribute(key, text.as_bytes(), unit, value);
            return row;
        }
        if !key.is_set() && !unit.is_set() && *value == Value::Empty {
            return Idx::UNSET;
        }
        let hash = |hasher: &mut FoldHasher| {
            hash_indices(&[key, unit], hasher);
            value.hash(hasher);
        };
        let table = &mut self.dictionary.attributes;
        let same = |row| {
            table.get(row).is_some_and(|row: &Attribute| {
                row.key == key && row.unit == unit && row.value == *value
            })
        };
        match self.attributes.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(Attribute {
                key,
                value: value.clone(),
                unit,
            })),
        }
    }

    /// Like [`attribute`](Self::attribute), for a validated text value.
    pub(crate) fn valid_text_attribute(
        &mut self,
        key: StringIdx,
        text: &[u8],
        unit: StringIdx,
    ) -> Result<AttributeIdx, WireError> {
        let value = || valid(text).map(Value::from);
        self.text_attribute(key, text, unit, value)
    }

    #[inline(always)]
    fn text_attribute<E>(
        &mut self,
        key: StringIdx,
        text: &[u8],
        unit: StringIdx,
        value: impl FnOnce() -> Result<Value, E>,
    ) -> Result<AttributeIdx, E> {
        let hash = |hasher: &mut FoldHasher| {
            hash_indices(&[key, unit], hasher);
            hasher.write(text);
        };
        let table = &mut self.dictionary.attributes;
        let same = |row| {
            table.get(row).is_some_and(|row: &Attribute| {
                let value = row.value.as_str();
                row.key == key
                    && row.unit == unit
                    && value.is_some_and(|value| value.as_bytes() == text)
            })
        };
        Ok(match self.attributes.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(Attribute {
                key,
                value: value()?,
                unit,
            })),
        })
    }

    pub fn link(&mut self, link: Link) -> LinkIdx {
        if link == Link::default() {
            return Idx::UNSET;
        }
        let hash = |hasher: &mut FoldHasher| link.hash(hasher);
        let table = &mut self.dictionary.links;
        let same = |row| table.get(row) == Some(&link);
        match self.links.find(&self.hasher, hash, same) {
            RowLookup::Known(row) => row,
            RowLookup::New(slot) => slot.set(table.push(link)),
        }
    }
}

impl Sink for Interner {
    fn string(&mut self, text: &str) -> StringIdx {
        self.string(text)
    }

    fn function(&mut self, row: Function) -> FunctionIdx {
        self.function(row)
    }

    fn mapping(&mut self, row: MappingRef<'_>) -> MappingIdx {
        self.mapping(row)
    }

    fn location(&mut self, row: LocationRef<'_>) -> LocationIdx {
        self.location(row)
    }

    fn stack(&mut self, row: &[LocationIdx]) -> StackIdx {
        self.stack(row)
    }

    fn attribute(&mut self, row: AttributeRef<'_>) -> AttributeIdx {
        self.attribute(row)
    }

    fn link(&mut self, row: Link) -> LinkIdx {
        self.link(row)
    }
}

enum RowLookup<'a, T: ?Sized> {
    Known(Idx<T>),
    New(NewRow<'a>),
}

/// The vacant entry in a [`RowSet`] for a row about to be pushed.
struct NewRow<'a> {
    hash: u32,
    entry: VacantEntry<'a, HashedRow>,
    likely: &'a mut u32,
}

impl NewRow<'_> {
    fn set<T: ?Sized>(self, index: Idx<T>) -> Idx<T> {
        self.entry.insert(HashedRow {
            hash: self.hash,
            row: index.get(),
        });
        *self.likely = index.get() + 1;
        index
    }
}

impl RowSet {
    fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows, |known| spread(known.hash));
    }

    #[inline(always)]
    fn find_text(
        &mut self,
        hasher: &RandomState,
        table: &StringTable,
        text: &[u8],
    ) -> RowLookup<'_, str> {
        let hash = |hasher: &mut FoldHasher| hasher.write(text);
        self.find(hasher, hash, |row| table.bytes(row) == text)
    }

    /// Finds the row of a nonzero value.
    #[inline(always)]
    fn find<T: ?Sized>(
        &mut self,
        hasher: &RandomState,
        hash: impl FnOnce(&mut FoldHasher),
        same: impl Fn(Idx<T>) -> bool,
    ) -> RowLookup<'_, T> {
        let likely = Idx::new(self.likely);
        if same(likely) {
            self.likely += 1;
            return RowLookup::Known(likely);
        }
        let mut hasher = hasher.build_hasher();
        hash(&mut hasher);
        let hash = hasher.finish() as u32;
        let entry = self.rows.entry(
            spread(hash),
            |known| known.hash == hash && same(Idx::new(known.row)),
            |known| spread(known.hash),
        );
        match entry {
            Entry::Occupied(known) => {
                let row = known.get().row;
                self.likely = row + 1;
                RowLookup::Known(Idx::new(row))
            }
            Entry::Vacant(entry) => RowLookup::New(NewRow {
                hash,
                entry,
                likely: &mut self.likely,
            }),
        }
    }
}

/// Spreads 32 bits to 64, as the table uses the lowest and the highest bits.
/// Text that was validated when it came in.
fn valid(text: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(text).map_err(|_| WireError::NotUtf8)
}

fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn hash_indices<T: ?Sized>(indices: &[Idx<T>], hasher: &mut impl Hasher) {
    let (pairs, last) = indices.as_chunks::<2>();
    for [first, second] in pairs {
        hasher.write_u64(u64::from(first.get()) << 32 | u64::from(second.get()));
    }
    for last in last {
        hasher.write_u32(last.get());
    }
    hasher.write_usize(indices.len());
}
