//! Sections compressed as the gABI has it: a header (`SHF_COMPRESSED`), then a stream of zlib.
//!
//! zlib rather than zstd: every reader of compressed sections knows it, Go's since 1.6. Its fastest level
//! makes DWARF two and a half to five times smaller, and a disk is no faster than that.
//!
//! The size has to be known before the first byte goes out, and nothing of a section is kept. So it is
//! compressed twice, in pieces of the same sizes, and what comes out has to be equally long.

use std::io;
use std::ops::Range;

use flate2::{Compress, Compression, FlushCompress, Status};
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB};
use object::pod::bytes_of;
use object::{LittleEndian, U32, U64};

use profcol_elf::{LE, SectionHeader, Source};

/// What goes in at a time, and what comes out.
const INPUT: usize = 64 << 10;
const OUTPUT: usize = 64 << 10;

/// A section that is compressed on its way.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// Where it is in the file.
    pub from: Range<u64>,
    /// With the header, compressed.
    pub size: u64,
    header: [u8; HEADER],
}

const HEADER: usize = size_of::<CompressionHeader64<LittleEndian>>();
/// Of the header, and so of the section.
pub const ALIGNMENT: u64 = 8;

impl Compressed {
    /// None where it would not be smaller, or is asked to stop.
    pub fn measure(
        source: &(impl Source + ?Sized),
        section: &SectionHeader,
        from: Range<u64>,
        goes_on: &dyn Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let length = from.end - from.start;
        let mut section = Self {
            header: header(section, length),
            from,
            size: u64::MAX,
        };
        let mut reader = section.reader();
        let mut size = 0;
        while let Some(piece) = reader.next(source)? {
            size += piece.len() as u64;
            if size >= length || !goes_on() {
                return Ok(None);
            }
        }
        section.size = size;
        Ok(Some(section))
    }

    pub fn reader(&self) -> Reader {
        Reader {
            header: Some(self.header),
            compress: Compress::new(Compression::fast(), true),
            from: self.from.clone(),
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            is_done: false,
        }
    }
}

fn header(section: &SectionHeader, length: u64) -> [u8; HEADER] {
    let header = CompressionHeader64 {
        ch_type: U32::new(LE, ELFCOMPRESS_ZLIB),
        ch_reserved: U32::default(),
        ch_size: U64::new(LE, length),
        ch_addralign: U64::new(LE, section.sh_addralign.get(LE)),
    };
    let mut bytes = [0; HEADER];
    bytes.copy_from_slice(bytes_of(&header));
    bytes
}

/// Gives a compressed section piece by piece.
pub struct Reader {
    header: Option<[u8; HEADER]>,
    compress: Compress,
    /// What was not read yet.
    from: Range<u64>,
    input: Vec<u8>,
    used: usize,
    output: Vec<u8>,
    is_done: bool,
}

impl Reader {
    /// None behind the last piece.
    pub fn next(&mut self, source: &(impl Source + ?Sized)) -> io::Result<Option<&[u8]>> {
        self.output.clear();
        if let Some(header) = self.header.take() {
            self.output.extend_from_slice(&header);
            return Ok(Some(&self.output));
        }
        self.output.reserve_exact(OUTPUT);
        while !self.is_done && self.output.len() < OUTPUT {
            self.fill(source)?;
            let flush = match self.from.is_empty() {
                true => FlushCompress::Finish,
                false => FlushCompress::None,
            };
            let before = self.compress.total_in();
            let input = self.input.get(self.used..).unwrap_or_default();
            let compressed = self.compress.compress_vec(input, &mut self.output, flush);
            self.is_done = compressed? == Status::StreamEnd;
            self.used += (self.compress.total_in() - before) as usize;
        }
        Ok((!self.output.is_empty()).then_some(&self.output))
    }

    /// What [`next`](Self::next) gave last.
    pub fn piece(&self) -> &[u8] {
        &self.output
    }

    fn fill(&mut self, source: &(impl Source + ?Sized)) -> io::Result<()> {
        if self.used < self.input.len() || self.from.is_empty() {
            return Ok(());
        }
        let length = (self.from.end - self.from.start).min(INPUT as u64);
        self.input.resize(length as usize, 0);
        self.used = 0;
        source.read_at(&mut self.input, self.from.start)?;
        self.from.start += length;
        Ok(())
    }
}
