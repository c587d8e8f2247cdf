//! Pieces of generated code and their names.

use std::collections::BTreeMap;

/// Memory for the names of one process.
const MOST_BYTES: usize = 16 << 20;
/// What an entry takes beside its name, about.
const ENTRY: usize = 64;
/// Longer names are cut: they are C++ or JavaScript that nobody reads to the end.
const LONGEST: usize = 1024;

/// What stands where in the memory of a process. Code that was written later takes the place of
/// what it covers.
#[derive(Default)]
pub struct JitNames {
    by_start: BTreeMap<u64, Piece>,
    bytes: usize,
}

struct Piece {
    end: u64,
    name: Box<str>,
}

impl JitNames {
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub fn find(&self, address: u64) -> Option<&str> {
        let (_, piece) = self.by_start.range(..=address).next_back()?;
        (address < piece.end).then_some(&*piece.name)
    }

    /// False where there is no room for more.
    pub(super) fn insert(&mut self, start: u64, size: u64, name: &str) -> bool {
        let Some(end) = start.checked_add(size).filter(|&end| end > start) else {
            return true;
        };
        self.clear(start, end);
        let mut length = name.len().min(LONGEST);
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        let name: Box<str> = name.get(..length).unwrap_or_default().into();
        if self.bytes + name.len() + ENTRY > MOST_BYTES {
            return false;
        }
        self.bytes += name.len() + ENTRY;
        self.by_start.insert(start, Piece { end, name });
        true
    }

    /// The code at `from` is at `to` now.
    pub(super) fn move_code(&mut self, from: u64, to: u64, size: u64) {
        if let Some(piece) = self.by_start.remove(&from) {
            self.bytes -= piece.name.len() + ENTRY;
            self.insert(to, size, &piece.name);
        }
    }

    pub(super) fn forget_all(&mut self) {
        *self = Self::default();
    }

    /// Forgets all pieces that reach into the range.
    fn clear(&mut self, start: u64, end: u64) {
        while let Some((&at, piece)) = self.by_start.range(..end).next_back()
            && piece.end > start
        {
            self.bytes -= piece.name.len() + ENTRY;
            self.by_start.remove(&at);
        }
    }
}
