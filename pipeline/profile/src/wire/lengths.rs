//! Encoded lengths of single messages, summed up when splitting to a bound in bytes.
//!
//! Lengths are measured by encoding, so they always match.

use super::encode;
use crate::proto::Writer;
use crate::{Dictionary, Profile, ResourceProfiles, SampleRef, ScopeProfiles};

/// Lengths of dictionary rows, including tag and length prefix.
pub(crate) struct RowLengths {
    pub strings: Vec<u32>,
    pub functions: Vec<u32>,
    pub mappings: Vec<u32>,
    pub locations: Vec<u32>,
    pub stacks: Vec<u32>,
    pub attributes: Vec<u32>,
    pub links: Vec<u32>,
    /// Length of a request with only row 0 of each table.
    pub empty: usize,
    scratch: Writer,
}

/// Maximum growth of a length prefix over that of an empty message.
const MAX_LENGTH_BYTES: usize = 4;

impl RowLengths {
    pub fn of(tables: &Dictionary) -> Self {
        let mut out = Writer::default();
        Self {
            strings: lengths(&mut out, tables.strings.iter_bytes(), encode::write_string),
            functions: lengths(
                &mut out,
                tables.functions.rows().iter(),
                encode::write_function,
            ),
            mappings: lengths(&mut out, tables.mappings.iter(), encode::write_mapping),
            locations: lengths(&mut out, tables.locations.iter(), encode::write_location),
            stacks: lengths(&mut out, tables.stacks.iter(), encode::write_stack),
            attributes: lengths(
                &mut out,
                tables.attributes.rows().iter(),
                encode::write_attribute,
            ),
            links: lengths(&mut out, tables.links.rows().iter(), encode::write_link),
            empty: measure(&mut out, |out| {
                encode::write_request(out, &Default::default());
            }) + MAX_LENGTH_BYTES,
            scratch: out,
        }
    }

    pub fn sample(&mut self, row: SampleRef<'_>) -> usize {
        measure(&mut self.scratch, |out| encode::write_sample(out, row))
    }

    // Heads are messages without their repeated fields.

    /// `whole`: includes the fields that only unsplit profiles have.
    pub fn profile_head(&mut self, row: &Profile, whole: bool) -> usize {
        let mut head = row.head();
        if !whole {
            head.forget_whole();
        }
        measure(&mut self.scratch, |out| encode::write_profile(out, &head)) + MAX_LENGTH_BYTES
    }

    pub fn scope_head(&mut self, row: &ScopeProfiles) -> usize {
        let write = |out: &mut Writer| encode::write_scope_profiles(out, row, &[]);
        measure(&mut self.scratch, write) + MAX_LENGTH_BYTES
    }

    pub fn resource_head(&mut self, row: &ResourceProfiles) -> usize {
        let write = |out: &mut Writer| encode::write_resource_profiles(out, row, &[]);
        measure(&mut self.scratch, write) + MAX_LENGTH_BYTES
    }
}

fn lengths<Row>(
    out: &mut Writer,
    rows: impl Iterator<Item = Row>,
    write: impl Fn(&mut Writer, Row),
) -> Vec<u32> {
    rows.map(|row| measure(out, |out| write(out, row)) as u32)
        .collect()
}

fn measure(out: &mut Writer, write: impl FnOnce(&mut Writer)) -> usize {
    out.clear();
    write(out);
    out.len()
}
