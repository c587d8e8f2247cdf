//! Executable files in, what the unwinder in the kernel needs out.
//!
//! * [`ElfCode`]: where the code of a file is, and what in the file may say how it unwinds.
//! * [`Table`]: for each byte of its code the rule that leads to the caller.
//! * [`Index`]: the same for single pages of files that are too large to be read in one piece.
//!
//! Files come from anybody who may start a process, and are read by a process with many rights: each
//! size has a limit, what is over it is refused, and no file is trusted to stay as it is.

mod build;
mod cfi;
mod code;
mod gaps;
mod golang;
mod identity;
mod index;
mod instructions;
mod known;
mod leaves;
mod overlay;
mod plt;
mod refused;
mod rules;
mod sections;
mod span;
mod table;
mod window;
mod writer;

#[cfg(test)]
mod tests;

pub use code::ElfCode;
pub use identity::htlhash;
pub use index::Index;
pub use refused::Refused;
pub use table::Table;
