//! Validation: one walk over the received bytes that checks everything later code relies on.
//!
//! Tables are checked first, each after those it references, then resources down to samples. Nothing is allocated per
//! row or sample. Valid input in the common encoding takes the fast path (`fast_path`), everything else the slow path
//! in this module. Besides the format itself, the rules are those of the profiling SIG's conformance checker:
//!
//! * every index is in range, including those in attribute values; omitted tables still have row 0, and row 0 is the
//!   zero value (for a link, 16 and 8 zero bytes are accepted too);
//! * attribute keys are distinct by text within a list, resource or scope;
//! * link ids are 16 and 8 bytes or empty, profile ids 16 or empty;
//! * a sample has values or timestamps; if both, equally many; without timestamps exactly one value;
//! * timestamps are within their profile, including its end: senders close a profile with the last sample, and instant
//!   profiles have no duration. A profile without a time has no bounds;
//! * a mapping starts below its limit or has neither; lines are not negative; a function has a name, a system name or a
//!   file name; an original payload has a format and vice versa.
//!
//! A request without samples is valid. In repair the same walk records faults instead of failing, and a row that
//! references a bad row is bad itself, down to the samples.

mod attributes;
mod profiles;
mod resources;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::decode::{RowQuality, Skip};
use super::fast_path::{self, FastPathState};
use super::invalid::{Fault, Invalid, Reason, WithPath};
use super::references::Known;
use super::rows::RowLists;
use super::tables::{Request, Tables};
use super::tags::dictionary as tags;
use super::text::is_text;
use super::texts::Texts;
use crate::dictionary::{Attribute, Function, Link, Location, Mapping, Stack};
use crate::proto::WireError;
use crate::{Profile, ResourceProfiles, ScopeProfiles, StringIdx};

/// The counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub resources: usize,
    pub profiles: usize,
    pub samples: usize,
    /// Estimated memory to decode the undecoded parts: two-byte messages become rows of some hundred bytes.
    pub undecoded_size: usize,
}

/// Result of repair.
pub(crate) struct RepairReport {
    pub skip: Skip,
    /// Number of bad samples by reason.
    pub bad: BTreeMap<Reason, usize>,
    pub counts: Counts,
}

/// Checks everything; stops at the first fault.
pub(crate) fn validate(wire: &[u8]) -> Result<Counts, Invalid> {
    Ok(walk(wire, false)?.counts)
}

/// Checks everything and records faults; fails only if the bytes cannot be decoded.
pub(crate) fn repair(wire: &[u8]) -> Result<RepairReport, Invalid> {
    walk(wire, true)
}

fn walk(wire: &[u8], repair: bool) -> Result<RepairReport, Invalid> {
    let request = Request::read(wire)?;
    let mut walk = match fast_path::dictionary(&request.dictionary) {
        Some(fast_path) => Walk::after_fast_path(fast_path, repair),
        None => Walk::through_tables(&request.dictionary, repair).field("dictionary")?,
    };
    for (position, resource) in request.resources.iter().enumerate() {
        walk.resource_profiles(resource)
            .item("resource_profiles", position)?;
    }
    walk.counts.undecoded_size = wire.len() + walk.row_size();
    walk.skip.rows = RowQuality::Repaired;
    Ok(RepairReport {
        skip: walk.skip,
        bad: walk.bad,
        counts: walk.counts,
    })
}

struct Walk<'a> {
    repair: bool,
    strings: Known<str>,
    attributes: Known<Attribute>,
    functions: Known<Function>,
    links: Known<Link>,
    mappings: Known<Mapping>,
    locations: Known<Location>,
    stacks: Known<Stack>,
    texts: Texts<'a>,
    /// The key of each attribute table row; keys of equal text are equal.
    keys: Vec<StringIdx>,
    /// Keys of a long list with positions, to find duplicates.
    key_order: Vec<(StringIdx, usize)>,
    lists: RowLists,
    counts: Counts,
    scopes: usize,
    skip: Skip,
    bad: BTreeMap<Reason, usize>,
}

