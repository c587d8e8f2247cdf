//! The rule of each decoded byte.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use profcol_ebpf_common::rule::Rule;

use crate::gaps::Gaps;

/// What each byte of each gap holds: nothing, or a rule number, and whether an instruction begins there.
pub struct DecodedBytes {
    bytes: Vec<Vec<u16>>,
    rules: Vec<Rule>,
    numbers: HashMap<Rule, u16, RandomState>,
}

const NOTHING: u16 = 0;
const UNSUPPORTED: u16 = 1;
const BEGINS: u16 = 1 << 15;

impl DecodedBytes {
    pub fn new(gaps: &Gaps) -> Self {
        let gaps = gaps.as_slice().iter();
        Self {
            bytes: gaps.map(|gap| vec![NOTHING; gap.bytes.len()]).collect(),
            // The first two entries match the constants above.
            rules: vec![Rule::Gap, Rule::Unsupported],
            numbers: HashMap::from_iter([(Rule::Unsupported, UNSUPPORTED)]),
        }
    }

    pub fn clear(&mut self) {
        for bytes in &mut self.bytes {
            bytes.fill(NOTHING);
        }
    }

    /// Whether the address is part of a decoded instruction.
    pub fn holds(&self, gaps: &Gaps, at: u64) -> bool {
        let place = gaps.find(at);
        let byte = place.and_then(|(gap, offset)| self.bytes.get(gap)?.get(offset));
        byte.is_some_and(|&byte| byte != NOTHING)
    }

    /// Bytes that are neither decoded nor padding.
    pub fn unread(&self, gaps: &Gaps) -> usize {
        const PADDING: [u8; 3] = [0x00, 0x90, 0xcc];
        let gaps = gaps.as_slice().iter().zip(&self.bytes);
        let bytes = gaps.flat_map(|(gap, decoded)| gap.bytes.iter().zip(decoded));
        bytes
            .filter(|&(byte, &decoded)| decoded == NOTHING && !PADDING.contains(byte))
            .count()
    }

    /// Adds an instruction. Bytes that were decoded differently before become unsupported.
    pub fn add(&mut self, gaps: &Gaps, at: u64, length: usize, rule: Rule) {
        let number = self.number(rule);
        let Some(bytes) = self.part(gaps, at, length) else {
            return;
        };
        let mut read = number | BEGINS;
        for byte in bytes {
            *byte = match *byte {
                NOTHING => read,
                known if known == read => read,
                known => UNSUPPORTED | known & BEGINS,
            };
            read = number;
        }
    }

    /// Marks undecoded bytes in these ranges as unsupported code.
    pub fn mark_unsupported(&mut self, gaps: &Gaps, mut ranges: Vec<(u64, u64)>) {
        ranges.sort_unstable();
        let mut done = 0;
        for (start, end) in ranges {
            // Ranges may overlap; each byte is processed once.
            let start = start.max(done);
            let end = end.min(gaps.end(start));
            let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
            for byte in self.part(gaps, start, length).into_iter().flatten() {
                if *byte == NOTHING {
                    *byte = UNSUPPORTED;
                }
            }
            done = done.max(end);
        }
    }

    fn part(&mut self, gaps: &Gaps, at: u64, length: usize) -> Option<&mut [u16]> {
        let (gap, offset) = gaps.find(at)?;
        let bytes = self.bytes.get_mut(gap)?.get_mut(offset..)?;
        let length = length.min(bytes.len());
        bytes.get_mut(..length)
    }

    fn number(&mut self, rule: Rule) -> u16 {
        if let Some(&number) = self.numbers.get(&rule) {
            return number;
        }
        let number = self.rules.len() as u16;
        if number >= BEGINS {
            return UNSUPPORTED;
        }
        self.rules.push(rule);
        self.numbers.insert(rule, number);
        number
    }

    /// Address ranges and their rules.
    pub fn rows(&self, gaps: &Gaps) -> Vec<(u64, u64, Rule)> {
        let mut rows: Vec<(u64, u64, Rule)> = Vec::new();
        for (gap, bytes) in gaps.as_slice().iter().zip(&self.bytes) {
            let mut start = gap.start;
            for run in bytes.chunk_by(|a, b| a & !BEGINS == b & !BEGINS) {
                let end = start.saturating_add(run.len() as u64);
                let number = run.first().map_or(NOTHING, |byte| byte & !BEGINS);
                if number != NOTHING
                    && let Some(&rule) = self.rules.get(usize::from(number))
                {
                    rows.push((start, end, rule));
                }
                start = end;
            }
        }
        rows
    }
}
