//! An executable in, the names of its code out.
//!
//! * [`Symbols`]: of an address in an ELF file the functions, inlined ones included, with file and
//!   line, from DWARF where there is some, else from Go's own table or the symbol tables.
//! * [`Companions`]: where the other files are that have some of that DWARF.
//! * [`demangle()`]: names as their language writes them.
//!
//! Files come from anybody who may start a process, and are read by a process with many rights: they
//! are never mapped and not trusted to stay as they are. What is read for one address is bounded by
//! [fuel](view::Fuel), what is held is told by [`Symbols::weight`] and given up by
//! [`Symbols::shrink`].

mod companions;
mod demangle;
mod dwarf;
mod go;
mod image;
mod near;
mod symbols;
mod table;
#[cfg(test)]
mod tests;
mod view;

pub use companions::{Companions, OnHost};
pub use demangle::{Style, demangle};
pub use symbols::{Frame, Symbols, Unresolved};
