//! Reads and writes OTLP JSON: the protobuf JSON mapping with OTLP's exceptions.
//!
//! | protobuf | JSON |
//! |---|---|
//! | field names | `lowerCamelCase`; `snake_case` is accepted too, unknown names are ignored |
//! | 64-bit integers | decimal string; a number is accepted too |
//! | `traceId`, `spanId`, `profileId` | hexadecimal, upper or lower case |
//! | other bytes | base64; the URL alphabet and missing padding are accepted too |
//! | NaN and the infinities | `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | a field that is `null` | not set |
//!
//! Attributes of resources and scopes may refer to the string table of the dictionary (`keyStrindex`,
//! `stringValueStrindex`), and the dictionary may come last. So a body is parsed twice, first for its strings only. No
//! value tree is built: decoding needs memory for the body and the model only. `serde_json` limits nesting to 128
//! levels.

mod attributes;
mod bytes;
mod list;
mod object;
mod read;
mod scalar;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod write;

pub use bytes::{push_hex, to_base64};
pub use read::{JsonError, decode, receive, receive_within};
pub use write::{ResourceAttrEncoding, encode, value_text};
