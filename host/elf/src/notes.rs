//! Build ids in the notes of linkers.

use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;
use object::{Endian, NativeEndian};

/// `.note.go.buildid`.
const NT_GO_BUILD_ID: u32 = 4;
const ELF_NOTE_GO: &[u8] = b"Go";

/// Longer ids than any linker writes are treated as damage: GNU's have up to 64 bytes, Go's 83.
const MAX_ID: usize = 256;

/// A build id as text.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// GNU's build id in the notes of something other than a file, such as the kernel.
pub fn build_id(notes: &[u8]) -> Option<Box<[u8]>> {
    let mut ids = BuildIds::default();
    ids.gather(notes, 4, NativeEndian);
    ids.gnu
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildIds {
    pub gnu: Option<Box<[u8]>>,
    /// The id of Go's linker, a string.
    pub go: Option<Box<str>>,
}

impl BuildIds {
    /// Keeps the first of each kind. A damaged note ends the search without an error.
    pub(crate) fn gather<E: Endian>(&mut self, notes: &[u8], alignment: u64, endian: E) {
        let alignment = if alignment == 8 { 8 } else { 4 };
        // Notes have the same layout in both classes.
        let Ok(mut notes) = NoteIterator::<FileHeader64<E>>::new(endian, alignment, notes) else {
            return;
        };
        while let Ok(Some(note)) = notes.next() {
            let id = note.desc();
            if id.is_empty() || id.len() > MAX_ID {
                continue;
            }
            match (note.name(), note.n_type(endian)) {
                (ELF_NOTE_GNU, NT_GNU_BUILD_ID) if self.gnu.is_none() => {
                    self.gnu = Some(id.into());
                }
                (ELF_NOTE_GO, NT_GO_BUILD_ID) if self.go.is_none() => {
                    self.go = std::str::from_utf8(id).ok().map(Into::into);
                }
                _ => {}
            }
        }
    }
}
