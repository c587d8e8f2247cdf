//! The methods and messages of Parca's ProfileStoreService.
//!
//! ```text
//! Write(stream WriteRequest { bytes record = 1 }) -> stream WriteResponse { bytes record = 1 }
//! WriteArrow(WriteArrowRequest { bytes ipc_buffer = 1 }) -> WriteArrowResponse {}
//! WriteRaw(WriteRawRequest) -> WriteRawResponse {}, see `raw`
//! ```

use bytes::Bytes;
use profcol_profile::proto::{Reader, WireError, Writer, tag};

pub const WRITE: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/Write";
pub const WRITE_ARROW: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteArrow";
pub const WRITE_RAW: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";

const RECORD: u32 = tag::len(1);

/// A message with a record.
pub fn request(record: &[u8]) -> Bytes {
    let mut request = Writer::with_capacity(record.len() + 6);
    request.bytes(RECORD, record);
    request.into_vec().into()
}

/// The record in a message.
pub fn record(message: &[u8]) -> Result<&[u8], WireError> {
    let mut record: &[u8] = &[];
    let mut reader = Reader::new(message);
    while let Some(tag) = reader.tag()? {
        match tag {
            RECORD => record = reader.bytes()?,
            unknown => reader.skip(unknown, 1)?,
        }
    }
    Ok(record)
}
