//! Line tables.

use super::layout::LineTable;

/// The lines of a function, each with the index of its first instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<Entry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: u32,
    /// 0 for instructions without a line.
    line: u32,
}

impl Lines {
    pub fn parse(kind: LineTable, first_line: u32, table: &[u8]) -> Self {
        let mut lines = Self(Vec::new());
        match kind {
            LineTable::Lnotab => lines.read_lnotab(first_line, table),
            LineTable::Ranges => lines.read_ranges(first_line, table),
            LineTable::Locations => lines.read_locations(first_line, table),
        }
        lines.0.shrink_to_fit();
        lines
    }

    /// 0 if there is none.
    pub fn find(&self, index: u32) -> u32 {
        let after = self.0.partition_point(|entry| entry.start <= index);
        let entry = after.checked_sub(1).and_then(|at| self.0.get(at));
        entry.map_or(0, |entry| entry.line)
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }

    fn push(&mut self, start: u32, line: i64) {
        let line = u32::try_from(line).unwrap_or(0);
        match self.0.last_mut() {
            Some(last) if last.start == start => last.line = line,
            Some(last) if last.line == line => {}
            _ => self.0.push(Entry { start, line }),
        }
    }

    /// Pairs: the number of bytes up to the next line, and the line delta.
    fn read_lnotab(&mut self, first_line: u32, table: &[u8]) {
        let (mut at, mut line) = (0u32, i64::from(first_line));
        self.push(0, line);
        let (pairs, _) = table.as_chunks::<2>();
        for &[bytes, lines] in pairs {
            at = at.saturating_add(bytes.into());
            line += i64::from(lines as i8);
            self.push(at / 2, line);
        }
    }

    /// Pairs: the line delta of a range, and its number of bytes.
    fn read_ranges(&mut self, first_line: u32, table: &[u8]) {
        const NO_LINE: i8 = -128;
        let (mut at, mut line) = (0u32, i64::from(first_line));
        let (pairs, _) = table.as_chunks::<2>();
        for &[bytes, lines] in pairs {
            let lines = lines as i8;
            if lines == NO_LINE {
                self.push(at / 2, 0);
            } else {
                line += i64::from(lines);
                if bytes > 0 {
                    self.push(at / 2, line);
                }
            }
            at = at.saturating_add(bytes.into());
        }
    }

    /// Entries: a first byte with kind and length, followed by bytes that depend on the kind.
    fn read_locations(&mut self, first_line: u32, table: &[u8]) {
        const ONE_LINE: std::ops::RangeInclusive<u8> = 10..=12;
        const NO_COLUMNS: u8 = 13;
        const LONG: u8 = 14;
        const NONE: u8 = 15;
        let (mut at, mut line) = (0u32, i64::from(first_line));
        let mut rest = table.iter();
        while let Some(&first) = rest.next() {
            let kind = first >> 3 & 15;
            let units = u32::from(first & 7) + 1;
            let mut skip = 0;
            match kind {
                NONE => {}
                LONG => {
                    line += signed(&mut rest);
                    for _ in 0..3 {
                        unsigned(&mut rest);
                    }
                }
                NO_COLUMNS => line += signed(&mut rest),
                kind if ONE_LINE.contains(&kind) => {
                    line += i64::from(kind - 10);
                    skip = 2;
                }
                _ => skip = 1,
            }
            for _ in 0..skip {
                rest.next();
            }
            self.push(at, if kind == NONE { 0 } else { line });
            at = at.saturating_add(units);
        }
    }
}

/// Six bits per byte, lowest first.
fn unsigned<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> u32 {
    const MORE: u8 = 0x40;
    let (mut value, mut shift) = (0u32, 0);
    for &byte in bytes {
        value |= u32::from(byte & 0x3f).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & MORE == 0 {
            break;
        }
    }
    value
}

fn signed<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> i64 {
    let value = unsigned(bytes);
    let size = i64::from(value >> 1);
    if value & 1 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(kind: LineTable, table: &[u8], indices: &[u32]) -> Vec<u32> {
        let lines = Lines::parse(kind, 10, table);
        indices.iter().map(|&index| lines.find(index)).collect()
    }

    #[test]
    fn reads_each_kind() {
        // 4 bytes on line 10, 2 on 11, then 9.
        let lnotab = [4, 1, 2, 0xfe];
        assert_eq!(
            lines(LineTable::Lnotab, &lnotab, &[0, 1, 2, 3, 9]),
            [10, 10, 11, 9, 9]
        );
        // 4 bytes on line 10, 2 without one, 2 on line 12.
        let ranges = [4, 0, 2, 0x80, 2, 2];
        assert_eq!(
            lines(LineTable::Ranges, &ranges, &[0, 1, 2, 3]),
            [10, 10, 0, 12]
        );
        // Two units on the first line, one without a line, one on the next, one in long form 100 lines back.
        let locations = [
            0x80 | 1, // short form, two units
            0,
            0x80 | 15 << 3,
            0x80 | 11 << 3,
            0,
            0,
            0x80 | 14 << 3,
            0x40 | (9 & 0x3f),
            0,
            0,
            0,
            0,
        ];
        assert_eq!(
            lines(LineTable::Locations, &locations, &[0, 1, 2, 3, 4]),
            [10, 10, 0, 11, 7]
        );
    }

    #[test]
    fn survives_truncated_and_random_tables() {
        for length in 0..200usize {
            let table: Vec<u8> = (0..length).map(|at| (at * 37 + 11) as u8).collect();
            for kind in [LineTable::Lnotab, LineTable::Ranges, LineTable::Locations] {
                Lines::parse(kind, u32::MAX, &table).find(3);
            }
        }
    }
}
