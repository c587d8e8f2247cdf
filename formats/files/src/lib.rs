//! Profiles in files.
//!
//! ```text
//! bytes ─ read ─► Model ─┬─ pprof, OTLP                       the profile with its labels
//!                        ├─ Firefox Profiler                   its threads
//!                        └─ folded, SVG, speedscope, HTML      its call tree
//! ```
//!
//! The file name decides the output format, the content the input format. This crate opens no files.

mod format;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use format::{Format, UnknownFormat};
pub use read::{ReadError, RecordError, read, read_within};
pub use write::{WriteError, call_tree, write, write_tree};
