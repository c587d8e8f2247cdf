//! The headers of a PE image with a CLI header.
//!
//! ```text
//! "MZ" … ──► "PE\0\0", COFF header, optional header with 16 data directories, section table
//!                                                  │ number 14
//!                                                  └──► CLI header: metadata, ReadyToRun header
//! ```

use profcol_elf::{Extent, Source};

use crate::DotNetError;
use crate::bytes::{Bytes, read_at};
use crate::error::{damaged, not_assembly};

/// The loader's limit.
const MAX_SECTIONS: u16 = 96;
/// COFF header and optional header up to the last data directory, of the larger kind (PE32+).
const HEADERS: usize = 24 + 112 + 16 * 8;
const SECTION_HEADER: usize = 40;
const CLI_HEADER: u64 = 72;

const EXCEPTIONS: usize = 3;
const DEBUG: usize = 6;
const CLI: usize = 14;

/// Images of Linux have the machine xor'ed with this.
const LINUX: u16 = 0x7b79;

/// What the offsets of a source are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageLayout {
    /// Offsets in the file, or in a flat mapping of it.
    File,
    /// Relative virtual addresses: the sections are where the runtime mapped them.
    Loaded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Aarch64,
    /// Neither, or only IL.
    Other,
}

/// A range in memory, relative to the start of the image. Empty if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    pub rva: u32,
    pub size: u32,
}

impl Directory {
    pub fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            rva: bytes.u32()?,
            size: bytes.u32()?,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Section {
    rva: u32,
    file_offset: u32,
    /// Bytes in the file that are mapped.
    size: u32,
}

#[derive(Debug)]
pub(crate) struct Image {
    pub layout: ImageLayout,
    pub machine: Machine,
    pub debug: Directory,
    /// The table of functions with unwind information.
    pub exceptions: Directory,
    pub metadata: Directory,
    pub ready_to_run: Directory,
    /// The headers are mapped up to here.
    headers: u32,
    sections: Vec<Section>,
}

impl Image {
    pub fn read(source: &(impl Source + ?Sized), layout: ImageLayout) -> Result<Self, DotNetError> {
        let mut dos = [0; 64];
        read_at(source, "the DOS header", 0, 0, &mut dos)?;
        let ([b'M', b'Z', ..], [.., a, b, c, d]) = (dos, dos) else {
            return Err(not_assembly("no PE image"));
        };
        let at = u64::from(u32::from_le_bytes([a, b, c, d]));
        let mut headers = [0; HEADERS];
        read_at(source, "the PE header", at, 0, &mut headers)?;
        let header = Headers::read(&headers).ok_or_else(|| not_assembly("no PE image"))?;
        if header.sections > MAX_SECTIONS {
            return Err(damaged("too many sections"));
        }
        let table = Extent {
            what: "the section table",
            offset: at.saturating_add(24 + u64::from(header.optional_size)),
            size: u64::from(header.sections) * SECTION_HEADER as u64,
        };
        let table = table.read(source, table.size)?;
        let (table, _) = table.as_chunks::<SECTION_HEADER>();
        let image = Self {
            layout,
            machine: header.machine,
            debug: header.debug,
            exceptions: header.exceptions,
            metadata: Directory::default(),
            ready_to_run: Directory::default(),
            headers: header.headers,
            sections: table.iter().filter_map(section).collect(),
        };
        if header.cli.rva == 0 {
            return Err(not_assembly("a PE image without CLI header"));
        }
        let cli = Directory {
            size: CLI_HEADER as u32,
            ..header.cli
        };
        let cli = image.extent("the CLI header", cli)?;
        let cli = cli.read(source, CLI_HEADER)?;
        let mut bytes = Bytes(&cli);
        let mut directories = || {
            bytes.take(8)?;
            let metadata = Directory::read(&mut bytes)?;
            bytes.take(48)?;
            Some((metadata, Directory::read(&mut bytes)?))
        };
        let (metadata, ready_to_run) = directories().ok_or_else(|| damaged("the CLI header"))?;
        Ok(Self {
            metadata,
            ready_to_run,
            ..image
        })
    }

    pub fn offset_of_rva(&self, rva: u32) -> Option<u64> {
        if rva < self.headers {
            return Some(rva.into());
        }
        let mut sections = self.sections.iter();
        sections.find_map(|section| {
            let within = rva.checked_sub(section.rva)?;
            (within < section.size).then(|| u64::from(section.file_offset) + u64::from(within))
        })
    }

    pub fn rva_of_offset(&self, offset: u64) -> Option<u32> {
        let mut sections = self.sections.iter();
        let rva = sections.find_map(|section| {
            let within = offset.checked_sub(section.file_offset.into())?;
            let within = u32::try_from(within).ok()?;
            (within < section.size).then(|| section.rva.checked_add(within))?
        });
        rva.or_else(|| {
            let offset = u32::try_from(offset).ok()?;
            (offset < self.headers).then_some(offset)
        })
    }

    /// Where the source has this range.
    pub fn extent(&self, what: &'static str, range: Directory) -> Result<Extent, DotNetError> {
        let offset = match self.layout {
            ImageLayout::Loaded => Some(range.rva.into()),
            ImageLayout::File => self.offset_of_rva(range.rva),
        };
        Ok(Extent {
            what,
            offset: offset.ok_or_else(|| damaged(what))?,
            size: range.size.into(),
        })
    }
}

struct Headers {
    machine: Machine,
    sections: u16,
    optional_size: u16,
    headers: u32,
    debug: Directory,
    exceptions: Directory,
    cli: Directory,
}

impl Headers {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        if bytes.array()? != *b"PE\0\0" {
            return None;
        }
        let machine = match bytes.u16()? {
            0x8664 => Machine::X86_64,
            0xaa64 => Machine::Aarch64,
            linux if linux ^ LINUX == 0x8664 => Machine::X86_64,
            linux if linux ^ LINUX == 0xaa64 => Machine::Aarch64,
            _ => Machine::Other,
        };
        let sections = bytes.u16()?;
        bytes.take(12)?;
        let optional_size = bytes.u16()?;
        bytes.take(2)?;
        let mut optional = Bytes(bytes.0.get(..bytes.0.len().min(optional_size.into()))?);
        // PE32 has a field more, and four of half the size.
        let directories = match optional.u16()? {
            0x10b => 96,
            0x20b => 112,
            _ => return None,
        };
        optional.take(58)?;
        let headers = optional.u32()?;
        optional.take(directories - 64 - 4)?;
        let count = optional.u32()?;
        let directory = |index: usize| {
            let mut bytes = Bytes(optional.0.get(8 * index..)?);
            Directory::read(&mut bytes).filter(|_| index < count as usize)
        };
        Some(Self {
            machine,
            sections,
            optional_size,
            headers,
            debug: directory(DEBUG).unwrap_or_default(),
            exceptions: directory(EXCEPTIONS).unwrap_or_default(),
            cli: directory(CLI).unwrap_or_default(),
        })
    }
}

fn section(header: &[u8; SECTION_HEADER]) -> Option<Section> {
    let mut bytes = Bytes(header.get(8..)?);
    let memory_size = bytes.u32()?;
    let rva = bytes.u32()?;
    let file_size = bytes.u32()?;
    Some(Section {
        rva,
        file_offset: bytes.u32()?,
        // Zero in images of some linkers.
        size: match memory_size {
            0 => file_size,
            _ => file_size.min(memory_size),
        },
    })
}
