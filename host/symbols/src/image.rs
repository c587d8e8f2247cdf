//! An ELF file whose sections are read through views.

use std::cell::Cell;
use std::io::{Cursor, Read};
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use lzma_rust2::XzReader;
use object::elf::{
    CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, PT_LOAD, SHF_COMPRESSED,
};
use object::{LittleEndian, pod};
use profcol_debuginfo::elf::{Elf, LE, SectionHeader, has_data};
use profcol_debuginfo::{Refused, Source};

use crate::view::{Fuel, Section};

/// What unpacking xz may take beside what comes out: its highest level takes 64 MiB.
const MAX_XZ_KIB: u32 = 96 << 10;

pub struct Image {
    pub elf: Elf,
    pub fuel: Fuel,
    source: Rc<dyn Source>,
    /// Bytes that compressed sections may still come to.
    unpacked: Cell<u64>,
}

/// Where a part of the file is meant to be in memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub file_offset: u64,
    pub file_size: u64,
    pub address: u64,
}

impl Image {
    pub fn read(source: Rc<dyn Source>, max_unpacked: u64) -> Result<Self, Refused> {
        Self::sharing(Fuel::default(), source, max_unpacked)
    }

    /// Of which all reads burn that fuel.
    pub fn sharing(fuel: Fuel, source: Rc<dyn Source>, max_unpacked: u64) -> Result<Self, Refused> {
        Ok(Self {
            elf: Elf::read(&*source)?,
            fuel,
            source,
            unpacked: Cell::new(max_unpacked),
        })
    }

    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// How many bytes may still be unpacked.
    pub fn unpacked_left(&self) -> u64 {
        self.unpacked.get()
    }

    pub fn segments(&self) -> Vec<Segment> {
        let loaded = self.elf.programs.iter();
        let loaded = loaded.filter(|program| program.p_type.get(LE) == PT_LOAD);
        loaded
            .map(|program| Segment {
                file_offset: program.p_offset.get(LE),
                file_size: program.p_filesz.get(LE),
                address: program.p_vaddr.get(LE),
            })
            .collect()
    }

    /// The section of DWARF with this name, also where its name says that it is compressed.
    pub fn dwarf_section(&self, name: &str) -> Result<Rc<Section>, Refused> {
        if let Some(section) = self.elf.find(name.as_bytes()) {
            return self.section(section);
        }
        let old = name.strip_prefix('.').map(|rest| format!(".z{rest}"));
        match old.and_then(|old| self.elf.find(old.as_bytes())) {
            Some(section) => self.old_compressed(section),
            None => Ok(Section::in_memory(Vec::new(), self.fuel.clone())),
        }
    }

    pub fn section(&self, section: &SectionHeader) -> Result<Rc<Section>, Refused> {
        let flags = section.sh_flags.get(LE);
        if flags & u64::from(SHF_COMPRESSED) == 0 {
            let (offset, length) = self.place(section)?;
            let source = Rc::clone(&self.source);
            return Ok(Section::in_file(source, offset, length, self.fuel.clone()));
        }
        let packed = self.packed(section)?;
        let broken = || unsupported("the header of a compressed section is cut off");
        let (header, packed) =
            pod::from_bytes::<CompressionHeader64<LittleEndian>>(&packed).map_err(|()| broken())?;
        let size = header.ch_size.get(LE);
        let kind = header.ch_type.get(LE);
        self.unpack(section, packed, size, kind)
    }

    /// The small symbol table that some distributions leave in stripped executables, as a file of its own.
    pub fn mini(&self) -> Result<Option<Vec<u8>>, Refused> {
        let Some(section) = self.elf.find(b".gnu_debugdata") else {
            return Ok(None);
        };
        let packed = self.packed(section)?;
        let mut file = Vec::new();
        let most = self.unpacked.get();
        let reader = XzReader::new_mem_limit(Cursor::new(packed), false, MAX_XZ_KIB);
        let read = reader.take(most).read_to_end(&mut file);
        read.map_err(|error| Refused::Unreadable {
            what: "the symbols in .gnu_debugdata",
            offset: section.sh_offset.get(LE),
            error,
        })?;
        self.unpacked.set(most - file.len() as u64);
        Ok(Some(file))
    }

    /// As GNU's tools compressed before it was in the standard: a magic word and the size.
    fn old_compressed(&self, section: &SectionHeader) -> Result<Rc<Section>, Refused> {
        let packed = self.packed(section)?;
        let broken = || unsupported("the header of a compressed section is cut off");
        let (magic, rest) = packed.split_first_chunk::<4>().ok_or_else(broken)?;
        let (size, rest) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
        if magic != b"ZLIB" {
            return Err(unsupported("a section is compressed in an unknown way"));
        }
        self.unpack(section, rest, u64::from_be_bytes(*size), ELFCOMPRESS_ZLIB)
    }

    fn unpack(
        &self,
        section: &SectionHeader,
        packed: &[u8],
        size: u64,
        kind: u32,
    ) -> Result<Rc<Section>, Refused> {
        self.check_size(section, size)?;
        let packed = Cursor::new(packed);
        // Grows with what comes out: the header may promise anything.
        let mut bytes = Vec::new();
        let read = match kind {
            ELFCOMPRESS_ZLIB => ZlibDecoder::new(packed).take(size).read_to_end(&mut bytes),
            ELFCOMPRESS_ZSTD => zstd::Decoder::new(packed)
                .and_then(|decoder| decoder.take(size).read_to_end(&mut bytes)),
            _ => return Err(unsupported("a section is compressed in an unknown way")),
        };
        read.map_err(|error| Refused::Unreadable {
            what: "a compressed section",
            offset: section.sh_offset.get(LE),
            error,
        })?;
        Ok(Section::in_memory(bytes, self.fuel.clone()))
    }

    /// A compressed section as it stands in the file.
    fn packed(&self, section: &SectionHeader) -> Result<Vec<u8>, Refused> {
        let what = "a compressed section";
        self.elf
            .content(&*self.source, what, section, self.unpacked.get())
    }

    fn place(&self, section: &SectionHeader) -> Result<(u64, usize), Refused> {
        let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
        if !has_data(section) {
            return Ok((0, 0));
        }
        let inside = offset
            .checked_add(size)
            .filter(|&end| end <= self.elf.length);
        match (inside, usize::try_from(size)) {
            (Some(_), Ok(size)) => Ok((offset, size)),
            _ => Err(Refused::Outside {
                what: "a section",
                offset,
                size,
                length: self.elf.length,
            }),
        }
    }

    fn check_size(&self, section: &SectionHeader, size: u64) -> Result<(), Refused> {
        let limit = self.unpacked.get();
        match limit.checked_sub(size) {
            Some(left) => {
                self.unpacked.set(left);
                Ok(())
            }
            None => Err(Refused::TooLarge {
                what: "a compressed section",
                offset: section.sh_offset.get(LE),
                size,
                limit,
            }),
        }
    }
}

fn unsupported(why: &'static str) -> Refused {
    Refused::Unsupported { why }
}
