//! Access to a section for the DWARF reader; bytes are fetched on demand.
//!
//! A section is not mapped, because truncating a mapped file kills the reader, and not read as a whole, because it may
//! be gigabytes. It is read in blocks, and the last few are cached. Only decompressed sections are held as a whole.
//!
//! Every read burns [`Fuel`]: files can be inconsistent in so many ways that only a bound on all reads bounds the time.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gimli::{Error, LittleEndian, Reader, ReaderOffsetId, Result};
use profcol_elf::{Extent, Source};

/// Block size for random access: names are anywhere.
const BLOCK: usize = 4 << 10;
/// Maximum block size for sequential access.
const MAX_BLOCK: usize = 64 << 10;
/// Cached blocks per section: reading entries is sequential, with jumps to another position.
const HELD: usize = 4;
/// No name or path is longer.
const MAX_TEXT: usize = 64 << 10;

/// The remaining number of reads; shared by the sections of a file.
#[derive(Clone, Debug, Default)]
pub struct Fuel(Rc<Cell<u64>>);

impl Fuel {
    pub fn fill(&self, reads: u64) {
        self.0.set(reads);
    }

    pub fn left(&self) -> u64 {
        self.0.get()
    }

    /// Limits `work` to this many reads.
    pub fn limited<T>(&self, reads: u64, work: impl FnOnce() -> T) -> T {
        let before = self.left();
        let limit = before.min(reads);
        self.fill(limit);
        let done = work();
        self.fill(before - (limit - self.left()));
        done
    }

    #[inline(always)]
    fn burn(&self, reads: u64) -> Option<()> {
        let left = self.0.get().checked_sub(reads);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ())
    }
}

/// Part of a section, starting at `start`.
#[derive(Debug, Default)]
struct Block {
    start: usize,
    bytes: Vec<u8>,
}

impl Block {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }

    fn has(&self, at: usize) -> bool {
        (self.start..self.end()).contains(&at)
    }
}

pub struct Section {
    content: Content,
    fuel: Fuel,
    held: RefCell<Vec<Rc<Block>>>,
}

enum Content {
    InFile {
        source: Rc<dyn Source>,
        offset: u64,
        length: usize,
    },
    InMemory(Rc<Block>),
}

impl Section {
    /// A section in a file.
    pub fn in_file(source: Rc<dyn Source>, extent: Extent, fuel: Fuel) -> Rc<Self> {
        Self::new(
            Content::InFile {
                source,
                offset: extent.offset,
                length: extent.size as usize,
            },
            fuel,
        )
    }

    pub fn in_memory(bytes: Vec<u8>, fuel: Fuel) -> Rc<Self> {
        Self::new(Content::InMemory(Rc::new(Block { start: 0, bytes })), fuel)
    }

    fn new(content: Content, fuel: Fuel) -> Rc<Self> {
        Rc::new(Self {
            content,
            fuel,
            held: RefCell::default(),
        })
    }

    pub fn view(self: &Rc<Self>) -> View {
        View {
            section: Rc::clone(self),
            block: Rc::default(),
            start: 0,
            end: self.len(),
        }
    }

    fn len(&self) -> usize {
        match &self.content {
            Content::InFile { length, .. } => *length,
            Content::InMemory(block) => block.bytes.len(),
        }
    }

    /// Bytes held permanently.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::InFile { .. } => 0,
            Content::InMemory(block) => block.bytes.len(),
        }
    }

    /// Frees blocks that can be read again.
    pub fn forget_blocks(&self) {
        self.held.borrow_mut().clear();
    }

    /// The block that contains this byte.
    fn block(&self, at: usize) -> Option<Rc<Block>> {
        let (source, offset, length) = match &self.content {
            Content::InMemory(block) => return Some(Rc::clone(block)),
            Content::InFile {
                source,
                offset,
                length,
            } => (source, *offset, *length),
        };
        let start = at / BLOCK * BLOCK;
        let mut held = self.held.borrow_mut();
        if let Some(index) = held.iter().position(|block| block.has(at)) {
            let block = held.remove(index);
            held.push(Rc::clone(&block));
            return Some(block);
        }
        let before = held.iter().find(|block| block.end() == start);
        let size = before.map_or(BLOCK, |block| (block.bytes.len() * 2).min(MAX_BLOCK));
        let mut bytes = vec![0; length.checked_sub(start)?.min(size)];
        let from = offset.checked_add(start as u64)?;
        source.read_at(&mut bytes, from).ok()?;
        let block = Rc::new(Block { start, bytes });
        if held.len() >= HELD {
            held.remove(0);
        }
        held.push(Rc::clone(&block));
        Some(block)
    }
}

