//! Building a dictionary in which each thing stands once.
//!
//! The hash tables hold row numbers, not copies of rows: a key is compared with the row that
//! stands in the dictionary. That is what makes merging linear.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::dictionary::{Attribute, AttributeRef, Dictionary, Function, Link};
use crate::{
    AttributeIdx, FunctionIdx, Idx, LinkIdx, LocationIdx, LocationRef, MappingIdx, MappingRef,
    StackIdx, StringIdx, StringTable, Value,
};

/// A dictionary that grows: each method answers with the row of the thing, which is a new one if
/// it was not there.
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

/// Rows of one table by hash. Row 0 is not in it: what equals the zero value never gets here.
#[derive(Default)]
struct RowSet {
    rows: HashTable<HashedRow>,
}

/// The hash is kept so that growing need not hash rows again.
struct HashedRow {
    hash: u32,
    row: u32,
}

impl Interner {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for as many rows as `dictionary` has.
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

    /// What has been collected so far.
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
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(text)),
        }
    }

    /// As [`string`](Self::string), with bytes that validation has found to be text: only what is
    /// new is looked at again.
    pub(crate) fn valid_string(&mut self, text: &[u8]) -> StringIdx {
        if text.is_empty() {
            return Idx::UNSET;
        }
        let table = &mut self.dictionary.strings;
        match self.strings.find_text(&self.hasher, table, text) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(valid_text(text))),
        }
    }

    pub fn function(&mut self, function: Function) -> FunctionIdx {
        if function == Function::default() {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        function.hash(&mut hasher);
        let table = &mut self.dictionary.functions;
        let same = |row| table.get(row) == Some(&function);
        match self.functions.find(hasher, same) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(function)),
        }
    }

    pub fn mapping(&mut self, mapping: MappingRef<'_>) -> MappingIdx {
        if mapping == MappingRef::default() {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        mapping.mapping.hash(&mut hasher);
        hash_indices(mapping.attributes, &mut hasher);
        let table = &mut self.dictionary.mappings;
        match self.mappings.find(hasher, |row| table.get(row) == mapping) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(mapping)),
        }
    }

    pub fn location(&mut self, location: LocationRef<'_>) -> LocationIdx {
        if location == LocationRef::default() {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(location.location.address);
        hasher.write_u32(location.location.mapping.get());
        for line in location.lines {
            hasher.write_u32(line.function.get());
            hasher.write_i64(line.line);
            hasher.write_i64(line.column);
        }
        hash_indices(location.attributes, &mut hasher);
        let table = &mut self.dictionary.locations;
        match self
            .locations
            .find(hasher, |row| table.get(row) == location)
        {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(location)),
        }
    }

    /// A stack, leaf first.
    pub fn stack(&mut self, locations: &[LocationIdx]) -> StackIdx {
        if locations.is_empty() {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        hash_indices(locations, &mut hasher);
        let table = &mut self.dictionary.stacks;
        match self.stacks.find(hasher, |row| table.get(row) == locations) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(locations)),
        }
    }

    pub fn attribute(&mut self, attribute: AttributeRef<'_>) -> AttributeIdx {
        let AttributeRef { key, value, unit } = attribute;
        if let Value::Str(text) = value {
            let value = || value.clone();
            return self.text_attribute(key, text.as_bytes(), unit, value);
        }
        if !key.is_set() && !unit.is_set() && *value == Value::Empty {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        hash_indices(&[key, unit], &mut hasher);
        value.hash(&mut hasher);
        let table = &mut self.dictionary.attributes;
        let same = |row| {
            table.get(row).is_some_and(|row: &Attribute| {
                row.key == key && row.unit == unit && row.value == *value
            })
        };
        match self.attributes.find(hasher, same) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(Attribute {
                key,
                value: value.clone(),
                unit,
            })),
        }
    }

    /// As [`attribute`](Self::attribute), whose value is text that validation has looked at.
    pub(crate) fn valid_text_attribute(
        &mut self,
        key: StringIdx,
        text: &[u8],
        unit: StringIdx,
    ) -> AttributeIdx {
        self.text_attribute(key, text, unit, || Value::from(valid_text(text)))
    }

    #[inline(always)]
    fn text_attribute(
        &mut self,
        key: StringIdx,
        text: &[u8],
        unit: StringIdx,
        value: impl FnOnce() -> Value,
    ) -> AttributeIdx {
        let mut hasher = self.hasher.build_hasher();
        hash_indices(&[key, unit], &mut hasher);
        hasher.write(text);
        let table = &mut self.dictionary.attributes;
        let same = |row| {
            table.get(row).is_some_and(|row: &Attribute| {
                let value = row.value.as_str();
                row.key == key
                    && row.unit == unit
                    && value.is_some_and(|value| value.as_bytes() == text)
            })
        };
        match self.attributes.find(hasher, same) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(Attribute {
                key,
                value: value(),
                unit,
            })),
        }
    }

    pub fn link(&mut self, link: Link) -> LinkIdx {
        if link == Link::default() {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        link.hash(&mut hasher);
        let table = &mut self.dictionary.links;
        match self.links.find(hasher, |row| table.get(row) == Some(&link)) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(link)),
        }
    }
}

enum Found<'a, T: ?Sized> {
    Known(Idx<T>),
    New(NewRow<'a>),
}

/// The place in a [`RowSet`] of a row that is about to be pushed.
struct NewRow<'a> {
    hash: u32,
    entry: hashbrown::hash_table::VacantEntry<'a, HashedRow>,
}

impl NewRow<'_> {
    fn set<T: ?Sized>(self, index: Idx<T>) -> Idx<T> {
        self.entry.insert(HashedRow {
            hash: self.hash,
            row: index.get(),
        });
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
    ) -> Found<'_, str> {
        let mut hasher = hasher.build_hasher();
        hasher.write(text);
        self.find(hasher, |row| table.bytes(row) == text)
    }

    #[inline(always)]
    fn find<T: ?Sized>(
        &mut self,
        hasher: impl Hasher,
        same: impl Fn(Idx<T>) -> bool,
    ) -> Found<'_, T> {
        let hash = hasher.finish() as u32;
        let entry = self.rows.entry(
            spread(hash),
            |known| known.hash == hash && same(Idx::new(known.row)),
            |known| spread(known.hash),
        );
        match entry {
            Entry::Occupied(known) => Found::Known(Idx::new(known.get().row)),
            Entry::Vacant(entry) => Found::New(NewRow { hash, entry }),
        }
    }
}

fn valid_text(text: &[u8]) -> &str {
    std::str::from_utf8(text).expect("validation has found this to be UTF-8")
}

/// 32 bits to the 64 of which the table uses the lowest and the highest.
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
