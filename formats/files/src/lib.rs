//! Profiles in files.
//!
//! ```text
//! bytes ─ read ─► Model ─┬─ pprof, OTLP           the profile with its labels
//!                        └─ folded, SVG, speedscope, HTML    its call tree
//! ```
//!
//! What is written is decided by the file's name, what is read by the content. This crate opens no files.

mod format;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use format::{Format, UnknownFormat};
pub use read::{ReadError, read};
pub use write::{WriteError, call_tree, write, write_tree};
