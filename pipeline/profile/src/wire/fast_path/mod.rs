//! Fast path of validation for commonly encoded messages: one pass, fields in ascending order or, as the Collector's
//! encoder writes them, in descending order; no error paths.
//!
//! Its only verdict is "valid". Invalid and merely unusual input is left to the slow path, which can tell them apart
//! and report the path. As tables are read in wire order, forward references are checked at the end, by the highest
//! index per table.

mod cursor;
mod dictionary;
mod sample;

pub(super) use dictionary::{FastPathState, dictionary};
pub(super) use sample::sample;

use crate::{AttributeIdx, StringIdx};
use cursor::Cursor;

/// The order of the fields in a message.
const ASCENDING: bool = true;
const DESCENDING: bool = false;

/// The highest index in a packed list of attributes that ends at `end`, if their keys are distinct.
#[inline(always)]
fn distinct_keys(list: &mut Cursor<'_>, end: usize, keys: &[StringIdx]) -> Option<AttributeIdx> {
    let start = *list;
    let mut highest = 0;
    // Keys of one list are mostly close together in the string table, so 64 bits distinguish them; on a collision,
    // compare exactly.
    let (mut seen, mut repeated) = (0_u64, 0);
    while list.at < end {
        let attribute = list.small()?;
        let key = keys.get(attribute as usize)?.get();
        let bit = 1 << (key % 64);
        repeated |= seen & bit;
        seen |= bit;
        highest = highest.max(attribute);
    }
    if list.at != end || repeated != 0 && has_repeated_key(start, end, keys)? {
        return None;
    }
    Some(highest.into())
}

#[inline(never)]
fn has_repeated_key(mut list: Cursor<'_>, end: usize, keys: &[StringIdx]) -> Option<bool> {
    let mut found = Vec::new();
    while list.at < end {
        found.push(*keys.get(list.small()? as usize)?);
    }
    found.sort_unstable();
    Some(found.windows(2).any(|pair| pair[0] == pair[1]))
}