impl<'a> Walk<'a> {
    fn after_fast_path(fast_path: FastPathState<'a>, repair: bool) -> Self {
        let rows = |table| fast_path.rows.of(table).unwrap_or_default();
        Self::new(rows, fast_path.keys, fast_path.texts, repair)
    }

    fn through_tables(dictionary: &'a [u8], repair: bool) -> Result<Self, Invalid> {
        let tables = Tables::read(dictionary)?;
        let keys = Vec::with_capacity(tables.len(tags::ATTRIBUTES) as usize);
        let mut walk = Self::new(|table| tables.len(table), keys, tables.texts(), repair);
        walk.dictionary(&tables)?;
        Ok(walk)
    }

    fn new(
        rows: impl Fn(u32) -> u32,
        keys: Vec<StringIdx>,
        texts: Texts<'a>,
        repair: bool,
    ) -> Self {
        Self {
            repair,
            strings: Known::new("strings", rows(tags::STRINGS)),
            attributes: Known::new("attributes", rows(tags::ATTRIBUTES)),
            functions: Known::new("functions", rows(tags::FUNCTIONS)),
            links: Known::new("links", rows(tags::LINKS)),
            mappings: Known::new("mappings", rows(tags::MAPPINGS)),
            locations: Known::new("locations", rows(tags::LOCATIONS)),
            stacks: Known::new("stacks", rows(tags::STACKS)),
            texts,
            keys,
            key_order: Vec::new(),
            lists: RowLists::default(),
            counts: Counts::default(),
            scopes: 0,
            skip: Skip::default(),
            bad: BTreeMap::new(),
        }
    }

    /// Memory of the rows, without text and lists.
    fn row_size(&self) -> usize {
        /// The indices and three list ends.
        const SAMPLE: usize = 5 * size_of::<u32>() + size_of::<i64>();
        let rows = [
            (self.strings.rows(), size_of::<u32>()),
            (self.attributes.rows(), size_of::<Attribute>()),
            (self.functions.rows(), size_of::<Function>()),
            (self.links.rows(), size_of::<Link>()),
            (
                self.mappings.rows(),
                size_of::<Mapping>() + size_of::<u32>(),
            ),
            (
                self.locations.rows(),
                size_of::<Location>() + 2 * size_of::<u32>(),
            ),
            (self.stacks.rows(), size_of::<u32>()),
            (self.counts.resources, size_of::<ResourceProfiles>()),
            (self.scopes, size_of::<ScopeProfiles>()),
            (self.counts.profiles, size_of::<Profile>()),
            (self.counts.samples, SAMPLE),
        ];
        let sizes = rows.map(|(rows, size)| rows.saturating_mul(size));
        sizes.into_iter().fold(0, usize::saturating_add)
    }

    /// Records a fault if repair can drop the faulty part.
    #[inline(always)]
    fn note(&self, result: Result<(), Invalid>) -> Result<Option<Reason>, Invalid> {
        match result {
            Ok(()) => Ok(None),
            Err(invalid) => self.note_fault(invalid).map(Some),
        }
    }

    #[cold]
    fn note_fault(&self, invalid: Invalid) -> Result<Reason, Invalid> {
        if self.repair && !invalid.is_unreadable() {
            Ok(invalid.reason())
        } else {
            Err(invalid)
        }
    }
}

#[inline(always)]
fn utf8(text: &[u8]) -> Result<(), Fault> {
    if is_text(text) {
        Ok(())
    } else {
        Err(Fault::Utf8)
    }
}

fn id_length(id: &[u8], expected: usize) -> Result<(), Fault> {
    let len = id.len();
    if len != 0 && len != expected {
        return Err(Fault::IdLength { len, expected });
    }
    Ok(())
}

fn once(times: usize, tag: u32) -> Result<(), Invalid> {
    if times > 1 {
        let field = crate::proto::tag::field(tag);
        return Err(WireError::Twice { field }.into());
    }
    Ok(())
}
