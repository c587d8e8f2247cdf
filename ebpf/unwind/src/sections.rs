//! Reads the sections that hold unwind information.

use crate::UnwindTableError;
use crate::cfi::forget_keys;
use crate::code::{ElfCode, Section};
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use object::elf::SHF_COMPRESSED;
use profcol_elf::{Algorithm, Compressed, Extent, Source};

/// About 50 MB give a table of eight million rows.
const MAX_FRAMES: u64 = 96 << 20;

/// The header before the search table.
const HEADER: u64 = 32;

pub(crate) struct FrameBytes {
    pub eh_frame: Option<EhFrameBytes>,
    pub debug_frame: Option<Vec<u8>>,
}

pub(crate) struct EhFrameBytes {
    pub content: Vec<u8>,
    pub bases: BaseAddresses,
}

impl FrameBytes {
    pub fn read(elf: &ElfCode, source: &(impl Source + ?Sized)) -> Result<Self, UnwindTableError> {
        let machine = elf.machine;
        let mut eh_frame = match elf.section(".eh_frame") {
            Some(section) => Some(EhFrameBytes {
                content: section.extent.read(source, MAX_FRAMES)?,
                bases: bases(elf, section.address),
            }),
            None => without_section(elf, source),
        };
        let mut debug_frame = match elf.section(".debug_frame") {
            // It has less information about Go functions than their own table.
            Some(_) if elf.go_functions().is_some() => None,
            // No program needs it to run, so ignore damage in it.
            Some(section) if eh_frame.is_some() => uncompressed(section, source).ok(),
            Some(section) => Some(uncompressed(section, source)?),
            None => None,
        };
        let contents = eh_frame.iter_mut().map(|bytes| &mut bytes.content);
        for content in contents.chain(&mut debug_frame) {
            forget_keys(machine, content);
        }
        Ok(Self {
            eh_frame,
            debug_frame,
        })
    }
}

fn bases(elf: &ElfCode, eh_frame: u64) -> BaseAddresses {
    let mut bases = BaseAddresses::default().set_eh_frame(eh_frame);
    if let Some(section) = elf.section(".text") {
        bases = bases.set_text(section.address);
    }
    if let Some(section) = elf.section(".got") {
        bases = bases.set_got(section.address);
    }
    bases
}

/// `.eh_frame` of a file without section headers: `.eh_frame_hdr` has its address but not its end, so it is
/// read up to the first invalid entry.
fn without_section(elf: &ElfCode, source: &(impl Source + ?Sized)) -> Option<EhFrameBytes> {
    let (address, part) = elf.eh_frame_hdr?;
    let part = Extent {
        size: part.size.min(HEADER),
        ..part
    };
    let header = part.read(source, HEADER).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let header = EhFrameHdr::new(&header, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let Pointer::Direct(start) = header.eh_frame_ptr() else {
        return None;
    };
    let segment = elf.loaded.iter().find(|segment| segment.holds(start))?;
    let mut content = Extent {
        what: ".eh_frame",
        offset: segment.file_offset + (start - segment.address),
        size: (segment.end() - start).min(MAX_FRAMES),
    }
    .read(source, MAX_FRAMES)
    .ok()?;
    content.truncate(chain(&content));
    Some(EhFrameBytes {
        content,
        bases: self::bases(elf, start),
    })
}

/// The length of the chain of entries, up to the terminator.
fn chain(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some((length, _)) = bytes
        .get(at..)
        .and_then(|rest| rest.split_first_chunk::<4>())
    {
        let length = u32::from_le_bytes(*length);
        let end = at + 4 + length as usize;
        if length == 0 || length == u32::MAX || end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

fn uncompressed(
    section: &Section,
    source: &(impl Source + ?Sized),
) -> Result<Vec<u8>, UnwindTableError> {
    if section.flags & u64::from(SHF_COMPRESSED) == 0 {
        return Ok(section.extent.read(source, MAX_FRAMES)?);
    }
    let what = section.extent.what;
    let compressed = Compressed::open(source, section.extent, MAX_FRAMES)?;
    if compressed.algorithm != Algorithm::Zlib {
        return Err(UnwindTableError::Unsupported {
            why: "unwind information with a compression other than zlib",
        });
    }
    let size = compressed.size;
    if size > MAX_FRAMES {
        return Err(UnwindTableError::TooLarge {
            what,
            size,
            limit: MAX_FRAMES,
        });
    }
    let content = compressed.read(source);
    let whole = content.ok().filter(|content| content.len() as u64 == size);
    whole.ok_or(UnwindTableError::Broken { what })
}
