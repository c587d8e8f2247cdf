//! Encodings and their names in gRPC, HTTP and configurations.

use crate::SettingsError;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stream identifier of snappy's framing format.
const SNAPPY_STREAM: &[u8] = b"\xff\x06\x00\x00sNaPpY";

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Gzip,
    /// zlib format, called `deflate` in HTTP.
    Zlib,
    Zstd,
    /// One snappy block.
    Snappy,
    /// Snappy framing format.
    SnappyFramed,
    /// LZ4 frames.
    Lz4,
}

impl Encoding {
    /// The encoding of a `grpc-encoding` name. gRPC's `snappy` is the framing format.
    pub(crate) fn from_grpc(name: &str) -> Option<Encoding> {
        match name {
            "gzip" => Some(Encoding::Gzip),
            "deflate" => Some(Encoding::Zlib),
            "zstd" => Some(Encoding::Zstd),
            "snappy" => Some(Encoding::SnappyFramed),
            _ => None,
        }
    }

    /// The `grpc-encoding` name; `None` if gRPC has none.
    pub(crate) fn to_grpc(self) -> Option<&'static str> {
        match self {
            Encoding::Gzip => Some("gzip"),
            Encoding::Zlib => Some("deflate"),
            Encoding::Zstd => Some("zstd"),
            Encoding::SnappyFramed => Some("snappy"),
            Encoding::Snappy | Encoding::Lz4 => None,
        }
    }

    /// The encoding for a `content-encoding`. Old Collectors sent the framing format as `snappy`, so the body decides
    /// in that case.
    pub(crate) fn from_http(name: &str, body: &[u8]) -> Option<Encoding> {
        match name {
            "gzip" => Some(Encoding::Gzip),
            "zlib" | "deflate" => Some(Encoding::Zlib),
            "zstd" => Some(Encoding::Zstd),
            "snappy" if body.starts_with(SNAPPY_STREAM) => Some(Encoding::SnappyFramed),
            "snappy" => Some(Encoding::Snappy),
            "x-snappy-framed" => Some(Encoding::SnappyFramed),
            "lz4" => Some(Encoding::Lz4),
            _ => None,
        }
    }
}

/// `grpc-accept-encoding`: all names of [`Encoding::from_grpc`].
pub(crate) const GRPC_ACCEPTED: &str = "gzip,zstd,snappy,deflate";

impl Encoding {
    /// A unique name.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Gzip => "gzip",
            Encoding::Zlib => "zlib",
            Encoding::Zstd => "zstd",
            Encoding::Snappy => "snappy",
            Encoding::SnappyFramed => "framed snappy",
            Encoding::Lz4 => "lz4",
        }
    }
}

impl Encoding {
    const ALL: [Encoding; 6] = [
        Encoding::Gzip,
        Encoding::Zlib,
        Encoding::Zstd,
        Encoding::Snappy,
        Encoding::SnappyFramed,
        Encoding::Lz4,
    ];

    /// The encoding of this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Encoding> {
        Encoding::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compression level; 0 means the default, as in the Collector's `compression_params`.
///
/// gzip, zlib, deflate: 1 (fastest) to 9 (smallest), -1 for the default, which is 6, and -2 for the
/// fastest. zstd: 1 to 22, the default is 3. The others have no levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Level(pub i32);

/// Compression of outgoing messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-unknown" = "unsupported compression type", "x-aliases" = {"": "none"}))]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    Gzip,
    Zlib,
    Deflate,
    Zstd,
    Snappy,
    #[serde(rename = "x-snappy-framed")]
    SnappyFramed,
    Lz4,
    /// No compression.
    None,
}

impl Compression {
    /// The name in the configuration, which is also HTTP's `content-encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zlib => "zlib",
            Compression::Deflate => "deflate",
            Compression::Zstd => "zstd",
            Compression::Snappy => "snappy",
            Compression::SnappyFramed => "x-snappy-framed",
            Compression::Lz4 => "lz4",
            Compression::None => "none",
        }
    }

    /// The format of HTTP bodies.
    pub fn for_http(self) -> Option<Encoding> {
        match self {
            Compression::Gzip => Some(Encoding::Gzip),
            Compression::Zlib | Compression::Deflate => Some(Encoding::Zlib),
            Compression::Zstd => Some(Encoding::Zstd),
            Compression::Snappy => Some(Encoding::Snappy),
            Compression::SnappyFramed => Some(Encoding::SnappyFramed),
            Compression::Lz4 => Some(Encoding::Lz4),
            Compression::None => None,
        }
    }

    /// The format of gRPC messages; errors are worded as in the Collector.
    pub fn for_grpc(self) -> Result<Option<Encoding>, SettingsError> {
        match self {
            Compression::None => Ok(None),
            Compression::Gzip => Ok(Some(Encoding::Gzip)),
            Compression::Zstd => Ok(Some(Encoding::Zstd)),
            Compression::Snappy => Ok(Some(Encoding::SnappyFramed)),
            other => Err(SettingsError::GrpcCompression(other.name())),
        }
    }

    /// Checks that the level exists for this compression.
    pub fn check_level(self, level: Level) -> Result<(), SettingsError> {
        let allowed = match self {
            Compression::Gzip | Compression::Zlib | Compression::Deflate => -2..=9,
            Compression::Zstd => i32::MIN..=i32::MAX,
            _ => 0..=0,
        };
        if allowed.contains(&level.0) {
            return Ok(());
        }
        Err(SettingsError::CompressionLevel {
            level: level.0,
            compression: self.name(),
        })
    }
}
