//! Lines of an instruction sequence: entries, and a succinct table (rank over bits) of their positions.
//!
//! ```text
//! positions 0-53      nine per word, seven bits each: the number of entries up to there
//! positions 54-       blocks of 512: count before (8 bytes), counts within (8), bits (64)
//! ```

use super::object::word;

/// Positions in the first part of the table, and its size.
const FIRST_POSITIONS: usize = 54;
const FIRST_BYTES: usize = 48;
const PER_WORD: usize = 9;
const BLOCK_POSITIONS: usize = 512;
const BLOCK_BYTES: usize = 80;
const BLOCK_COUNTS: usize = 8;
const BLOCK_BITS: usize = 16;

/// Lines, each with its first position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<(u32, u32)>);

/// The table size for this many positions.
pub fn table_bytes(positions: usize) -> usize {
    let rest = positions.saturating_sub(FIRST_POSITIONS);
    FIRST_BYTES + rest.div_ceil(BLOCK_POSITIONS) * BLOCK_BYTES
}

impl Lines {
    /// `entries` are the lines, ordered by position.
    pub fn parse(positions: usize, table: &[u8], entries: &[u32]) -> Self {
        let mut lines = Vec::new();
        let mut last = None;
        for position in 0..positions {
            let Some(count) = count_up_to(table, position) else {
                break;
            };
            let line = count.checked_sub(1).and_then(|at| entries.get(at));
            let line = line.copied().unwrap_or(0);
            if last.replace(line) != Some(line) {
                lines.push((position as u32, line));
            }
        }
        lines.shrink_to_fit();
        Self(lines)
    }

    pub fn single(line: u32) -> Self {
        Self(vec![(0, line)])
    }

    /// 0 if there is none.
    pub fn find(&self, position: u32) -> u32 {
        let after = self.0.partition_point(|(start, _)| *start <= position);
        let entry = after.checked_sub(1).and_then(|at| self.0.get(at));
        entry.map_or(0, |(_, line)| *line)
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// The number of entries up to and including this position.
fn count_up_to(table: &[u8], position: usize) -> Option<usize> {
    let Some(rest) = position.checked_sub(FIRST_POSITIONS) else {
        let counts = word(table, position / PER_WORD * 8)?;
        return Some((counts >> (position % PER_WORD * 7)) as usize & 0x7f);
    };
    let block = FIRST_BYTES + rest / BLOCK_POSITIONS * BLOCK_BYTES;
    let block = table.get(block..)?;
    let at = rest % BLOCK_POSITIONS;
    let before = word(block, 0)? as u32 as usize;
    let within = match at / 64 {
        0 => 0,
        small => (word(block, BLOCK_COUNTS)? >> ((small - 1) * 9)) as usize & 0x1ff,
    };
    let bits = word(block, BLOCK_BITS + at / 64 * 8)?;
    let bits = (bits << (63 - at % 64)).count_ones() as usize;
    Some(before + within + bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a table like Ruby.
    fn table(size: usize, positions: &[usize]) -> Vec<u8> {
        let mut table = vec![0u8; table_bytes(size)];
        let mut add = |at: usize, value: u64| {
            let place: &mut [u8; 8] = table[at..].first_chunk_mut().unwrap();
            *place = (u64::from_le_bytes(*place) | value).to_le_bytes();
        };
        let up_to = |position: usize| positions.iter().filter(|&&it| it <= position).count();
        for position in 0..FIRST_POSITIONS.min(size) {
            let shift = position % PER_WORD * 7;
            add(position / PER_WORD * 8, (up_to(position) as u64) << shift);
        }
        for block in 0..size
            .saturating_sub(FIRST_POSITIONS)
            .div_ceil(BLOCK_POSITIONS)
        {
            let start = FIRST_POSITIONS + block * BLOCK_POSITIONS;
            let before = positions.iter().filter(|&&it| it < start).count();
            let at = FIRST_BYTES + block * BLOCK_BYTES;
            add(at, before as u64);
            for small in 1..8 {
                let within = up_to(start + small * 64 - 1) - before;
                add(at + BLOCK_COUNTS, (within as u64) << ((small - 1) * 9));
            }
            for &position in positions {
                if let Some(bit) = position.checked_sub(start)
                    && bit < BLOCK_POSITIONS
                {
                    add(at + BLOCK_BITS + bit / 64 * 8, 1 << (bit % 64));
                }
            }
        }
        table
    }

    #[test]
    fn finds_the_line_of_every_position() {
        let positions: Vec<usize> = (0..2000).filter(|at| at % 7 == 0 || at % 50 == 3).collect();
        let entries: Vec<u32> = positions.iter().map(|&at| at as u32 + 100).collect();
        for size in [1, 53, 54, 55, 700, 2000] {
            let positions: Vec<usize> = positions.iter().copied().filter(|&at| at < size).collect();
            let entries = entries.get(..positions.len()).unwrap();
            let lines = Lines::parse(size, &table(size, &positions), entries);
            for position in 0..size {
                let expected = positions.iter().rfind(|&&at| at <= position).unwrap();
                assert_eq!(lines.find(position as u32), *expected as u32 + 100);
            }
        }
    }

    #[test]
    fn survives_a_truncated_table() {
        let positions: Vec<usize> = (0..600).step_by(5).collect();
        let whole = table(600, &positions);
        for length in 0..whole.len() {
            Lines::parse(600, &whole[..length], &[1, 2]).find(3);
        }
    }
}
