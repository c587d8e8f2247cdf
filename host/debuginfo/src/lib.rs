//! What names the code of an executable, taken out of it as a stream.
//!
//! * [`Plan`]: what stays of an ELF file and where it goes, decided by its headers alone, so that
//!   the size of the result is known before a byte of it is read.
//! * [`Extraction`]: the result, read piece by piece straight from the file.
//! * [`separate`]: the file beside an executable in which its DWARF may stand.
//! * [`common`], [`split`], [`package`]: the files in which parts of that DWARF may stand.
//! * [`Elsewhere`]: DWARF of which the greater part is in files that a reader of one file never sees.
//!
//! Files come from anybody who may start a process, and are read by a process with many rights: each
//! size has a limit, and no file is trusted to stay as it is. Memory is the headers of the sections
//! (at most 4 MiB), their names while it is planned (4 MiB), and what the reader asks for at a time.

mod compress;
mod elsewhere;
mod extraction;
mod keep;
mod parts;
mod plan;
mod refused;
mod separate;
#[cfg(test)]
mod tests;

pub use elsewhere::Elsewhere;
pub use extraction::Extraction;
pub use keep::Dwarf;
pub use parts::{CommonLink, common, package, split};
pub use plan::{Contents, Plan};
pub use refused::Refused;
pub use separate::{Places, Separate, build_id, open_regular, separate};
