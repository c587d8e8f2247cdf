//! Section compression as defined by the gABI: a header (`SHF_COMPRESSED`), then a zlib stream.
//!
//! zlib instead of zstd: every reader of compressed sections supports it, Go's since 1.6. Its fastest level shrinks
//! DWARF by a factor of two and a half to five, and disks are no faster than that.
//! The size must be known before the first byte is sent, and the compressed section is not buffered. So it is
//! compressed twice, in pieces of the same size, and both results must have the same length.

use std::io;
use std::ops::Range;

use flate2::{Compress, Compression, FlushCompress, Status};
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB};
use object::pod::bytes_of;
use object::{LittleEndian, U32, U64};

use profcol_elf::{LE, SectionHeader, Source};

/// Sizes of the input and output buffers.
const INPUT: usize = 64 << 10;
const OUTPUT: usize = 64 << 10;

/// A section that is compressed while it is read.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// Range in the file.
    pub from: Range<u64>,
    /// Compressed size including the header.
    pub size: u64,
    header: [u8; HEADER],
}

const HEADER: usize = size_of::<CompressionHeader64<LittleEndian>>();
/// Alignment of the header, and so of the section.
pub const ALIGNMENT: u64 = 8;

impl Compressed {
    /// `None` if compression would not make it smaller, or if asked to stop.
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

/// Produces a compressed section piece by piece.
pub struct Reader {
    header: Option<[u8; HEADER]>,
    compress: Compress,
    /// The part not read yet.
    from: Range<u64>,
    input: Vec<u8>,
    used: usize,
    output: Vec<u8>,
    is_done: bool,
}

impl Reader {
    /// `None` after the last piece.
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

    /// The piece last returned by [`next`](Self::next).
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
