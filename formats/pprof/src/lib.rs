//! Reads and writes pprof's `profile.proto`.
//!
//! ```text
//! *.pb.gz ──read──▶ Model      one profile per sample type, with the same samples
//! Model ──sets──▶ ProfileSet*  profiles that fit into one file: those made by `read`, or a single one
//! ProfileSet* ──Builder──▶ *.pb   the merged sets, equal samples added up
//! ```
//!
//! Equivalents that differ in form but not in meaning:
//!
//! | pprof | model |
//! |---|---|
//! | sample types, the default one | profiles, the default one first; their order is `pprof.scope.sample_type_order` |
//! | labels; several of one key | attributes with unit; an array |
//! | build id | `process.executable.build_id.gnu`, `.go`, or `pprof.mapping.build_id` |
//! | mapping and location flags | `pprof.mapping.has_*`, `pprof.location.is_folded` |
//! | the first mapping, which tools take for the program | the common executable of the resources; `[multiple executables]` if they differ |
//! | comments, frame filters, documentation | `pprof.profile.*` |
//!
//! # What pprof cannot represent
//!
//! - The time of each sample: timestamps are counted, values per timestamp are added up.
//! - Scopes and schema URLs, dropped-attribute counts, profile ids, original payloads, entities.
//! - Attributes of locations other than `is_folded`, among them `profile.frame.type`; attributes of mappings other than
//!   the build id and the flags; all but one of several build ids.
//! - The number 0 without a unit, which is written as text; the `service.name` of an unknown service.
//! - Whether a label came from the resource, the profile or the sample; the most specific value of a key wins. Labels
//!   without text; floats, bytes, booleans and nested values become text.
//! - Links other than as the labels `trace_id` and `span_id`.
//! - Different periods in one file (the longest wins), times before 1970 or after 2262.
//!
//! # What the model cannot represent
//!
//! Ids; invalid UTF-8 (replaced); a second unit under the same label key; functions without any name, empty memory
//! ranges, negative lines and times, which OTLP forbids. Mappings, locations and functions that no sample uses are read
//! but not written.

mod attributes;
mod budget;
mod build;
mod error;
mod executables;
mod fields;
mod finish;
mod format;
mod gzip;
mod header;
mod ids;
mod labels;
mod read;
mod rows;
mod samples;
mod set_lines;
mod sets;
mod symbols;
#[cfg(test)]
mod tests;
mod translate;
mod translated_ids;

pub use build::{AddProfilesError, Builder, Options, UnnamedLocation};
pub use error::PprofError;
pub use finish::write;
pub use gzip::gzip;
pub use labels::{Keys, LabelSelection};
pub use read::{Limits, read};
pub use sets::{ProfileSet, sets};
