//! What an ELF file says of itself, read in bounded pieces.
//!
//! * [`Source`]: bytes of a file or of memory, read where they are needed and never mapped.
//! * [`Extent`]: a range of a source, read whole within a limit or piece by piece.
//! * [`Elf`]: the ELF header, the program headers and the section headers, of any class and byte order.
//! * [`BuildIds`], [`DebugLink`], [`Compressed`], [`Pclntab`]: what stands in notes and sections.
//!
//! Files come from anybody who may start a process, and are read by a process with many rights: each
//! size has a limit, nothing is allocated for what is over it or outside of the file, and no file is
//! trusted to stay as it is.
//!
//! The crate `object` has the layouts of headers, symbols and notes, for all classes and byte orders, and
//! these are used here and by the users of this crate. Its readers of files are not: they want the whole
//! file in memory or in a cache that only grows, read as much as a header asks for, and fail with an error
//! that names neither the place nor the size.

mod compressed;
mod debug_link;
mod elf;
mod error;
mod extent;
mod notes;
mod pclntab;
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
pub use notes::{BuildIds, build_id};
pub use pclntab::{Pclntab, PclntabVersion};
pub use source::Source;
