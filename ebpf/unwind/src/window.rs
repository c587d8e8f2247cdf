//! A cache of the most recently read blocks of a file.

use profcol_elf::Source;

/// The block size. Data of adjacent entries is mostly close together.
const BLOCK: u64 = 16 << 10;

/// The number of cached blocks: walking an index with its FDEs and CIEs alternates between three positions.
const BLOCKS: usize = 4;

/// A cache of the most recently read blocks of a file.
pub(crate) struct Window<'s, S: ?Sized> {
    source: &'s S,
    length: u64,
    blocks: [Block; BLOCKS],
    /// The next block to evict.
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
        let index = match self.blocks.iter().position(has_it) {
            Some(index) => index,
            None => {
                let index = self.next;
                self.next = (index + 1) % BLOCKS;
                let size = size.max(BLOCK).min(self.length - offset);
                let mut bytes = vec![0; size as usize];
                self.source.read_at(&mut bytes, offset).ok()?;
                *self.blocks.get_mut(index)? = Block { offset, bytes };
                index
            }
        };
        self.blocks.get(index)?.part(offset, size)
    }
}
