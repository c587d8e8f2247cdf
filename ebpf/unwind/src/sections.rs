//! Reads the sections that hold unwind information.

use crate::cfi::forget_keys;
use crate::elf::{Executable, Section};
use crate::source::Part;
use crate::{Refused, Source};
use flate2::read::ZlibDecoder;
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB, SHF_COMPRESSED};
use object::pod;
use std::io::Read;

/// A table of eight million rows comes from some 50 MB.
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
    pub fn read(executable: &Executable, source: &(impl Source + ?Sized)) -> Result<Self, Refused> {
        let machine = executable.machine;
        let mut eh_frame = match executable.section(".eh_frame") {
            Some(section) => Some(EhFrameBytes {
                content: section.part.read(source, MAX_FRAMES)?,
                bases: bases(executable, section.address),
            }),
            None => without_section(executable, source),
        };
        let mut debug_frame = match executable.section(".debug_frame") {
            // It says less of Go's functions than their own table.
            Some(_) if executable.go_functions().is_some() => None,
            // Nothing needs it to run, so damage there is no reason to give up the rest.
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

fn bases(executable: &Executable, eh_frame: u64) -> BaseAddresses {
    let mut bases = BaseAddresses::default().set_eh_frame(eh_frame);
    if let Some(section) = executable.section(".text") {
        bases = bases.set_text(section.address);
    }
    if let Some(section) = executable.section(".got") {
        bases = bases.set_got(section.address);
    }
    bases
}

/// `.eh_frame` of a file without section headers: the header that the C library uses names its
/// address, and nobody its end, so it is taken up to where it stops making sense.
fn without_section(
    executable: &Executable,
    source: &(impl Source + ?Sized),
) -> Option<EhFrameBytes> {
    let (address, part) = executable.eh_frame_hdr?;
    let part = Part {
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
    let segment = executable
        .loaded
        .iter()
        .find(|segment| segment.holds(start))?;
    let mut content = Part {
        what: ".eh_frame",
        offset: segment.file_offset + (start - segment.address),
        size: (segment.end() - start).min(MAX_FRAMES),
    }
    .read(source, MAX_FRAMES)
    .ok()?;
    content.truncate(chain(&content));
    Some(EhFrameBytes {
        content,
        bases: self::bases(executable, start),
    })
}

/// How long the entries go on, up to the terminator.
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

fn uncompressed(section: &Section, source: &(impl Source + ?Sized)) -> Result<Vec<u8>, Refused> {
    let bytes = section.part.read(source, MAX_FRAMES)?;
    if section.flags & u64::from(SHF_COMPRESSED) == 0 {
        return Ok(bytes);
    }
    let what = section.part.what;
    let broken = || Refused::Broken { what };
    let (header, packed) = pod::from_bytes::<CompressionHeader64<object::LittleEndian>>(&bytes)
        .map_err(|()| broken())?;
    let size = header.ch_size.get(object::LittleEndian);
    if header.ch_type.get(object::LittleEndian) != ELFCOMPRESS_ZLIB {
        return Err(Refused::Unsupported {
            why: "unwind information compressed otherwise than with zlib",
        });
    }
    if size > MAX_FRAMES {
        return Err(Refused::TooLarge {
            what,
            size,
            limit: MAX_FRAMES,
        });
    }
    // Grows with what comes out: the header may promise anything.
    let mut content = Vec::new();
    ZlibDecoder::new(packed)
        .take(size)
        .read_to_end(&mut content)
        .map_err(|_| broken())?;
    if content.len() as u64 != size {
        return Err(broken());
    }
    Ok(content)
}
