//! The parts of `.gopclntab` with the stack deltas.
//!
//! ```text
//! functab    start and record of each function, in code order
//! record     offsets of its name and of its stack deltas, flags
//! pctab      streams of (delta of the value, delta of the address)
//! ```

use crate::UnwindTableError;
use crate::window::Window;
use profcol_elf::{Extent, Pclntab, PclntabVersion, Source};

/// The table is read in small pieces; the largest seen has 186 MB.
const MAX_TABLE: u64 = 1 << 30;

/// The number of functions in 2 GiB of code if each had only one cache line.
const MAX_FUNCTIONS: u64 = 1 << 26;

/// Longer than the names of all special functions.
const MAX_NAME: u64 = 32;

pub(super) struct Table<'s, S: ?Sized> {
    pub header: Pclntab,
    functab: Area<'s, S>,
    records: Area<'s, S>,
    names: Area<'s, S>,
    deltas: Area<'s, S>,
}

/// Extent of the table, up to the table's end.
struct Area<'s, S: ?Sized> {
    window: Window<'s, S>,
    start: u64,
    end: u64,
}

impl<'s, S: Source + ?Sized> Area<'s, S> {
    fn new(source: &'s S, table: Extent, offset: u64) -> Option<Self> {
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
    /// Empty for long names.
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
    pub fn open(source: &'s S, table: Extent) -> Result<Self, UnwindTableError> {
        table.check_size(MAX_TABLE)?;
        Self::parse(source, table).ok_or(UnwindTableError::Broken { what: table.what })
    }

    fn parse(source: &'s S, table: Extent) -> Option<Self> {
        let head = Extent {
            size: table.size.min(Pclntab::HEADER as u64),
            ..table
        };
        let header = Pclntab::parse(&head.read(source, head.size).ok()?)?;
        if !matches!(header.quantum, 1 | 4) || header.functions >= MAX_FUNCTIONS {
            return None;
        }
        Some(Self {
            functab: Area::new(source, table, header.functab)?,
            records: Area::new(source, table, header.functab)?,
            names: Area::new(source, table, header.funcnametab)?,
            deltas: Area::new(source, table, header.pctab)?,
            header,
        })
    }

    /// The start of the function, relative to the code, and the offset of its record. After the last
    /// function there is only its end.
    pub fn entry(&mut self, index: u64) -> Option<(u64, u64)> {
        let table = &mut self.functab;
        Some(match self.header.version {
            PclntabVersion::Go1_16 => {
                let at = 16 * index;
                (table.u64(at)?, table.u64(at + 8).unwrap_or(0))
            }
            PclntabVersion::Go1_18 | PclntabVersion::Go1_20 => {
                let at = 8 * index;
                (table.u32(at)?.into(), table.u32(at + 4).unwrap_or(0).into())
            }
        })
    }

    pub fn record(&mut self, at: u64) -> Option<Record> {
        let (start, flags) = match self.header.version {
            PclntabVersion::Go1_16 => (8, 41),
            PclntabVersion::Go1_18 => (4, 37),
            PclntabVersion::Go1_20 => (4, 41),
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
            // Offset 0 means that the function has no deltas.
            next: (record.deltas > 0).then_some(record.deltas),
            area: &mut self.deltas,
            quantum: self.header.quantum.into(),
            at: 0,
            value: -1,
        }
    }
}

/// Offsets in a function, with the stack delta from there on.
pub(super) struct Deltas<'a, 's, S: ?Sized> {
    area: &'a mut Area<'s, S>,
    /// The offset of the next number; none after the end of the stream.
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
        // Each entry covers some code; otherwise the stream is corrupt and would be endless.
        let length = u64::from(self.number().filter(|&length| length > 0)?);
        self.at += length * self.quantum;
        Some((start, self.value))
    }
}
