//! A message and its optional compressed form.

use bytes::Bytes;

use crate::chunks::Chunks;
use crate::compress::Encoding;

/// A message, and the compressed bytes it was received or sent as.
///
/// Both are kept so that an unchanged message is forwarded byte for byte.
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

/// Content for a client to send; the client requests the form it needs.
pub trait Content: Send + Sync {
    fn plain(&self) -> Chunks;

    /// The compressed bytes, if available in this encoding.
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
