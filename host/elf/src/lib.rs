//! Opens files of other processes, and reads the contents of ELF files in bounded pieces.
//!
//! * [`Root`]: opens regular files below a directory.
//! * [`mappings`]: the mappings of a process. [`Mapping::open`] opens the file of one.
//! * [`Source`]: the bytes of a file or of memory, read on demand and never mapped.
//! * [`Extent`]: a range of a source, read as a whole up to a limit, or piece by piece.
//! * [`Elf`]: the ELF header, the program headers and the section headers, of any class and byte order.
//! * [`BuildIds`], [`DebugLink`], [`Compressed`], [`Pclntab`]: the contents of notes and sections.
//!
//! Files are untrusted and read with elevated privileges: anyone who can start a process can supply one. So each size
//! has a limit, nothing is allocated for data over a limit or outside of the file, and any file may change while it is
//! read.
//!
//! The crate `object` defines the layouts of headers, symbols and notes for all classes and byte orders, which this
//! crate and its users share. Its file readers are not used: they need the whole file in memory or in an unbounded
//! cache, read as much as a header asks for, and report errors without offset and size.

mod compressed;
mod debug_link;
mod elf;
mod error;
mod extent;
mod file_key;
mod mapped_file;
mod mapping;
mod notes;
mod pclntab;
mod root;
mod source;
#[cfg(test)]
mod tests;

pub use compressed::{Algorithm, Compressed};
pub use debug_link::DebugLink;
pub use elf::{
    Elf, Header, LE, Machine, ProgramHeader, SectionHeader, Segment, Symbol, entries, has_data,
};
pub use error::ElfError;
pub use extent::{Extent, ExtentReader};
pub use file_key::FileKey;
pub use mapped_file::map_files_link;
pub use mapping::{Mapping, Mappings, mappings};
pub use notes::{BuildIds, build_id, hex};
pub use pclntab::{Pclntab, PclntabVersion};
pub use root::{Root, open_regular};
pub use source::Source;
