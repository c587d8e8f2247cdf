//! Source position tables.

use serde::{Deserialize, Serialize};

/// A position in the source of a script, and its inlined function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub u64);

impl Position {
    /// The character offset in the script; None if there is no position.
    pub fn offset(self) -> Option<u32> {
        let is_external = self.0 & 1 != 0;
        let offset = (self.0 >> 1 & 0x3fff_ffff).checked_sub(1)?;
        (!is_external).then_some(offset as u32)
    }

    /// The number of the inlined function; None if it is in the function itself.
    pub fn inlined(self) -> Option<usize> {
        (self.0 >> 31 & 0xffff).checked_sub(1).map(|id| id as usize)
    }
}

/// The encoding of code offset deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PositionFormat {
    Plain,
    /// Entries with a flag for the start of a statement.
    Flagged,
}

/// The entries of a table by code offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions(Vec<(u32, Position)>);

impl Positions {
    /// Reads pairs of deltas to the previous entry. Stops at an invalid entry.
    pub fn read(bytes: &[u8], format: PositionFormat) -> Self {
        let mut entries = Vec::new();
        // The function entry has offset -1, before the first instruction.
        let (mut code, mut position) = (-1i64, 0i64);
        let mut bytes = bytes.iter();
        while let (Some(step), Some(moved)) = (unsigned(&mut bytes), unsigned(&mut bytes)) {
            let step = match format {
                PositionFormat::Plain => signed(step),
                PositionFormat::Flagged => signed(step >> 1),
            };
            // A negative delta marks an expression and is stored as -(delta + 1).
            code += if step < 0 { -(step + 1) } else { step };
            position = position.wrapping_add(signed(moved));
            let Ok(offset) = u32::try_from(code.max(0)) else {
                break;
            };
            entries.push((offset, Position(position as u64)));
        }
        Self(entries)
    }

    /// The position of the instruction that begins at or before this offset.
    pub fn at(&self, offset: u32) -> Option<Position> {
        let behind = self.0.partition_point(|(code, _)| *code <= offset);
        let entry = self.0.get(behind.checked_sub(1)?)?;
        Some(entry.1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Position)> {
        self.0.iter().copied()
    }
}

/// The lowest bit is the sign.
fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Groups of seven bits, lowest first.
pub fn unsigned<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
