//! The contents of the files map.

use profcol_ebpf_common::file::{FileEntry, FileId, TableRef, file_number};

use crate::scratch::Scratch;
use crate::stage;

/// A file as seen by a sample.
#[allow(dead_code, reason = "the announcement of new files is not tested here")]
pub struct MappedFile {
    pub id: FileId,
    pub file: u64,
    pub start: u64,
    pub end: u64,
}

pub fn entry(_: &mut Scratch, mapped: &MappedFile) -> FileEntry {
    let unknown = FileEntry {
        number: file_number::MAP_FULL,
        table: TableRef::PENDING,
        used: 0,
    };
    stage::with(|process| {
        let file = process.files.iter().find(|file| file.id == mapped.id);
        file.map_or(unknown, |file| file.entry)
    })
}
