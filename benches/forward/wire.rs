//! gRPC message framing and encodings, as far as load and sink need them.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use clap::ValueEnum;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use h2::RecvStream;

/// The gRPC method.
pub const EXPORT: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The HTTP path.
pub const EXPORT_HTTP: &str = "/v1development/profiles";

/// Larger than any message here; a malformed length cannot exhaust the memory.
const MAX_DECOMPRESSED: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// The name in the `compression` key and the `grpc-encoding` header.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    pub fn from_header(encoding: Option<&str>) -> Result<Self> {
        match encoding {
            None | Some("identity") => Ok(Self::None),
            Some("gzip") => Ok(Self::Gzip),
            Some("zstd") => Ok(Self::Zstd),
            Some(other) => bail!("unexpected grpc-encoding `{other}`"),
        }
    }

    fn compress(self, body: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(body.to_vec()),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(body)?;
                encoder.finish()
            }
            Self::Zstd => zstd::encode_all(body, zstd::DEFAULT_COMPRESSION_LEVEL),
        }
    }

    fn decompress(self, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        match self {
            Self::None => plain.extend_from_slice(body),
            Self::Gzip => {
                GzDecoder::new(body)
                    .take(MAX_DECOMPRESSED)
                    .read_to_end(&mut plain)?;
            }
            Self::Zstd => {
                zstd::Decoder::new(body)?
                    .take(MAX_DECOMPRESSED)
                    .read_to_end(&mut plain)?;
            }
        }
        Ok(plain)
    }
}

pub fn compress(body: &[u8], compression: Compression) -> Result<Vec<u8>> {
    compression
        .compress(body)
        .context("failed to compress a body")
}

/// A message as sent: a compression flag byte, a four-byte length, the body.
pub fn frame(body: &[u8], compression: Compression) -> Result<Bytes> {
    let body = compress(body, compression)?;
    let mut framed = BytesMut::with_capacity(5 + body.len());
    framed.put_u8(u8::from(compression != Compression::None));
    framed.put_u32(u32::try_from(body.len()).context("a body of 4 GiB or more")?);
    framed.put_slice(&body);
    Ok(framed.freeze())
}

/// All data of a body. Releases flow control capacity immediately.
pub async fn read(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut data = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        data.extend_from_slice(&chunk);
    }
    Ok(data.freeze())
}

/// Decompresses the single message in `framed`.
pub fn unframe(framed: &Bytes, encoding: Compression) -> Result<Bytes> {
    let Some((&[compressed, a, b, c, d], body)) = framed.split_first_chunk() else {
        bail!("a gRPC message of {} bytes has no header", framed.len());
    };
    let length = u32::from_be_bytes([a, b, c, d]);
    if usize::try_from(length) != Ok(body.len()) {
        bail!(
            "a gRPC message states {length} bytes but has {}",
            body.len()
        );
    }
    match compressed {
        0 => Ok(framed.slice(5..)),
        _ => Ok(encoding
            .decompress(body)
            .context("failed to decompress a message")?
            .into()),
    }
}
