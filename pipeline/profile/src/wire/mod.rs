//! OTLP protobuf: `ExportProfilesServiceRequest`, which has the layout of `ProfilesData`.
//!
//! ```text
//! wire bytes ──validate──▶ counts, or an error with its path        every request, once
//!            ──decode────▶ Model                                    on first use
//!            ──merge─────▶ Merger                                   when merging batches
//! Model      ──encode────▶ wire bytes                               only when content changed
//! ```
//!
//! Validation and decoding read rows with the same functions (`rows`, `value`), so they cannot interpret the bytes
//! differently.

mod decode;
mod encode;
mod fast_path;
mod fields;
mod invalid;
mod lengths;
mod merge;
mod references;
mod resources;
mod rows;
mod tables;
pub(crate) mod tags;
#[cfg(test)]
mod tests;
mod text;
mod texts;
mod validate;
mod value;
mod window;

pub(crate) use decode::{Skip, decode};
pub(crate) use encode::encode;
pub use invalid::{Invalid, Reason};
pub(crate) use lengths::RowLengths;
pub(crate) use resources::{decode_resource, encode_resource, resources, with_resources};
pub(crate) use tables::{referenced_strings, table_lengths};
pub use validate::Counts;
pub(crate) use validate::{repair, validate};
