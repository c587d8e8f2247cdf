//! The methods and messages that an agent uses to upload debuginfo to a server, from
//! `parca/debuginfo/v1alpha1/debuginfo.proto`, without unused fields.
//!
//! An empty chunk breaks the server's reader, and without `MarkUploadFinished` the file is never used.

use bytes::Bytes;
pub use prost::DecodeError;
use prost::{Enumeration, Message, Oneof};

pub const SHOULD_INITIATE_UPLOAD: &str =
    "/parca.debuginfo.v1alpha1.DebuginfoService/ShouldInitiateUpload";
pub const INITIATE_UPLOAD: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload";
/// A stream of [`UploadRequest`].
pub const UPLOAD: &str = "/parca.debuginfo.v1alpha1.DebuginfoService/Upload";
pub const MARK_UPLOAD_FINISHED: &str =
    "/parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished";

/// The only temporary reason why a server declines an upload; every other reason is permanent.
pub const IN_PROGRESS: &str =
    "A previous upload is still in-progress and not stale yet (only stale uploads can be retried).";

/// `parca.debuginfo.v1alpha1.ShouldInitiateUploadRequest`
#[derive(Clone, PartialEq, Message)]
pub struct ShouldInitiateUploadRequest {
    #[prost(string, tag = "1")]
    pub build_id: String,
    /// The hash of the original file, whichever parts of it are uploaded.
    #[prost(string, tag = "2")]
    pub hash: String,
    #[prost(enumeration = "BuildIdType", tag = "5")]
    pub build_id_type: i32,
}

/// `parca.debuginfo.v1alpha1.ShouldInitiateUploadResponse`
#[derive(Clone, PartialEq, Message)]
pub struct ShouldInitiateUploadResponse {
    #[prost(bool, tag = "1")]
    pub should_initiate_upload: bool,
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// `parca.debuginfo.v1alpha1.InitiateUploadRequest`
#[derive(Clone, PartialEq, Message)]
pub struct InitiateUploadRequest {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(int64, tag = "2")]
    pub size: i64,
    #[prost(string, tag = "3")]
    pub hash: String,
    #[prost(enumeration = "BuildIdType", tag = "6")]
    pub build_id_type: i32,
}

/// `parca.debuginfo.v1alpha1.InitiateUploadResponse`
#[derive(Clone, PartialEq, Message)]
pub struct InitiateUploadResponse {
    #[prost(message, optional, tag = "1")]
    pub upload_instructions: Option<UploadInstructions>,
}

/// `parca.debuginfo.v1alpha1.UploadInstructions`: how to upload the file.
#[derive(Clone, PartialEq, Message)]
pub struct UploadInstructions {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(string, tag = "2")]
    pub upload_id: String,
    #[prost(enumeration = "UploadStrategy", tag = "3")]
    pub upload_strategy: i32,
    #[prost(string, tag = "4")]
    pub signed_url: String,
    #[prost(int32, tag = "5")]
    pub r#type: i32,
}

/// `parca.debuginfo.v1alpha1.UploadRequest`, the messages of an upload: first its info, then chunks of the file.
#[derive(Clone, PartialEq, Message)]
pub struct UploadRequest {
    #[prost(oneof = "UploadData", tags = "1, 2")]
    pub data: Option<UploadData>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum UploadData {
    #[prost(message, tag = "1")]
    Info(UploadInfo),
    #[prost(bytes = "bytes", tag = "2")]
    ChunkData(Bytes),
}

/// `parca.debuginfo.v1alpha1.UploadInfo` and `parca.debuginfo.v1alpha1.MarkUploadFinishedRequest`: the same fields identify
/// the upload.
#[derive(Clone, PartialEq, Message)]
pub struct UploadInfo {
    #[prost(string, tag = "1")]
    pub build_id: String,
    #[prost(string, tag = "2")]
    pub upload_id: String,
    #[prost(int32, tag = "3")]
    pub r#type: i32,
}

/// `parca.debuginfo.v1alpha1.BuildIDType`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum BuildIdType {
    UnknownUnspecified = 0,
    Gnu = 1,
    Hash = 2,
}

/// `parca.debuginfo.v1alpha1.UploadInstructions.UploadStrategy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum UploadStrategy {
    Unspecified = 0,
    Grpc = 1,
    SignedUrl = 2,
}

impl UploadInstructions {
    pub fn info(&self) -> UploadInfo {
        UploadInfo {
            build_id: self.build_id.clone(),
            upload_id: self.upload_id.clone(),
            r#type: self.r#type,
        }
    }
}

pub fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

pub fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    M::decode(bytes)
}
