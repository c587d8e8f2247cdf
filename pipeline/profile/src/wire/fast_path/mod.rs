//! The short way through validation, for messages as everybody writes them: one pass, fields in
//! the order of their numbers, no path to report.
//!
//! It only ever says "valid". Whatever is wrong, and what is merely unusual, it leaves to the walk
//! that can tell them apart and say where. Since tables are read in the order in which they come,
//! references to those that come later are checked at the end, by the highest of each kind.

mod cursor;
mod dictionary;
mod sample;

pub(super) use dictionary::{FastPathState, dictionary};
pub(super) use sample::sample;

use crate::{AttributeIdx, StringIdx};
use cursor::Cursor;

/// The highest index in a packed list of attributes that ends at `end`, provided that no two of
/// them have the same key.
#[inline(always)]
fn distinct_keys(list: &mut Cursor<'_>, end: usize, keys: &[StringIdx]) -> Option<AttributeIdx> {
    let start = *list;
    let mut highest = 0;
    // Keys of one list mostly stand close to each other in the string table, so that 64 bits tell
    // them apart; where they do not, a closer look is needed.
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
