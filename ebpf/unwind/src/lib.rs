//! Executable files in, what the unwinder in the kernel needs out.
//!
//! * [`Source`]: bytes of a file, read where they are needed and never mapped.
//! * [`Executable`]: what is known of a file before its code is looked at.
//! * [`Table`]: for each byte of its code the rule that leads to the caller.
//! * [`Index`]: the same for single pages of files that are too large to be read in one piece.
//!
//! Files come from anybody who may start a process, and are read by a process with many rights: each
//! size has a limit, what is over it is refused, and no file is trusted to stay as it is.

mod cfi;
mod elf;
mod gaps;
mod golang;
mod identity;
mod index;
mod instructions;
mod known;
mod leaves;
mod notes;
mod plt;
mod refused;
mod rules;
mod sections;
mod source;
mod span;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use elf::{Executable, Machine, Segment};
pub use identity::htlhash;
pub use index::Index;
pub use notes::build_id;
pub use refused::Refused;
pub use source::Source;
pub use table::Table;
