//! What a file has in memory before the runtime starts.

use std::io::{Error, ErrorKind};

use profcol_elf::Source;

use crate::elf_file::ElfFile;
use crate::memory::{Memory, MemoryError};

/// The file as the dynamic linker would load it at address 0. Data that is only filled later cannot be read.
pub struct FileImage<'a, 'f, S: ?Sized> {
    file: &'a ElfFile<'f, S>,
    /// Places and pointers; sorted.
    pointers: Vec<(u64, u64)>,
}

impl<'a, 'f, S: Source + ?Sized> FileImage<'a, 'f, S> {
    pub fn new(file: &'a ElfFile<'f, S>) -> Self {
        let mut pointers: Vec<_> = file.relative_pointers().collect();
        pointers.sort_unstable();
        Self { file, pointers }
    }
}

impl<S: Source + ?Sized> Memory for FileImage<'_, '_, S> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let bytes = self.file.loaded(address, buffer.len());
        let bytes = bytes.ok_or_else(|| MemoryError {
            address,
            error: Error::from(ErrorKind::UnexpectedEof),
        })?;
        buffer.copy_from_slice(&bytes);
        let first = self.pointers.partition_point(|(place, _)| *place < address);
        for (place, pointer) in self.pointers.iter().skip(first) {
            let at = usize::try_from(place - address).unwrap_or(usize::MAX);
            let Some(place) = at
                .checked_add(size_of::<u64>())
                .and_then(|end| buffer.get_mut(at..end))
            else {
                break;
            };
            place.copy_from_slice(&pointer.to_le_bytes());
        }
        Ok(())
    }
}
