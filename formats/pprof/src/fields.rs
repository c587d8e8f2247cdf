//! Iterates over a repeated field of a file.

use profcol_profile::proto::Reader;
use profcol_profile::proto::tag::{LEN, wire_type};

use super::error::{PprofError, Problem};

/// Passes every field with the tag `field` to `read`.
pub(super) fn each<'a>(
    file: &'a [u8],
    field: u32,
    what: &'static str,
    mut read: impl FnMut(Reader<'a>) -> Result<(), Problem>,
) -> Result<(), PprofError> {
    let mut position = 0;
    let mut reader = Reader::new(file);
    while let Some(tag) = reader.tag().map_err(Problem::from)? {
        if tag == field {
            let message = reader.message().map_err(Problem::from)?;
            read(message).map_err(|problem| PprofError::MalformedRow {
                what,
                position,
                problem,
            })?;
            position += 1;
        } else if wire_type(tag) == LEN {
            reader.bytes().map_err(Problem::from)?;
        } else {
            reader.skip(tag, 0).map_err(Problem::from)?;
        }
    }
    Ok(())
}
