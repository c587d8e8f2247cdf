//! JIT-compiled functions, their names and source lines.

use std::collections::BTreeMap;

/// Memory limit for the names of a process; the owner may grant less.
const MAX_BYTES: usize = 16 << 20;
/// Approximate memory of an entry besides its name.
const ENTRY: usize = 64;
/// Longer names are truncated: they are C++ or JavaScript names that nobody reads to the end.
const MAX_NAME_BYTES: usize = 1024;

/// Inlined code alternates between few files; a file that recurs after more than this many others is stored twice.
const RECENT_FILES: usize = 8;

/// The code in the memory of a process. New code replaces the code that it overlaps.
pub struct JitNames {
    by_start: BTreeMap<u64, Piece>,
    bytes: usize,
    max_bytes: usize,
}

struct Piece {
    end: u64,
    name: Box<str>,
    lines: Lines,
}

/// Source lines of the code, as far as its runtime provides them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    files: Vec<Box<str>>,
    /// Sorted by offset from the start of the code.
    by_start: Vec<Line>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    start: u32,
    line: u32,
    /// Index into the files.
    file: u32,
}

/// The symbol at an address in JIT-compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedCode<'a> {
    pub name: &'a str,
    /// Empty if unknown.
    pub file: &'a str,
    /// 0 if unknown.
    pub line: u32,
}

impl Lines {
    /// Appends a line. Lines are looked up by binary search, so one with a lower offset is dropped.
    pub fn add(&mut self, start: u32, line: u32, file: &str) {
        let file = cut(file);
        let recent = self.files.len().saturating_sub(RECENT_FILES);
        let index = (recent..self.files.len()).find(|&at| *self.files[at] == *file);
        let file = index.unwrap_or_else(|| {
            self.files.push(file.into());
            self.files.len() - 1
        });
        let line = Line {
            start,
            line,
            file: file as u32,
        };
        match self.by_start.last() {
            Some(last) if last.start > start => {}
            _ => self.by_start.push(line),
        }
    }

    fn find(&self, offset: u64) -> (&str, u32) {
        let behind = self
            .by_start
            .partition_point(|line| u64::from(line.start) <= offset);
        let line = behind.checked_sub(1).and_then(|at| self.by_start.get(at));
        let Some(line) = line else {
            return ("", 0);
        };
        let file = self.files.get(line.file as usize);
        (file.map_or("", |file| file), line.line)
    }

    fn bytes(&self) -> usize {
        let names: usize = self.files.iter().map(|file| file.len() + ENTRY).sum();
        names + size_of_val(self.by_start.as_slice())
    }
}

impl Piece {
    fn bytes(&self) -> usize {
        self.name.len() + ENTRY + self.lines.bytes()
    }
}

/// Truncates a name.
fn cut(name: &str) -> &str {
    let mut length = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    name.get(..length).unwrap_or_default()
}

impl JitNames {
    pub(super) fn new(granted: usize) -> Self {
        Self {
            by_start: BTreeMap::new(),
            bytes: 0,
            max_bytes: granted.min(MAX_BYTES),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub fn find(&self, address: u64) -> Option<GeneratedCode<'_>> {
        let (start, piece) = self.by_start.range(..=address).next_back()?;
        if address >= piece.end {
            return None;
        }
        let (file, line) = piece.lines.find(address - start);
        Some(GeneratedCode {
            name: &piece.name,
            file,
            line,
        })
    }

    /// `false` if there is no room left.
    pub(super) fn insert(&mut self, start: u64, size: u64, name: &str, lines: Lines) -> bool {
        let Some(end) = start.checked_add(size).filter(|&end| end > start) else {
            return true;
        };
        self.clear(start, end);
        let piece = Piece {
            end,
            name: cut(name).into(),
            lines,
        };
        if self.bytes + piece.bytes() > self.max_bytes {
            return false;
        }
        self.bytes += piece.bytes();
        self.by_start.insert(start, piece);
        true
    }

    /// The code at `from` has moved to `to`.
    pub(super) fn move_code(&mut self, from: u64, to: u64, size: u64) {
        if let Some(piece) = self.by_start.remove(&from) {
            self.bytes -= piece.bytes();
            self.insert(to, size, &piece.name, piece.lines);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.by_start.clear();
        self.bytes = 0;
    }

    /// Removes all pieces that overlap the range.
    fn clear(&mut self, start: u64, end: u64) {
        while let Some((&at, piece)) = self.by_start.range(..end).next_back()
            && piece.end > start
        {
            self.bytes -= piece.bytes();
            self.by_start.remove(&at);
        }
    }
}
