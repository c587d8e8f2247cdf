//! Symbolization.
//!
//! * [`Symbols`]: resolves an address of an ELF file to functions, including inlined ones, with file and line, from
//!   DWARF if available, otherwise from Go's own table or the symbol tables.
//! * [`Companions`]: the other files that may hold parts of the DWARF.
//! * [`demangle()`]: demangles symbol names.
//! * [`KernelSymbolizer`]: symbols of the running kernel, from kallsyms.
//! * [`JitProcesses`]: symbols of JIT-compiled code, from perf maps and jitdumps.
//!
//! Files are untrusted and read with elevated privileges: anyone who can start a process can supply one. So they are
//! never mapped and may change at any time. [Fuel](view::Fuel) bounds the reads per address, [`Symbols::weight`]
//! returns the memory in use, and [`Symbols::shrink`] frees it.

mod companions;
mod demangle;
mod dwarf;
mod frame;
mod go;
mod image;
mod jit;
mod kernel;
mod search_hint;
mod symbols;
mod table;
#[cfg(test)]
mod tests;
mod view;

pub use companions::{CompanionFiles, Companions, OnHost};
pub use demangle::{Style, demangle};
pub use frame::Frame;
pub use jit::{GeneratedCode, JitNames, JitProcesses};
pub use kernel::{KernelFrame, KernelSymbolizer};
pub use symbols::{Symbols, Unresolved};
