//! Converts executable files to unwind tables for the BPF programs.
//!
//! * [`ElfCode`]: the code of a file and its sources of unwind information.
//! * [`Table`]: for each byte of the code, the rule that finds the caller.
//! * [`Index`]: the same for single pages of files that are too large to read as a whole.
//!
//! Any user who can start a process controls the input, and the reader is a privileged process: each size has a
//! limit, larger input is rejected, and files may change while they are read.

mod build;
mod cfi;
mod code;
mod dotnet;
mod error;
mod gaps;
mod golang;
mod identity;
mod index;
mod instructions;
mod leaf_functions;
mod overlay;
mod plt;
mod rules;
mod sections;
mod span;
mod table;
mod well_known;
mod window;
mod writer;

#[cfg(test)]
mod tests;

pub use code::ElfCode;
pub use error::UnwindTableError;
pub use identity::htlhash;
pub use index::Index;
pub use table::Table;
