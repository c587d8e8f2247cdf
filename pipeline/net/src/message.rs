//! A message and, where it has one, its compressed form.

use bytes::Bytes;

use crate::compress::Encoding;

/// What travels: the message, and the compressed bytes that it came in or was once packed into.
///
/// Both are kept so that an unchanged message goes on in the very bytes in which it arrived.
#[derive(Clone, Debug)]
pub struct Message {
    pub plain: Bytes,
    pub compressed: Option<Compressed>,
}

/// Bytes that decompress to a message.
#[derive(Clone, Debug)]
pub struct Compressed {
    pub encoding: Encoding,
    pub bytes: Bytes,
}

impl From<Bytes> for Message {
    fn from(plain: Bytes) -> Message {
        Message {
            plain,
            compressed: None,
        }
    }
}
