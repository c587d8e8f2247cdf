//! Compressed sections: those with a gABI header (`SHF_COMPRESSED`), and those of older GNU tools (`.zdebug_*`).

use std::io::{self, Read};

use flate2::read::ZlibDecoder;
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, SHF_COMPRESSED};
use object::{LittleEndian, pod};

use crate::error::unsupported;
use crate::{Elf, ElfError, Extent, LE, SectionHeader, Source};

/// Window size of the zstd decoder: the default limit of the zstd tool.
const MAX_WINDOW_LOG: u32 = 27;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Zlib,
    Zstd,
}

/// A compressed section, as described by its header.
#[derive(Clone, Copy, Debug)]
pub struct Compressed {
    pub algorithm: Algorithm,
    /// Decompressed size, if the header is correct.
    pub size: u64,
    /// The data after the header.
    data: Extent,
}

impl Compressed {
    /// Opens a section with a gABI header. Reads no more than `limit` bytes.
    pub fn open(
        source: &(impl Source + ?Sized),
        section: Extent,
        limit: u64,
    ) -> Result<Self, ElfError> {
        type Header = CompressionHeader64<LittleEndian>;
        let (header, data) = split(source, section, limit, size_of::<Header>())?;
        let (header, _) = pod::from_bytes::<Header>(&header).map_err(|()| cut_off())?;
        let algorithm = match header.ch_type.get(LE) {
            ELFCOMPRESS_ZLIB => Algorithm::Zlib,
            ELFCOMPRESS_ZSTD => Algorithm::Zstd,
            _ => return Err(unknown()),
        };
        Ok(Self {
            algorithm,
            size: header.ch_size.get(LE),
            data,
        })
    }

    /// Opens a section with a magic number followed by the size.
    fn open_gnu(
        source: &(impl Source + ?Sized),
        section: Extent,
        limit: u64,
    ) -> Result<Self, ElfError> {
        let (header, data) = split(source, section, limit, 12)?;
        let size = header.strip_prefix(b"ZLIB").ok_or_else(unknown)?;
        Ok(Self {
            algorithm: Algorithm::Zlib,
            size: u64::from_be_bytes(*size.first_chunk().ok_or_else(cut_off)?),
            data,
        })
    }

    /// The decompressed bytes. There may be more than the header states, so the reader must limit its reads.
    pub fn reader<'s>(
        &self,
        source: &'s (impl Source + ?Sized),
        max_window_log: u32,
    ) -> io::Result<Box<dyn Read + 's>> {
        let data = self.data.reader(source);
        Ok(match self.algorithm {
            Algorithm::Zlib => Box::new(ZlibDecoder::new(data)),
            Algorithm::Zstd => {
                let mut decoder = zstd::Decoder::new(data)?;
                decoder.window_log_max(max_window_log)?;
                Box::new(decoder)
            }
        })
    }

    /// Decompresses at most [`size`](Self::size) bytes. Memory grows with the data, because the header may claim any
    /// size.
    pub fn read(&self, source: &(impl Source + ?Sized)) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let reader = self.reader(source, MAX_WINDOW_LOG)?;
        reader.take(self.size).read_to_end(&mut content)?;
        Ok(content)
    }
}

impl Elf {
    /// The compression of the section, if any; an error if it has more than `limit` bytes in the file.
    pub fn compressed(
        &self,
        source: &(impl Source + ?Sized),
        section: &SectionHeader,
        limit: u64,
    ) -> Result<Option<Compressed>, ElfError> {
        let extent = self.extent("a compressed section", section);
        if self.name(section).starts_with(b".zdebug_") {
            return Compressed::open_gnu(source, extent, limit).map(Some);
        }
        match section.sh_flags.get(LE) & u64::from(SHF_COMPRESSED) {
            0 => Ok(None),
            _ => Compressed::open(source, extent, limit).map(Some),
        }
    }
}

/// Splits off the header.
fn split(
    source: &(impl Source + ?Sized),
    section: Extent,
    limit: u64,
    header: usize,
) -> Result<(Vec<u8>, Extent), ElfError> {
    section.check_size(limit)?;
    let length = source.length().map_err(|error| section.unreadable(error))?;
    section.inside(length)?;
    let header = header as u64;
    let size = section.size.checked_sub(header).ok_or_else(cut_off)?;
    let data = Extent {
        offset: section.offset + header,
        size,
        ..section
    };
    let header = Extent {
        size: header,
        ..section
    };
    Ok((header.read(source, header.size)?, data))
}

fn cut_off() -> ElfError {
    unsupported("truncated header of a compressed section")
}

fn unknown() -> ElfError {
    unsupported("unknown section compression")
}
