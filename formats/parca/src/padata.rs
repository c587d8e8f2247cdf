//! Files of records as Parca Agent writes them in offline mode.
//!
//! ```text
//! A6 E7 CC CA   u16 version (0)   u16 number of batches   batch*
//! batch: frame of samples, and in the older layout a frame of stacks
//! frame: u32 length, a record
//! ```
//!
//! All numbers are big-endian. The batch count is updated after a batch has reached the disk, so the bytes after the
//! last counted batch are undefined. Each stack occurs once per file. A file name consists of the creation time in
//! seconds and the process id of the writer: `1795255549-319.padata`, and `.padata.zst` once complete and compressed.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::ipc::{self, BadRecord};
use crate::schema::Version;

pub const MAGIC: [u8; 4] = [0xa6, 0xe7, 0xcc, 0xca];
/// Offset of the batch count.
pub const COUNT_AT: u64 = 6;
pub const MAX_BATCHES: u16 = u16::MAX;
const VERSION: u16 = 0;
/// Window size of a compressed file, as a power of two.
const WINDOW_LOG: u32 = 27;

/// The header of a file without batches.
pub fn header() -> [u8; 8] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, 0, 0, 0, 0]
}

/// The creation time in seconds, from the file name; 0 if it has none.
pub fn created_seconds(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str());
    let second = name.and_then(|name| name.split_once('-')?.0.parse().ok());
    second.unwrap_or(0)
}

/// The process id of the writer, from the file name.
pub fn writer(path: &Path) -> Option<u32> {
    let (_, rest) = path.file_name()?.to_str()?.split_once('-')?;
    rest.split_once('.')?.0.parse().ok()
}

/// The progress file of a file: next to it, under a name that stays the same when the file is compressed.
pub fn progress_file(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(".zst");
    file.with_file_name(format!(".{stem}.progress"))
}

/// The delivery progress of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    Batches {
        /// The outcome of this many leading batches is known.
        settled: u16,
        /// Batches among them that a destination rejected permanently.
        refused: BTreeSet<u16>,
    },
    Everything,
}

const COMPLETE: &str = "complete";
const REFUSED: &str = "refused";

impl Delivered {
    /// Parses a progress file; an empty one means no progress.
    pub fn parse(note: &str) -> Self {
        let mut lines = note.lines().map(str::trim);
        let settled = match lines.next().unwrap_or_default() {
            COMPLETE => return Self::Everything,
            number => number.parse().unwrap_or(0),
        };
        let refused = lines.find_map(|line| line.strip_prefix(REFUSED));
        let refused = refused.unwrap_or_default().split_whitespace();
        Self::Batches {
            settled,
            refused: refused.filter_map(|number| number.parse().ok()).collect(),
        }
    }
}

impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Batches { settled, refused } = self else {
            return writeln!(f, "{COMPLETE}");
        };
        writeln!(f, "{settled}")?;
        if refused.is_empty() {
            return Ok(());
        }
        f.write_str(REFUSED)?;
        for number in refused {
            write!(f, " {number}")?;
        }
        writeln!(f)
    }
}

/// Appends a record in the file's framing.
pub fn push_frame(out: &mut Vec<u8>, record: &[u8]) -> Result<(), TooLong> {
    let length = u32::try_from(record.len()).map_err(|_| TooLong(record.len()))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(record);
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("a record of {0} bytes exceeds the 32-bit length field")]
pub struct TooLong(usize);

/// A batch read from a file.
#[derive(Debug)]
pub struct Batch {
    /// The offset of the record in the file.
    pub at: u64,
    pub samples: Vec<u8>,
    /// The older layout only: stacks that are new in the file.
    pub stacks: Option<Vec<u8>>,
}

/// Why reading a file failed.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    #[error("not a profile file: the magic is {found:02x?}, expected {MAGIC:02x?}")]
    Magic { found: Vec<u8> },
    #[error("unknown format version {0}, expected {VERSION}")]
    Version(u16),
    #[error("the file ends at byte {at}, within batch {batch} of {count}")]
    Truncated { at: u64, batch: u16, count: u16 },
    #[error("the frame at byte {at} is {length} bytes long, more than the limit of {limit}")]
    TooLong { at: u64, length: u32, limit: u32 },
    #[error("the record at byte {at}: {error}")]
    Record {
        at: u64,
        #[source]
        error: BadRecord,
    },
    #[error("reading failed at byte {at}: {error}")]
    Io {
        at: u64,
        #[source]
        error: io::Error,
    },
}

