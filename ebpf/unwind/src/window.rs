//! The parts of a file that were read last.

use profcol_elf::Source;

/// What is read at once: what belongs to neighbours mostly stands together.
const BLOCK: u64 = 16 << 10;

/// Blocks that are held: who goes along an index and the two kinds of entries that it leads to is at
/// three places in turn.
const BLOCKS: usize = 4;

/// The parts of the file that were read last.
pub(crate) struct Window<'s, S: ?Sized> {
    source: &'s S,
    length: u64,
    blocks: [Block; BLOCKS],
    /// The one that is given up next.
    next: usize,
}

#[derive(Default)]
struct Block {
    offset: u64,
    bytes: Vec<u8>,
}

impl Block {
    fn part(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(size as usize)?)
    }
}

impl<'s, S: Source + ?Sized> Window<'s, S> {
    pub fn new(source: &'s S) -> Self {
        Self {
            source,
            length: source.length().unwrap_or(0),
            blocks: Default::default(),
            next: 0,
        }
    }

    pub fn get(&mut self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        if end > self.length {
            return None;
        }
        let has_it = |block: &Block| block.part(offset, size).is_some();
        let place = match self.blocks.iter().position(has_it) {
            Some(place) => place,
            None => {
                let place = self.next;
                self.next = (place + 1) % BLOCKS;
                let size = size.max(BLOCK).min(self.length - offset);
                let mut bytes = vec![0; size as usize];
                self.source.read_at(&mut bytes, offset).ok()?;
                *self.blocks.get_mut(place)? = Block { offset, bytes };
                place
            }
        };
        self.blocks.get(place)?.part(offset, size)
    }
}
