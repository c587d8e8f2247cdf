//! Fast path for samples.

use super::cursor::Cursor;
use super::{ASCENDING, DESCENDING, distinct_keys};
use crate::wire::tags::sample as tags;
use crate::wire::window::Window;
use crate::{AttributeIdx, LinkIdx, StackIdx, StringIdx};

/// The parts of a sample left to check.
pub(in crate::wire) struct Sample {
    pub stack: StackIdx,
    pub link: LinkIdx,
    /// The highest attribute index.
    pub attribute: AttributeIdx,
    /// The window of its timestamps.
    pub seen: Window,
}

#[inline(always)]
pub(in crate::wire) fn sample(message: &[u8], keys: &[StringIdx]) -> Option<Sample> {
    let first = message.first().map(|&tag| u32::from(tag));
    match first == Some(tags::STACK) {
        true => in_order::<ASCENDING>(message, keys),
        false => {
            in_order::<DESCENDING>(message, keys).or_else(|| in_order::<ASCENDING>(message, keys))
        }
    }
}

#[inline(always)]
fn in_order<const ORDER: bool>(message: &[u8], keys: &[StringIdx]) -> Option<Sample> {
    let mut fields = Fields {
        cursor: Cursor::new(message),
        sample: Sample {
            stack: StackIdx::UNSET,
            link: LinkIdx::UNSET,
            attribute: AttributeIdx::UNSET,
            seen: Window::default(),
        },
    };
    let (values, timestamps);
    if ORDER == ASCENDING {
        fields.stack()?;
        fields.attributes(keys)?;
        fields.link()?;
        values = fields.values()?;
        timestamps = fields.timestamps()?;
    } else {
        timestamps = fields.timestamps()?;
        values = fields.values()?;
        fields.link()?;
        fields.attributes(keys)?;
        fields.stack()?;
    }
    let observed = match (values, timestamps) {
        (0, 0) => false,
        (0, _) | (1, 0) => true,
        _ => values == timestamps,
    };
    (observed && fields.cursor.is_at_end()).then_some(fields.sample)
}

struct Fields<'a> {
    cursor: Cursor<'a>,
    sample: Sample,
}

impl Fields<'_> {
    #[inline(always)]
    fn stack(&mut self) -> Option<()> {
        if self.cursor.next_is(tags::STACK) {
            self.sample.stack = self.cursor.small()?.into();
        }
        Some(())
    }

    #[inline(always)]
    fn attributes(&mut self, keys: &[StringIdx]) -> Option<()> {
        if self.cursor.next_is(tags::ATTRIBUTES) {
            let end = self.cursor.end()?;
            self.sample.attribute = distinct_keys(&mut self.cursor, end, keys)?;
        }
        Some(())
    }

    #[inline(always)]
    fn link(&mut self) -> Option<()> {
        if self.cursor.next_is(tags::LINK) {
            self.sample.link = self.cursor.small()?.into();
        }
        Some(())
    }

    /// How many there are.
    #[inline(always)]
    fn values(&mut self) -> Option<usize> {
        let mut values = 0;
        if self.cursor.next_is(tags::VALUES) {
            let end = self.cursor.end()?;
            while self.cursor.at < end {
                self.cursor.skip_number()?;
                values += 1;
            }
            (self.cursor.at == end).then_some(())?;
        }
        Some(values)
    }

    /// How many there are.
    #[inline(always)]
    fn timestamps(&mut self) -> Option<usize> {
        if !self.cursor.next_is(tags::TIMESTAMPS) {
            return Some(0);
        }
        let (list, cut) = self.cursor.slice()?.as_chunks::<8>();
        if !cut.is_empty() {
            return None;
        }
        for timestamp in list {
            let timestamp = u64::from_le_bytes(*timestamp);
            self.sample.seen.extend(Window::at(timestamp));
        }
        Some(list.len())
    }
}
