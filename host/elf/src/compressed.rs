//! Compressed sections: those with a header of the gABI (`SHF_COMPRESSED`), and those that GNU's tools
//! compressed before there was one (`.zdebug_*`).

use std::io::{self, Read};

use flate2::read::ZlibDecoder;
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, SHF_COMPRESSED};
use object::{LittleEndian, pod};

use crate::error::unsupported;
use crate::{Elf, ElfError, Extent, LE, SectionHeader, Source};

/// What zstd's decoder may hold: as much as zstd's own tool allows by default.
const MAX_WINDOW_LOG: u32 = 27;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Zlib,
    Zstd,
}

/// A section that is compressed, by what its header says.
#[derive(Clone, Copy, Debug)]
pub struct Compressed {
    pub algorithm: Algorithm,
    /// Of what comes out, if the header is right.
    pub size: u64,
    /// What is behind the header.
    data: Extent,
}

impl Compressed {
    /// With the header of the gABI. No more than `limit` bytes are looked at.
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

    /// With a magic word and the size in front.
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

    /// The decompressed bytes. There may be more than the header says, so the reader bounds what it takes.
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

    /// What comes out, no more than [`size`](Self::size). Memory grows with that: the header may promise
    /// anything.
    pub fn read(&self, source: &(impl Source + ?Sized)) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let reader = self.reader(source, MAX_WINDOW_LOG)?;
        reader.take(self.size).read_to_end(&mut content)?;
        Ok(content)
    }
}

impl Elf {
    /// How the section is compressed, if it is; refused if it has more than `limit` bytes in the file.
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

/// The header, and what is behind it.
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
    unsupported("the header of a compressed section is cut off")
}

fn unknown() -> ElfError {
    unsupported("a section is compressed in an unknown way")
}
