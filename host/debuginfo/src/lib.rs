//! Extracts the symbol information of an executable as a stream.
//!
//! * [`Plan`]: which parts of an ELF file to keep and where they go, decided from its headers alone, so that the size
//!   of the output is known before any of it is read.
//! * [`Extraction`]: the output, read piece by piece directly from the file.
//! * [`separate`]: the debug file of a stripped executable.
//! * [`common`], [`split`], [`package`]: other files that may hold parts of the DWARF.
//! * [`ExternalDwarf`]: DWARF whose main part is in files that a reader of a single file never sees.
//!
//! Files are untrusted and read with elevated privileges: anyone who can start a process can supply one. So each size
//! has a limit, and any file may change while it is read. Memory use: the section headers (at most 4 MiB), their names
//! while planning (4 MiB), and the reader's buffer.

mod compress;
mod error;
mod extraction;
mod parts;
mod plan;
mod selection;
mod separate;
mod split_dwarf;
#[cfg(test)]
mod tests;

pub use error::ExtractError;
pub use extraction::Extraction;
pub use parts::{CommonLink, common, package, split};
pub use plan::Plan;
pub use selection::{Contents, Dwarf};
pub use separate::{SearchPaths, Separate, build_id, separate};
pub use split_dwarf::ExternalDwarf;
