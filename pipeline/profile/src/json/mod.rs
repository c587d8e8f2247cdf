//! OTLP JSON, read and written by the protobuf JSON mapping with OTLP's exceptions.
//!
//! | protobuf | JSON |
//! |---|---|
//! | field names | `lowerCamelCase`; `snake_case` is read too, unknown names are passed over |
//! | 64-bit integers | decimal text; read as a number too |
//! | `traceId`, `spanId`, `profileId` | hexadecimal, upper or lower case |
//! | other bytes | base64; read in the URL alphabet and without padding too |
//! | NaN and the infinities | `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | a field that is `null` | not set |
//!
//! Attributes of resources and scopes may point into the string table of the dictionary
//! (`keyStrindex`, `stringValueStrindex`), and the dictionary may come last. So a body is gone over
//! twice, first for its strings alone, and no tree of values is ever built: what decoding needs is
//! the body and the model. `serde_json` holds the nesting to 128 levels.

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
