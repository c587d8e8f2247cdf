//! Kernel symbols from /proc/kallsyms.
//!
//! A function takes 36 bytes: 122,000 functions take 4.4 MB.

use std::io::{self, BufRead, BufReader};

/// Kernel functions sorted by address.
#[derive(Default)]
pub struct KernelSymbols {
    /// The range of the core kernel text; modules are elsewhere.
    text: Option<(u64, u64)>,
    starts: Vec<u64>,
    /// The end of each function's name in `names`; the name of its module, if any, follows a tab.
    ends: Vec<u32>,
    names: String,
}

/// A kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    pub name: &'a str,
    pub module: Option<&'a str>,
    pub start: u64,
}

/// kallsyms has no sizes: an address further than this after the last symbol belongs to something else.
const MAX_LINE: u64 = 1 << 20;

/// More than any kernel has.
const MAX_SYMBOLS: usize = 1 << 20;

impl KernelSymbols {
    pub fn read() -> io::Result<Self> {
        let file = std::fs::File::open("/proc/kallsyms")?;
        Self::parse(BufReader::with_capacity(1 << 16, file))
    }

    /// Whether the kernel hides its addresses from this process.
    pub fn is_hidden(&self) -> bool {
        self.starts.is_empty()
    }

    pub fn parse(mut lines: impl BufRead) -> io::Result<Self> {
        let mut entries: Vec<(u64, u32, u32)> = Vec::new();
        let mut names = String::new();
        let mut line = String::new();
        let (mut text_start, mut text_end) = (None, None);
        while lines.read_line(&mut line)? > 0 {
            if let Some((start, name, module)) = parse_line(&line)
                && entries.len() < MAX_SYMBOLS
            {
                match name {
                    "_text" => text_start = Some(start),
                    "_etext" => text_end = Some(start),
                    _ => {}
                }
                let begin = names.len() as u32;
                names.push_str(name);
                if let Some(module) = module {
                    names.push('\t');
                    names.push_str(module);
                }
                entries.push((start, begin, names.len() as u32));
            }
            line.clear();
        }
        entries.sort_by_key(|&(start, ..)| start);
        // The first of several names at an address wins.
        entries.dedup_by_key(|&mut (start, ..)| start);
        let mut symbols = Self {
            text: text_start.zip(text_end),
            starts: Vec::with_capacity(entries.len()),
            ends: Vec::with_capacity(entries.len()),
            names: String::with_capacity(names.len()),
        };
        for (start, begin, end) in entries {
            symbols.starts.push(start);
            symbols
                .names
                .push_str(names.get(begin as usize..end as usize).unwrap_or(""));
            symbols.ends.push(symbols.names.len() as u32);
        }
        Ok(symbols)
    }

    /// Memory use.
    pub fn bytes(&self) -> usize {
        self.starts.capacity() * 8 + self.ends.capacity() * 4 + self.names.capacity()
    }

    /// The start of the core kernel text, which differs between boots.
    pub fn text_start(&self) -> Option<u64> {
        self.text.map(|(start, _)| start)
    }

    pub fn find(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let index = self
            .starts
            .partition_point(|&start| start <= address)
            .checked_sub(1)?;
        let start = *self.starts.get(index)?;
        let end = *self.ends.get(index)? as usize;
        let begin = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        let whole = self.names.get(begin..end)?;
        let (name, module) = match whole.split_once('\t') {
            Some((name, module)) => (name, Some(module)),
            None => (whole, None),
        };
        let is_behind = match (module, self.text) {
            (None, Some((_, text_end))) => address >= text_end,
            _ => address - start >= MAX_LINE,
        };
        (!is_behind).then_some(KernelSymbol {
            name,
            module,
            start,
        })
    }
}

/// `ffffffff81000000 T _text` or `ffffffffc0000000 t name\t[module]`; only code with visible addresses.
fn parse_line(line: &str) -> Option<(u64, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = words.next()?;
    let module = words
        .next()
        .and_then(|word| word.strip_prefix('['))
        .and_then(|word| word.strip_suffix(']'));
    (start != 0 && matches!(kind, "t" | "T" | "w" | "W")).then_some((start, name, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_function_before_the_address() {
        let text = "ffffffff80ffff00 T _text\nffffffff81001000 T _etext\nffffffff81000100 T second\nffffffff81000000 T first\nffffffff81000050 d data\n\
                    ffffffffc0000000 t inside\t[module]\n0000000000000000 T hidden\nrubbish\n";
        let symbols = KernelSymbols::parse(text.as_bytes()).expect("reads from memory");
        let name = |address| {
            symbols
                .find(address)
                .map(|symbol| (symbol.name, symbol.module))
        };
        assert_eq!(name(0xffffffff81000000), Some(("first", None)));
        assert_eq!(name(0xffffffff810000ff), Some(("first", None)));
        assert_eq!(name(0xffffffff81000100), Some(("second", None)));
        assert_eq!(name(0xffffffffc0000123), Some(("inside", Some("module"))));
        assert_eq!(name(0xffffffff80000000), None);
        assert_eq!(name(0xffffffff81001234), None);
        assert_eq!(name(0xffffffffc0100000), None);
        assert_eq!(symbols.text_start(), Some(0xffffffff80ffff00));
        assert!(!symbols.is_hidden());
    }
}
