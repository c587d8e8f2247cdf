//! Directories of `.padata` files, as the exporter `padata` and Parca Agent record them: the files that are there, who has one
//! open, and how far each is delivered.
//!
//! What is inside a file is `profcol-parca`'s.

mod directory;
mod file;
mod survey;

pub use directory::{
    Delivered, Progress, files, ignore_not_found, is_compressed, remove_orphans, with_ending,
};
pub use file::{Contents, Next, Owned};
pub use survey::{Extent, Recording, State, survey};

/// The default limit of a record. A longer one makes its file unreadable.
pub const DEFAULT_MAX_RECORD_MIB: u32 = 256;