/// A reader of part of a section.
#[derive(Clone)]
pub struct View {
    section: Rc<Section>,
    /// The last block read, which usually contains the next bytes, too.
    block: Rc<Block>,
    start: usize,
    end: usize,
}

impl View {
    /// The content as text, with invalid UTF-8 replaced.
    pub fn text(&self) -> Option<String> {
        let length = self.len();
        if length > MAX_TEXT {
            return None;
        }
        let mut bytes = vec![0; length];
        self.clone().read_slice(&mut bytes).ok()?;
        Some(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// The zero-terminated text at this offset.
    pub fn text_at(&self, offset: usize) -> Option<String> {
        let mut view = self.clone();
        view.skip(offset).ok()?;
        view.read_null_terminated_slice().ok()?.text()
    }

    /// The bytes at this offset. Each byte burns as much as a read.
    pub fn bytes(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let mut view = self.clone();
        view.skip(offset).ok()?;
        if length > view.len() {
            return None;
        }
        self.section.fuel.burn(length as u64)?;
        let mut bytes = vec![0; length];
        match &self.section.content {
            // Bypasses the blocks: large reads are rarely repeated.
            Content::InFile { source, offset, .. } => {
                let from = offset.checked_add(view.start as u64)?;
                source.read_at(&mut bytes, from).ok()?;
            }
            Content::InMemory(_) => view.read_slice(&mut bytes).ok()?,
        }
        Some(bytes)
    }

    pub fn fuel(&self) -> &Fuel {
        &self.section.fuel
    }

    fn eof(&self) -> Error {
        Error::UnexpectedEof(self.offset_id())
    }

    /// The part of the view in the block at its start; never empty.
    #[inline(always)]
    fn here(&self) -> Option<&[u8]> {
        let from = self.start.checked_sub(self.block.start)?;
        let to = self.block.bytes.len().min(self.end - self.block.start);
        self.block
            .bytes
            .get(from..to)
            .filter(|here| !here.is_empty())
    }

    #[cold]
    fn read_slowly(&mut self, buffer: &mut [u8]) -> Option<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.here().is_none() {
                self.block = self.section.block(self.start)?;
            }
            let here = self.here()?;
            let rest = buffer.get_mut(filled..)?;
            let size = here.len().min(rest.len());
            rest.get_mut(..size)?.copy_from_slice(here.get(..size)?);
            filled += size;
            self.start += size;
        }
        Some(())
    }
}

impl Reader for View {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn empty(&mut self) {
        self.end = self.start;
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(self.eof());
        }
        self.end = self.start + len;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.start.saturating_sub(base.start)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.start as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let at = usize::try_from(id.0).ok()?;
        (self.start..=self.end)
            .contains(&at)
            .then(|| at - self.start)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let mut view = self.clone();
        while view.start < view.end {
            if view.here().is_none() {
                view.block = view.section.block(view.start).ok_or_else(|| self.eof())?;
            }
            let here = view.here().ok_or_else(|| self.eof())?;
            let (length, position) = (here.len(), here.iter().position(|&it| it == byte));
            let looked = position.unwrap_or(length) as u64;
            let burnt = self.section.fuel.burn(1 + looked / 16);
            burnt.ok_or_else(|| self.eof())?;
            if let Some(position) = position {
                return Ok(view.start + position - self.start);
            }
            view.start += length;
        }
        Err(self.eof())
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        if len > self.len() || self.section.fuel.burn(1).is_none() {
            return Err(self.eof());
        }
        self.start += len;
        Ok(())
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Self> {
        let mut first = self.clone();
        first.truncate(len)?;
        self.skip(len)?;
        Ok(first)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        if self.len() > MAX_TEXT {
            return Err(self.eof());
        }
        let mut bytes = vec![0; self.len()];
        self.clone().read_slice(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        self.to_string_lossy()
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        self.text().map(Cow::Owned).ok_or_else(|| self.eof())
    }

    #[inline]
    fn read_slice(&mut self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() > self.len() || self.section.fuel.burn(1).is_none() {
            return Err(self.eof());
        }
        let from = self.start.wrapping_sub(self.block.start);
        if let Some(bytes) = self.block.bytes.get(from..from.wrapping_add(buffer.len())) {
            buffer.copy_from_slice(bytes);
            self.start += buffer.len();
            return Ok(());
        }
        let read = self.read_slowly(buffer);
        read.ok_or_else(|| self.eof())
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}
