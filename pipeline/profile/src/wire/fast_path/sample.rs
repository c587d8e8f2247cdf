//! Samples.

use super::cursor::Cursor;
use super::distinct_keys;
use crate::wire::tags::sample as tags;
use crate::wire::validate::Window;
use crate::{AttributeIdx, LinkIdx, StackIdx, StringIdx};

/// What of a sample is left to be checked.
pub(in crate::wire) struct Sample {
    pub stack: StackIdx,
    pub link: LinkIdx,
    /// The highest of its attributes.
    pub attribute: AttributeIdx,
    /// From its first to its last timestamp.
    pub seen: Window,
}

#[inline(always)]
pub(in crate::wire) fn sample(message: &[u8], keys: &[StringIdx]) -> Option<Sample> {
    let mut sample = Sample {
        stack: StackIdx::UNSET,
        link: LinkIdx::UNSET,
        attribute: AttributeIdx::UNSET,
        seen: Window::default(),
    };
    let mut cursor = Cursor::new(message);
    if cursor.next_is(tags::STACK) {
        sample.stack = cursor.small()?.into();
    }
    if cursor.next_is(tags::ATTRIBUTES) {
        sample.attribute = {
            let end = cursor.end()?;
            distinct_keys(&mut cursor, end, keys)?
        };
    }
    if cursor.next_is(tags::LINK) {
        sample.link = cursor.small()?.into();
    }
    let mut values = 0;
    if cursor.next_is(tags::VALUES) {
        let end = cursor.end()?;
        while cursor.at < end {
            cursor.skip_number()?;
            values += 1;
        }
        if cursor.at != end {
            return None;
        }
    }
    let mut timestamps = 0;
    if cursor.next_is(tags::TIMESTAMPS) {
        let (list, cut) = cursor.slice()?.as_chunks::<8>();
        if !cut.is_empty() {
            return None;
        }
        for timestamp in list {
            let timestamp = u64::from_le_bytes(*timestamp);
            sample.seen.extend(Window::at(timestamp));
        }
        timestamps = list.len();
    }
    let observed = match (values, timestamps) {
        (0, 0) => false,
        (0, _) | (1, 0) => true,
        _ => values == timestamps,
    };
    (observed && cursor.is_at_end()).then_some(sample)
}
