//! `.gopclntab`, as Go's linker wrote it since 1.16.
//!
//! ```text
//! header     magic, quantum, number of functions, address of the code, offsets of the parts
//! functab    start and record of each function, in the order of the code
//! record     offsets of its name and of its stack deltas, flags
//! pctab      streams of (delta of the value, delta of the address)
//! ```

use crate::source::{Part, Window};
use crate::{Refused, Source};

/// It is read in small pieces; the largest seen has 186 MB.
const MAX_TABLE: u64 = 1 << 30;

/// Functions of code of 2 GiB, were they all as small as one line of it.
const MAX_FUNCTIONS: u64 = 1 << 26;

/// Longer names are of no function that is known here.
const MAX_NAME: u64 = 32;

const MAGIC_1_16: u32 = 0xffff_fffa;
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Go1_16,
    Go1_18,
    Go1_20,
}

pub(super) struct Table<'s, S: ?Sized> {
    pub version: Version,
    quantum: u64,
    pub count: u64,
    /// Address of the code, where it is written.
    pub text: u64,
    functab: Area<'s, S>,
    records: Area<'s, S>,
    names: Area<'s, S>,
    deltas: Area<'s, S>,
}

/// Part of the table, up to the table's end.
struct Area<'s, S: ?Sized> {
    window: Window<'s, S>,
    start: u64,
    end: u64,
}

impl<'s, S: Source + ?Sized> Area<'s, S> {
    fn new(source: &'s S, table: Part, offset: u64) -> Option<Self> {
        let end = table.offset.checked_add(table.size)?;
        let start = table.offset.checked_add(offset)?;
        (start <= end).then(|| Self {
            window: Window::new(source),
            start,
            end,
        })
    }

    fn get(&mut self, at: u64, size: u64) -> Option<&[u8]> {
        let at = self.start.checked_add(at)?;
        if at.checked_add(size)? > self.end {
            return None;
        }
        self.window.get(at, size)
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at, 4)?.first_chunk()?))
    }

    fn u64(&mut self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(*self.get(at, 8)?.first_chunk()?))
    }
}

pub(super) struct Record {
    deltas: u64,
    pub flags: u8,
    /// None of those that are long.
    pub name: Name,
}

/// The first bytes of a function's name.
pub(super) struct Name([u8; MAX_NAME as usize]);

impl Name {
    pub fn get(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl<'s, S: Source + ?Sized> Table<'s, S> {
    pub fn open(source: &'s S, part: Part) -> Result<Self, Refused> {
        if part.size > MAX_TABLE {
            return Err(Refused::TooLarge {
                what: part.what,
                size: part.size,
                limit: MAX_TABLE,
            });
        }
        Self::parse(source, part).ok_or(Refused::Broken { what: part.what })
    }

    fn parse(source: &'s S, part: Part) -> Option<Self> {
        let mut header = Area::new(source, part, 0)?;
        let version = match header.u32(0)? {
            MAGIC_1_16 => Version::Go1_16,
            MAGIC_1_18 => Version::Go1_18,
            MAGIC_1_20 => Version::Go1_20,
            _ => return None,
        };
        let &[_, _, quantum @ (1 | 4), 8] = header.get(4, 4)? else {
            return None;
        };
        let mut word = |index: u64| header.u64(8 + 8 * index);
        // The address of the code was added before the offsets.
        let (text, names) = match version {
            Version::Go1_16 => (0, 2),
            Version::Go1_18 | Version::Go1_20 => (word(2)?, 3),
        };
        let count = word(0).filter(|&count| count < MAX_FUNCTIONS)?;
        let records = word(names + 4)?;
        Some(Self {
            version,
            quantum: u64::from(quantum),
            count,
            functab: Area::new(source, part, records)?,
            records: Area::new(source, part, records)?,
            names: Area::new(source, part, word(names)?)?,
            deltas: Area::new(source, part, word(names + 3)?)?,
            text,
        })
    }

    /// Start of the function, counted from the code, and offset of its record. Behind the last
    /// function stands only its end.
    pub fn entry(&mut self, index: u64) -> Option<(u64, u64)> {
        let table = &mut self.functab;
        Some(match self.version {
            Version::Go1_16 => {
                let at = 16 * index;
                (table.u64(at)?, table.u64(at + 8).unwrap_or(0))
            }
            Version::Go1_18 | Version::Go1_20 => {
                let at = 8 * index;
                (table.u32(at)?.into(), table.u32(at + 4).unwrap_or(0).into())
            }
        })
    }

    pub fn record(&mut self, at: u64) -> Option<Record> {
        let (start, flags) = match self.version {
            Version::Go1_16 => (8, 41),
            Version::Go1_18 => (4, 37),
            Version::Go1_20 => (4, 41),
        };
        let record = self.records.get(at, flags + 1)?;
        let flags = *record.last()?;
        let number = |at: usize| {
            let bytes = record.get(at..)?.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*bytes)))
        };
        let (name, deltas) = (number(start)?, number(start + 12)?);
        Some(Record {
            deltas,
            flags,
            name: self.name(name),
        })
    }

    fn name(&mut self, at: u64) -> Name {
        let mut name = [0; MAX_NAME as usize];
        if let Some(bytes) = self.names.get(at, MAX_NAME) {
            name.copy_from_slice(bytes);
        }
        Name(name)
    }

    pub fn function(&mut self, index: u64) -> Option<(u64, Record)> {
        let (entry, record) = self.entry(index)?;
        Some((entry, self.record(record)?))
    }

    pub fn deltas(&mut self, record: &Record) -> Deltas<'_, 's, S> {
        Deltas {
            // At the start of the part stands a zero, for functions that have none.
            next: (record.deltas > 0).then_some(record.deltas),
            area: &mut self.deltas,
            quantum: self.quantum,
            at: 0,
            value: -1,
        }
    }
}

/// Offsets in a function, and how far the stack is moved from there on.
pub(super) struct Deltas<'a, 's, S: ?Sized> {
    area: &'a mut Area<'s, S>,
    /// Where the next number stands; none once the stream has ended.
    next: Option<u64>,
    quantum: u64,
    at: u64,
    value: i32,
}

impl<S: Source + ?Sized> Deltas<'_, '_, S> {
    fn number(&mut self) -> Option<u32> {
        let mut number = 0u32;
        let mut at = self.next.take()?;
        for shift in (0..32).step_by(7) {
            let &[byte] = self.area.get(at, 1)? else {
                return None;
            };
            at += 1;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                self.next = Some(at);
                return Some(number);
            }
        }
        None
    }
}

impl<S: Source + ?Sized> Iterator for Deltas<'_, '_, S> {
    type Item = (u64, i32);

    fn next(&mut self) -> Option<Self::Item> {
        let change = self.number()?;
        if change == 0 && self.at > 0 {
            self.next = None;
            return None;
        }
        let change = (change >> 1) as i32 ^ -((change & 1) as i32);
        self.value = self.value.wrapping_add(change);
        let start = self.at;
        // Each holds for something, or the stream is broken and would have no end.
        let length = u64::from(self.number().filter(|&length| length > 0)?);
        self.at += length * self.quantum;
        Some((start, self.value))
    }
}
