//! The compressed `LineNumberTable` of a method.

use super::unsigned5::Unsigned5;

/// The lines of a method, each with its first bytecode index; unsorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<(u32, u32)>);

/// A method has at most 64 KiB of bytecode.
const MAX_LINES: usize = 1 << 16;

/// A byte that announces two integers, because the deltas do not fit into one byte.
const TWO_INTEGERS: u8 = 0xff;

impl Lines {
    pub fn parse(table: &[u8], excludes_zero: bool) -> Self {
        let mut lines = Vec::new();
        let mut reader = Unsigned5::new(table, excludes_zero);
        let (mut bci, mut line) = (0u32, 0u32);
        while lines.len() < MAX_LINES
            && let Some(byte) = reader.byte()
        {
            match byte {
                0 => break,
                TWO_INTEGERS => {
                    let (Some(bytes), Some(delta)) = (reader.signed(), reader.signed()) else {
                        break;
                    };
                    bci = bci.wrapping_add_signed(bytes);
                    line = line.wrapping_add_signed(delta);
                }
                byte => {
                    bci = bci.wrapping_add(u32::from(byte >> 3));
                    line = line.wrapping_add(u32::from(byte & 7));
                }
            }
            lines.push((bci, line));
        }
        lines.shrink_to_fit();
        Self(lines)
    }

    /// 0 if there is none.
    pub fn find(&self, bci: u32) -> u32 {
        let before = self.0.iter().filter(|(start, _)| *start <= bci);
        let best = before.max_by_key(|(start, _)| *start);
        best.map_or(0, |(_, line)| *line)
    }

    pub fn first(&self) -> u32 {
        self.0.first().map_or(0, |(_, line)| *line)
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest_start_before() {
        // Index 0 on line 7, 2 on 8; then 12 on 3; back to 5 on 4.
        let table = [7, 2 << 3 | 1, 0xff, 20, 9, 0xff, 13, 2, 0, 1];
        let lines = Lines::parse(&table, false);
        let found = [0, 1, 2, 4, 5, 11, 12, 99].map(|bci| lines.find(bci));
        assert_eq!(found, [7, 7, 8, 8, 4, 4, 3, 3]);
        assert_eq!(lines.first(), 7);
    }

    #[test]
    fn survives_truncated_and_random_tables() {
        for length in 0..200usize {
            let table: Vec<u8> = (0..length).map(|at| (at * 37 + 11) as u8).collect();
            for excludes_zero in [false, true] {
                Lines::parse(&table, excludes_zero).find(3);
            }
        }
    }
}
