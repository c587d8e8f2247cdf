//! A message and, where it has one, its compressed form.

use bytes::Bytes;

use crate::chunks::Chunks;
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

/// What a client is to send. It asks for the one form that it needs.
pub trait Content: Send + Sync {
    fn plain(&self) -> Chunks;

    /// The bytes that decompress to it, where they are at hand in this encoding.
    fn compressed(&self, encoding: Encoding) -> Option<Bytes>;
}

impl Content for Message {
    fn plain(&self) -> Chunks {
        self.plain.clone().into()
    }

    fn compressed(&self, encoding: Encoding) -> Option<Bytes> {
        let compressed = self.compressed.as_ref()?;
        (compressed.encoding == encoding).then(|| compressed.bytes.clone())
    }
}

impl From<Bytes> for Message {
    fn from(plain: Bytes) -> Message {
        Message {
            plain,
            compressed: None,
        }
    }
}
