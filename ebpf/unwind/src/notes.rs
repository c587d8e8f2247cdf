//! Build ids and the other notes that linkers leave.

use object::elf::{NT_GNU_BUILD_ID, NoteHeader64};
use object::{LittleEndian, pod};

/// `.note.go.buildid`.
const NT_GO_BUILD_ID: u32 = 4;

/// Longer ids than any linker makes are taken for damage: GNU's have up to 64 bytes, Go's 83.
const MAX_ID: usize = 256;

/// GNU's build id among the notes of something that is no file, such as the kernel.
pub fn build_id(notes: &[u8]) -> Option<Box<[u8]>> {
    let mut found = Notes::default();
    found.gather(notes, 4);
    found.build_id
}

#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub build_id: Option<Box<[u8]>>,
    pub go_build_id: Option<Box<str>>,
}

impl Notes {
    /// The first of each kind stays. Broken notes end the search, nothing else.
    pub fn gather(&mut self, bytes: &[u8], alignment: usize) {
        let alignment = if alignment == 8 { 8 } else { 4 };
        let mut rest = bytes;
        while let Some((name, kind, id, tail)) = next(rest, alignment) {
            rest = tail;
            if id.is_empty() || id.len() > MAX_ID {
                continue;
            }
            match (name, kind) {
                (b"GNU\0", NT_GNU_BUILD_ID) if self.build_id.is_none() => {
                    self.build_id = Some(id.into());
                }
                (b"Go\0\0", NT_GO_BUILD_ID) if self.go_build_id.is_none() => {
                    self.go_build_id = std::str::from_utf8(id).ok().map(Into::into);
                }
                _ => {}
            }
        }
    }
}

type Note<'a> = (&'a [u8], u32, &'a [u8], &'a [u8]);

fn next(bytes: &[u8], alignment: usize) -> Option<Note<'_>> {
    let (header, rest) = pod::from_bytes::<NoteHeader64<LittleEndian>>(bytes).ok()?;
    let length = header.n_namesz.get(LittleEndian) as usize;
    let name = rest.get(..length)?;
    let header_size = bytes.len() - rest.len();
    let start = (header_size + length).next_multiple_of(alignment);
    let end = start.checked_add(header.n_descsz.get(LittleEndian) as usize)?;
    let descriptor = bytes.get(start..end)?;
    let tail = bytes
        .get(end.next_multiple_of(alignment)..)
        .unwrap_or_default();
    Some((name, header.n_type.get(LittleEndian), descriptor, tail))
}
