//! Single-file programs: an executable with the program's assemblies appended.
//!
//! ```text
//! executable   … address of the manifest, 32 bytes that mark it …
//! files        one after another, those to be mapped at multiples of the page size
//! manifest     version, number of files, id; offset, size, compressed size, kind and path of each file
//! ```

use object::elf::{PF_R, PF_W};
use profcol_elf::{Elf, Extent, Source};

use crate::DotNetError;
use crate::bytes::{Bytes, Window};
use crate::error::{damaged, unsupported};

/// Stands behind the address of the manifest, which is zero in programs that are not bundles.
pub(crate) const SIGNATURE: [u8; 32] = [
    0x8b, 0x12, 0x02, 0xb9, 0x6a, 0x61, 0x20, 0x38, 0x72, 0x7b, 0x93, 0x02, 0x14, 0xd7, 0xa0, 0x32,
    0x13, 0xf5, 0xb9, 0xe6, 0xef, 0xae, 0x33, 0x18, 0xee, 0x3b, 0x2d, 0xce, 0x24, 0xb3, 0x6a, 0xae,
];
/// Writable data to search for it: the runtime, if linked in, has half a megabyte.
const MAX_SEARCHED: u64 = 16 << 20;
const PIECE: usize = 64 << 10;

const MAX_MANIFEST: u64 = 8 << 20;
const MAX_FILES: u32 = 64 << 10;
const MAX_PATH: usize = 4 << 10;

/// Layouts of the manifest: of .NET 5, and since .NET 6.
const VERSIONS: [u32; 2] = [2, 6];

/// The files in a single-file program that can be mapped; compressed ones cannot.
#[derive(Debug)]
pub struct Bundle {
    /// Sorted by offset.
    files: Vec<BundleFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    pub offset: u64,
    pub size: u64,
    pub kind: BundleFileKind,
    /// Relative to the program.
    pub path: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleFileKind {
    Assembly,
    NativeBinary,
    Symbols,
    /// Configuration, or unknown.
    Other,
}

impl Bundle {
    /// `None` for executables that are not bundles.
    pub fn read(source: &(impl Source + ?Sized)) -> Result<Option<Self>, DotNetError> {
        let elf = <Elf>::read_lenient(source)?;
        let Some(manifest) = find_manifest(source, &elf)? else {
            return Ok(None);
        };
        let extent = Extent {
            what: "the manifest of a bundle",
            offset: manifest,
            size: elf.length.saturating_sub(manifest).min(MAX_MANIFEST),
        };
        let bytes = extent.read(source, MAX_MANIFEST)?;
        Self::parse(&bytes, manifest).map(Some)
    }

    fn parse(manifest: &[u8], end: u64) -> Result<Self, DotNetError> {
        let damage = || damaged("the manifest of a bundle");
        let mut bytes = Bytes(manifest);
        let version = bytes.u32().ok_or_else(damage)?;
        if !VERSIONS.contains(&version) {
            return Err(unsupported("unknown version of a bundle"));
        }
        let mut header = || {
            bytes.u32()?;
            let count = bytes.u32()?;
            text(&mut bytes)?;
            // Ranges of two configuration files, flags.
            bytes.take(40)?;
            Some(count)
        };
        let count = header().ok_or_else(damage)?;
        if count > MAX_FILES {
            return Err(damaged("too many files in a bundle"));
        }
        let mut files = Vec::new();
        for _ in 0..count {
            let (file, is_compressed) = file(&mut bytes, version).ok_or_else(damage)?;
            // All of them precede the manifest.
            match file.offset.checked_add(file.size) {
                _ if is_compressed => {}
                Some(after) if after <= end => files.push(file),
                _ => return Err(damage()),
            }
        }
        files.sort_unstable_by_key(|file| file.offset);
        Ok(Self { files })
    }

    pub fn files(&self) -> &[BundleFile] {
        &self.files
    }

    /// The file with the byte at this offset of the program.
    pub fn file_at(&self, offset: u64) -> Option<&BundleFile> {
        let after = self.files.partition_point(|file| file.offset <= offset);
        let file = self.files.get(after.checked_sub(1)?)?;
        (offset - file.offset < file.size).then_some(file)
    }
}

/// A file of a source, as a source.
#[derive(Clone, Debug)]
pub struct Part<S> {
    pub source: S,
    pub offset: u64,
    pub size: u64,
}

impl<S: Source> Source for Part<S> {
    fn length(&self) -> std::io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        let start = self.offset.checked_add(offset);
        match (start, end) {
            (Some(start), Some(end)) if end <= self.size => self.source.read_at(buffer, start),
            _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Searches the writable segments of the program.
fn find_manifest(source: &(impl Source + ?Sized), elf: &Elf) -> Result<Option<u64>, DotNetError> {
    let mut left = MAX_SEARCHED;
    for segment in elf.loaded(PF_R | PF_W) {
        let size = segment.file_size.min(left);
        left -= size;
        let window = Window {
            source,
            extent: Extent {
                what: "the data of a program",
                offset: segment.file_offset,
                size,
            },
        };
        let mut piece = vec![0; PIECE.min(size as usize)];
        let mut at = 0;
        while at < size {
            let count = (piece.len() as u64).min(size - at) as usize;
            let Some(filled) = piece.get_mut(..count) else {
                break;
            };
            let (what, base) = (window.extent.what, window.extent.offset);
            crate::bytes::read_at(source, what, base, at, filled)?;
            if let Some(found) = memchr::memmem::find(filled, &SIGNATURE) {
                let signature = at + found as u64;
                let address = signature.checked_sub(8);
                let address = match address {
                    Some(address) => window.array::<8>(address)?,
                    None => None,
                };
                let address = address.map_or(0, u64::from_le_bytes);
                return Ok((address != 0).then_some(address));
            }
            if at + count as u64 == size {
                break;
            }
            // The next piece begins with what may be the start of the signature.
            at += (count.saturating_sub(SIGNATURE.len() - 1)).max(1) as u64;
        }
    }
    Ok(None)
}

/// A file, and whether it is compressed.
fn file(bytes: &mut Bytes<'_>, version: u32) -> Option<(BundleFile, bool)> {
    let (offset, size) = (bytes.u64()?, bytes.u64()?);
    let compressed = match version {
        2 => 0,
        _ => bytes.u64()?,
    };
    let kind = match bytes.u8()? {
        1 => BundleFileKind::Assembly,
        2 => BundleFileKind::NativeBinary,
        5 => BundleFileKind::Symbols,
        _ => BundleFileKind::Other,
    };
    let file = BundleFile {
        offset,
        size,
        kind,
        path: text(bytes)?,
    };
    Some((file, compressed != 0))
}

/// A string after its length, which has seven bits per byte.
fn text(bytes: &mut Bytes<'_>) -> Option<Box<str>> {
    let mut length = 0;
    for shift in [0, 7, 14] {
        let byte = bytes.u8()?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let text = bytes.take(length).filter(|_| length <= MAX_PATH)?;
            return Some(String::from_utf8_lossy(text).into());
        }
    }
    None
}
