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
    StackIdx, StringIdx,
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
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        let table = &mut self.dictionary.strings;
        match self.strings.find(hasher, |row| table.get(row) == text) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(text)),
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
        let same_as = |row: &Attribute| {
            row.key == attribute.key && row.unit == attribute.unit && row.value == *attribute.value
        };
        if same_as(&Attribute::default()) {
            return Idx::UNSET;
        }
        let mut hasher = self.hasher.build_hasher();
        attribute.hash(&mut hasher);
        let table = &mut self.dictionary.attributes;
        let same = |row| table.get(row).is_some_and(same_as);
        match self.attributes.find(hasher, same) {
            Found::Known(row) => row,
            Found::New(slot) => slot.set(table.push(Attribute {
                key: attribute.key,
                value: attribute.value.clone(),
                unit: attribute.unit,
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

/// 32 bits to the 64 of which the table uses the lowest and the highest.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn hash_indices<T>(indices: &[Idx<T>], hasher: &mut impl Hasher) {
    let (pairs, last) = indices.as_chunks::<2>();
    for [first, second] in pairs {
        hasher.write_u64(u64::from(first.get()) << 32 | u64::from(second.get()));
    }
    for last in last {
        hasher.write_u32(last.get());
    }
    hasher.write_usize(indices.len());
}
