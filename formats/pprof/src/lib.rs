//! pprof's `profile.proto`, read and written.
//!
//! ```text
//! *.pb.gz ──read──▶ Model      one profile per sample type, all with the same samples
//! Model ──sets──▶ ProfileSet*  profiles that fit into one file: such as `read` makes, or a single one
//! ProfileSet* ──Builder──▶ *.pb   the sum of what was added, equal samples added up
//! ```
//!
//! Where the formats differ in form but not in meaning:
//!
//! | pprof | model |
//! |---|---|
//! | sample types, the default one | profiles, the default one first; their order is `pprof.scope.sample_type_order` |
//! | labels; several of one key | attributes with unit; an array |
//! | build id | `process.executable.build_id.gnu`, `.go`, or `pprof.mapping.build_id` |
//! | mapping and location flags | `pprof.mapping.has_*`, `pprof.location.is_folded` |
//! | the first mapping, which tools take for the program | that of the resources' one executable; `[multiple executables]` |
//! | comments, frame filters, documentation | `pprof.profile.*` |
//!
//! # What pprof cannot hold
//!
//! - The time of each sample: timestamps are counted, values per timestamp are added up.
//! - Scopes and schema URLs, dropped-attribute counts, profile ids, original payloads, entities.
//! - Attributes of locations other than `is_folded`, among them `profile.frame.type`; attributes of
//!   mappings other than the build id and the flags; of several build ids all but one.
//! - The number 0 without a unit, which is written as text; a `service.name` that says only that the
//!   service is unknown.
//! - Which labels came from the resource, the profile or the sample; of one key the most specific
//!   stays. Labels without text; floats, bytes, flags and nested values stay as text.
//! - Links other than as the labels `trace_id` and `span_id`.
//! - Different periods in one file (the longest stays), times before 1970 or after 2262.
//!
//! # What the model cannot hold
//!
//! Ids; text that is not UTF-8 (it is made so); a second unit under the same label key; functions
//! without any name, empty ranges of memory, negative lines and times, which OTLP forbids. Mappings,
//! locations and functions that no sample uses are read but not written.

mod attributes;
mod budget;
mod build;
mod executables;
mod finish;
mod format;
mod gzip;
mod header;
mod ids;
mod labels;
mod late;
mod read;
mod rows;
mod samples;
mod sets;
mod symbols;
#[cfg(test)]
mod tests;
mod translate;

pub use build::{Builder, Options, Refused, write};
pub use gzip::gzip;
pub use labels::{Keys, LabelSelection};
pub use late::UnnamedLocation;
pub use read::{Limits, PprofError, read};
pub use sets::{ProfileSet, sets};
