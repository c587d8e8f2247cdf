//! Conformance rules for emitted profiles, stricter than those for received ones.
//!
//! In addition to validation: row 0 of every table exists, keys are compared by text, and optionally no row is
//! duplicate or unreferenced. Row names are those of OTLP. The check works row by row and shares no code with garbage
//! collection, so that each tests the other.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::Bytes;

use crate::wire::{self, Skip, tags::dictionary as table};
use crate::{AttributeIdx, Dictionary, Idx, Invalid, Model, WireError};

/// Optional rules of [`check`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Report duplicate rows.
    pub duplicates: bool,
    /// Report unreferenced rows.
    pub orphans: bool,
}

impl CheckOptions {
    /// All rules.
    pub const STRICT: Self = Self {
        duplicates: true,
        orphans: true,
    };
}

#[derive(Debug, thiserror::Error)]
pub enum Nonconformance {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Unreadable(#[from] WireError),
    #[error("dictionary.{table} has no row 0")]
    NoRowZero { table: &'static str },
    #[error("dictionary.{table}[{row}] is a duplicate of row {first}")]
    Duplicate {
        table: &'static str,
        row: usize,
        first: usize,
    },
    #[error("dictionary.{table}[{row}] is not referenced")]
    Orphan { table: &'static str, row: usize },
    #[error("duplicate key `{key}` in a list of attributes")]
    DuplicateKey { key: String },
}

const TABLES: [(u32, &str); 7] = [
    (table::MAPPINGS, "mapping_table"),
    (table::LOCATIONS, "location_table"),
    (table::FUNCTIONS, "function_table"),
    (table::LINKS, "link_table"),
    (table::STRINGS, "string_table"),
    (table::ATTRIBUTES, "attribute_table"),
    (table::STACKS, "stack_table"),
];

/// Checks an `ExportProfilesServiceRequest`; stops at the first problem.
pub fn check(wire: &Bytes, options: CheckOptions) -> Result<(), Nonconformance> {
    wire::validate(wire)?;
    let rows = wire::table_lengths(wire)?;
    for (tag, table) in TABLES {
        if rows(tag) == 0 {
            return Err(Nonconformance::NoRowZero { table });
        }
    }
    let model = wire::decode(wire, &Skip::default())?;
    keys(&model)?;
    if options.duplicates {
        duplicates(&model.dictionary)?;
    }
    if options.orphans {
        orphans(&model, &wire::referenced_strings(wire)?)?;
    }
    Ok(())
}

fn keys(model: &Model) -> Result<(), Nonconformance> {
    let tables = &*model.dictionary;
    let mappings = tables.mappings.iter().map(|row| row.attributes);
    let locations = tables.locations.iter().map(|row| row.attributes);
    for list in mappings.chain(locations) {
        key_list(tables, list)?;
    }
    for profile in model.profiles() {
        key_list(tables, &profile.attributes)?;
        for sample in profile.samples.iter() {
            key_list(tables, sample.attributes)?;
        }
    }
    Ok(())
}

fn key_list(tables: &Dictionary, list: &[AttributeIdx]) -> Result<(), Nonconformance> {
    let text = |index: &AttributeIdx| {
        let row = tables.attributes.get(*index);
        row.map_or("", |row| tables.strings.get(row.key))
    };
    let mut keys: Vec<&str> = list.iter().map(text).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Nonconformance::DuplicateKey {
            key: pair[0].into(),
        }),
        None => Ok(()),
    }
}

fn duplicates(tables: &Dictionary) -> Result<(), Nonconformance> {
    distinct("string_table", tables.strings.iter())?;
    distinct("attribute_table", tables.attributes.rows().iter())?;
    distinct("function_table", tables.functions.rows().iter())?;
    distinct("link_table", tables.links.rows().iter())?;
    distinct("mapping_table", tables.mappings.iter())?;
    distinct("location_table", tables.locations.iter())?;
    distinct("stack_table", tables.stacks.iter())
}

fn distinct<Row: Eq + Hash>(
    table: &'static str,
    rows: impl Iterator<Item = Row>,
) -> Result<(), Nonconformance> {
    let mut seen = HashMap::new();
    for (row, content) in rows.enumerate() {
        if let Some(first) = seen.insert(content, row) {
            return Err(Nonconformance::Duplicate { table, row, first });
        }
    }
    Ok(())
}

fn orphans(model: &Model, text: &[crate::StringIdx]) -> Result<(), Nonconformance> {
    let tables = &*model.dictionary;
    let mut strings = Uses::of("string_table", tables.strings.len());
    let mut attributes = Uses::of("attribute_table", tables.attributes.rows().len());
    let mut functions = Uses::of("function_table", tables.functions.rows().len());
    let mut links = Uses::of("link_table", tables.links.rows().len());
    let mut mappings = Uses::of("mapping_table", tables.mappings.rows().len());
    let mut locations = Uses::of("location_table", tables.locations.rows().len());
    let mut stacks = Uses::of("stack_table", tables.stacks.len());

    strings.add(text);
    for profile in model.profiles() {
        for value_type in profile.sample_type.iter().chain(&profile.period_type) {
            strings.add(&[value_type.kind, value_type.unit]);
        }
        attributes.add(&profile.attributes);
        for sample in profile.samples.iter() {
            stacks.add(&[sample.stack]);
            links.add(&[sample.link]);
            attributes.add(sample.attributes);
        }
    }
    for row in tables.stacks.iter() {
        locations.add(row);
    }
    for row in tables.locations.iter() {
        mappings.add(&[row.location.mapping]);
        attributes.add(row.attributes);
        for line in row.lines {
            functions.add(&[line.function]);
        }
    }
    for row in tables.mappings.iter() {
        strings.add(&[row.mapping.filename]);
        attributes.add(row.attributes);
    }
    for row in tables.functions.rows() {
        strings.add(&[row.name, row.system_name, row.filename]);
    }
    for row in tables.attributes.rows() {
        strings.add(&[row.key, row.unit]);
    }
    strings.all()?;
    attributes.all()?;
    functions.all()?;
    links.all()?;
    mappings.all()?;
    locations.all()?;
    stacks.all()
}

/// The referenced rows of a table.
struct Uses {
    table: &'static str,
    used: Vec<bool>,
}

impl Uses {
    fn of(table: &'static str, rows: usize) -> Self {
        let used = vec![false; rows];
        Self { table, used }
    }

    fn add<T: ?Sized>(&mut self, indices: &[Idx<T>]) {
        for index in indices {
            if let Some(used) = self.used.get_mut(index.row()) {
                *used = true;
            }
        }
    }

    /// Row 0 may be unreferenced.
    fn all(self) -> Result<(), Nonconformance> {
        match self.used.iter().skip(1).position(|used| !used) {
            Some(position) => Err(Nonconformance::Orphan {
                table: self.table,
                row: position + 1,
            }),
            None => Ok(()),
        }
    }
}