impl BadFile {
    /// Whether the disk failed, as opposed to a malformed file.
    pub fn is_io_error(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.raw_os_error().is_some())
    }
}

/// Reads a file, one batch at a time.
pub struct Reader<R> {
    source: R,
    at: u64,
    count: u16,
    read: u16,
    longest: u32,
}

impl Reader<Box<dyn Read + Send>> {
    /// Opens the file at `path`, compressed or not.
    pub fn of_file(path: &Path, file: File, longest: u32) -> Result<Self, BadFile> {
        let is_compressed = path.extension().is_some_and(|ending| ending == "zst");
        if !is_compressed {
            return Reader::new(Box::new(BufReader::new(file)), longest);
        }
        let bad = |error| BadFile::Io { at: 0, error };
        let mut decoder = zstd::Decoder::new(file).map_err(bad)?;
        decoder.window_log_max(WINDOW_LOG).map_err(bad)?;
        Reader::new(Box::new(decoder), longest)
    }
}

impl<R: Read> Reader<R> {
    /// Opens a file whose records have up to `longest` bytes.
    pub fn new(source: R, longest: u32) -> Result<Self, BadFile> {
        let mut reader = Self {
            source,
            at: 0,
            count: 0,
            read: 0,
            longest,
        };
        let mut magic = [0; 4];
        let read = reader.fill(&mut magic)?;
        if magic != MAGIC {
            let magic = magic.get(..read).unwrap_or_default().to_vec();
            return Err(BadFile::Magic { found: magic });
        }
        let version = u16::from_be_bytes(reader.exactly()?);
        if version != VERSION {
            return Err(BadFile::Version(version));
        }
        reader.count = u16::from_be_bytes(reader.exactly()?);
        Ok(reader)
    }

    /// The batch count of the header.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The next batch; `None` after the last counted one.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, BadFile> {
        if self.read == self.count {
            return Ok(None);
        }
        self.read += 1;
        let at = self.at;
        let samples = self.frame()?;
        let schema = ipc::stated_schema(&samples);
        let schema = schema.map_err(|error| BadFile::Record { at, error })?;
        let stacks = match Version::of(&schema) {
            Some(Version::V2) => None,
            _ => Some(self.frame()?),
        };
        Ok(Some(Batch {
            at,
            samples,
            stacks,
        }))
    }

    fn frame(&mut self) -> Result<Vec<u8>, BadFile> {
        let at = self.at;
        let length = u32::from_be_bytes(self.exactly()?);
        let limit = self.longest;
        if length > limit {
            return Err(BadFile::TooLong { at, length, limit });
        }
        // Allocates as data arrives, not by the stated length.
        let mut frame = Vec::new();
        let taken = (&mut self.source)
            .take(u64::from(length))
            .read_to_end(&mut frame);
        self.at += frame.len() as u64;
        match taken {
            Ok(_) if frame.len() == length as usize => Ok(frame),
            Ok(_) => Err(self.truncated()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn exactly<const N: usize>(&mut self) -> Result<[u8; N], BadFile> {
        let mut bytes = [0; N];
        if self.fill(&mut bytes)? < N {
            return Err(self.truncated());
        }
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, BadFile> {
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..)
            && !rest.is_empty()
        {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(more) => {
                    read += more;
                    self.at += more as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(read)
    }

    fn truncated(&self) -> BadFile {
        BadFile::Truncated {
            at: self.at,
            batch: self.read,
            count: self.count,
        }
    }

    /// A truncated compressed file is an error, too.
    fn failed(&self, error: io::Error) -> BadFile {
        if error.kind() == ErrorKind::UnexpectedEof {
            return self.truncated();
        }
        BadFile::Io { at: self.at, error }
    }
}
