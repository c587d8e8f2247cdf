//! Protobuf's wire format, by hand: tags, varints and lengths.
//!
//! A message is read with one `match` over its tags, where a tag combines field number and wire type, so that a field
//! usually costs one comparison:
//!
//! ```text
//! const NAME: u32 = tag::len(1);
//! const LINE: u32 = tag::varint(2);
//! while let Some(tag) = reader.tag()? {
//!     match tag {
//!         NAME => name = reader.bytes()?,
//!         LINE => line = reader.varint()? as i64,
//!         unknown => reader.skip(unknown, 2)?, // fields 1 and 2 are known: their wire type is wrong
//!     }
//! }
//! ```

mod reader;
pub mod tag;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{Reader, WireError};
pub use writer::Writer;
pub(crate) use writer::varint_len;
