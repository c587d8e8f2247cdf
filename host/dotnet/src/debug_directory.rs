//! The debug directory of an image: where its PDB is.

use std::io::Read;

use flate2::read::DeflateDecoder;
use profcol_elf::{Extent, Source};

use crate::bytes::Bytes;
use crate::error::damaged;
use crate::image::Directory;
use crate::{Assembly, DotNetError, ImageLayout};

/// Entries have 28 bytes; compilers write five.
const MAX_DIRECTORY: u64 = 4 << 10;
const ENTRY: usize = 28;
/// Signature, id, age, and the path.
const MAX_CODE_VIEW: u64 = 4 << 10;
/// An embedded PDB, decompressed; that of the framework's largest assembly would have five megabytes.
const MAX_EMBEDDED: u32 = 16 << 20;

const CODE_VIEW: u32 = 2;
const EMBEDDED: u32 = 17;
/// The minor version of entries for portable PDBs.
const PORTABLE: u16 = 0x504d;

/// The id of a portable PDB: a GUID and a stamp. Its assembly has the same.
pub type PdbId = [u8; 20];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugDirectory {
    /// Where the compiler wrote the PDB, on its machine.
    pub pdb_path: Option<String>,
    /// `None` if there is no portable PDB.
    pub pdb_id: Option<PdbId>,
    /// A compressed PDB in the image.
    embedded: Option<Extent>,
}

impl Assembly {
    pub fn debug_directory(
        &self,
        source: &(impl Source + ?Sized),
    ) -> Result<DebugDirectory, DotNetError> {
        let mut found = DebugDirectory::default();
        if self.image.debug.size == 0 {
            return Ok(found);
        }
        let extent = self.extent("the debug directory", self.image.debug)?;
        let bytes = extent.read(source, MAX_DIRECTORY)?;
        let (entries, _) = bytes.as_chunks::<ENTRY>();
        for entry in entries {
            let entry = Entry::read(entry).ok_or_else(|| damaged("the debug directory"))?;
            let extent = |what| Extent {
                what,
                offset: match self.image.layout {
                    ImageLayout::File => entry.file_offset,
                    ImageLayout::Loaded => entry.data.rva,
                }
                .into(),
                size: entry.data.size.into(),
            };
            match entry.kind {
                CODE_VIEW if entry.minor == PORTABLE => {
                    let bytes = extent("the address of a PDB").read(source, MAX_CODE_VIEW)?;
                    let (path, id) = code_view(&bytes, entry.stamp)
                        .ok_or_else(|| damaged("the address of a PDB"))?;
                    found.pdb_path = Some(path);
                    found.pdb_id = Some(id);
                }
                EMBEDDED => found.embedded = Some(extent("an embedded PDB")),
                _ => {}
            }
        }
        Ok(found)
    }
}

impl DebugDirectory {
    pub fn has_embedded_pdb(&self) -> bool {
        self.embedded.is_some()
    }

    /// Decompresses the PDB in the image.
    pub fn embedded_pdb(
        &self,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Vec<u8>>, DotNetError> {
        let Some(extent) = self.embedded else {
            return Ok(None);
        };
        let damage = || damaged("an embedded PDB");
        let header = Extent { size: 8, ..extent }.read(source, 8)?;
        let mut bytes = Bytes(&header);
        if bytes.array() != Some(*b"MPDB") {
            return Err(damage());
        }
        let size = bytes.u32().ok_or_else(damage)?;
        if size > MAX_EMBEDDED {
            return Err(damaged("an embedded PDB of more than 16 MiB"));
        }
        let compressed = Extent {
            offset: extent.offset.saturating_add(8),
            size: extent.size.checked_sub(8).ok_or_else(damage)?,
            ..extent
        };
        // Memory grows with the data, because the header may claim any size.
        let mut pdb = Vec::new();
        let reader = DeflateDecoder::new(compressed.reader(source));
        let read = reader.take(size.into()).read_to_end(&mut pdb);
        read.map_err(|error| extent.unreadable(error))?;
        Ok(Some(pdb))
    }
}

struct Entry {
    stamp: u32,
    minor: u16,
    kind: u32,
    data: Directory,
    file_offset: u32,
}

impl Entry {
    fn read(bytes: &[u8; ENTRY]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        bytes.take(4)?;
        let stamp = bytes.u32()?;
        bytes.take(2)?;
        let (minor, kind, size, rva) = (bytes.u16()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
        Some(Self {
            stamp,
            minor,
            kind,
            data: Directory { rva, size },
            file_offset: bytes.u32()?,
        })
    }
}

/// "RSDS", GUID, age, path with a NUL.
fn code_view(bytes: &[u8], stamp: u32) -> Option<(String, PdbId)> {
    let mut bytes = Bytes(bytes);
    if bytes.array()? != *b"RSDS" {
        return None;
    }
    let mut id = [0; 20];
    let (guid, rest) = id.split_first_chunk_mut::<16>()?;
    *guid = bytes.array()?;
    rest.copy_from_slice(&stamp.to_le_bytes());
    bytes.take(4)?;
    let path = bytes.0.split(|&byte| byte == 0).next()?;
    Some((String::from_utf8_lossy(path).into_owned(), id))
}
