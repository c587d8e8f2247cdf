//! The methods and messages by which an agent hands executables' debuginfo to a server.
//!
//! ```text
//! ShouldInitiateUpload {1 build_id, 2 hash, 5 build_id_type} -> {1 should_initiate_upload, 2 reason}
//! InitiateUpload {1 build_id, 2 size, 3 hash, 6 build_id_type} -> {1 instructions
//!     {1 build_id, 2 upload_id, 3 upload_strategy, 4 signed_url, 5 type}}
//! Upload(stream {1 info {1 build_id, 2 upload_id, 3 type} | 2 chunk_data}) -> {1 build_id, 2 size}
//! MarkUploadFinished {1 build_id, 2 upload_id, 3 type} -> {}
//! ```
//!
//! An empty chunk breaks the server's reader, and without the last call the file is never used.

use bytes::Bytes;
use profcol_profile::proto::{Reader, WireError, Writer, tag};

pub const SHOULD_INITIATE_UPLOAD: &str =
    "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload";
pub const INITIATE_UPLOAD: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload";
pub const UPLOAD: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/Upload";
pub const MARK_UPLOAD_FINISHED: &str =
    "/parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished";

/// Why a server wants no upload for the moment; every other reason is for good.
pub const IN_PROGRESS: &str =
    "A previous upload is still in-progress and not stale yet (only stale uploads can be retried).";

/// What a file is to the server.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub build_id: &'a str,
    pub kind: BuildIdKind,
    /// Of the original file, whatever is uploaded of it.
    pub hash: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildIdKind {
    Gnu = 1,
    Hash = 2,
}

/// The server's answer whether it wants an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub wants_it: bool,
    pub reason: String,
}

/// How the server wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    pub build_id: String,
    pub upload_id: String,
    pub strategy: u64,
    pub signed_url: String,
    pub kind: u64,
}

impl Instructions {
    pub const BY_GRPC: u64 = 1;
    pub const BY_SIGNED_URL: u64 = 2;
}

impl Subject<'_> {
    pub fn should_initiate_upload(&self) -> Bytes {
        let mut message = Writer::default();
        message.bytes(tag::len(1), self.build_id.as_bytes());
        message.bytes(tag::len(2), self.hash.as_bytes());
        message.uint(tag::varint(5), self.kind as u64);
        message.into_vec().into()
    }

    pub fn initiate_upload(&self, size: u64) -> Bytes {
        let mut message = Writer::default();
        message.bytes(tag::len(1), self.build_id.as_bytes());
        message.uint(tag::varint(2), size);
        message.bytes(tag::len(3), self.hash.as_bytes());
        message.uint(tag::varint(6), self.kind as u64);
        message.into_vec().into()
    }
}

impl Decision {
    pub fn read(message: &[u8]) -> Result<Self, WireError> {
        const WANTS_IT: u32 = tag::varint(1);
        const REASON: u32 = tag::len(2);
        let mut decision = Self::default();
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                WANTS_IT => decision.wants_it = reader.varint()? != 0,
                REASON => decision.reason = text(reader.bytes()?),
                unknown => reader.skip(unknown, 2)?,
            }
        }
        Ok(decision)
    }
}

impl Instructions {
    /// None where there are none.
    pub fn read(message: &[u8]) -> Result<Option<Self>, WireError> {
        const INSTRUCTIONS: u32 = tag::len(1);
        let mut found = None;
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                INSTRUCTIONS => found = Some(Self::read_inner(reader.message()?)?),
                unknown => reader.skip(unknown, 1)?,
            }
        }
        Ok(found)
    }

    fn read_inner(mut reader: Reader<'_>) -> Result<Self, WireError> {
        const BUILD_ID: u32 = tag::len(1);
        const UPLOAD_ID: u32 = tag::len(2);
        const STRATEGY: u32 = tag::varint(3);
        const SIGNED_URL: u32 = tag::len(4);
        const KIND: u32 = tag::varint(5);
        let mut instructions = Self::default();
        while let Some(tag) = reader.tag()? {
            match tag {
                BUILD_ID => instructions.build_id = text(reader.bytes()?),
                UPLOAD_ID => instructions.upload_id = text(reader.bytes()?),
                STRATEGY => instructions.strategy = reader.varint()?,
                SIGNED_URL => instructions.signed_url = text(reader.bytes()?),
                KIND => instructions.kind = reader.varint()?,
                unknown => reader.skip(unknown, 5)?,
            }
        }
        Ok(instructions)
    }

    /// The first message of an upload.
    pub fn info(&self) -> Bytes {
        let mut message = Writer::default();
        message.bytes(tag::len(1), &self.mark_upload_finished());
        message.into_vec().into()
    }

    pub fn mark_upload_finished(&self) -> Bytes {
        let mut message = Writer::default();
        message.bytes(tag::len(1), self.build_id.as_bytes());
        message.bytes(tag::len(2), self.upload_id.as_bytes());
        message.uint(tag::varint(3), self.kind);
        message.into_vec().into()
    }
}

/// A further message of an upload.
pub fn chunk(data: &[u8]) -> Bytes {
    let mut message = Writer::with_capacity(data.len() + 6);
    message.bytes(tag::len(2), data);
    message.into_vec().into()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
