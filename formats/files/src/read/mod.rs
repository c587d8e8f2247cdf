//! Decodes a file of any known format into the model.

mod compressed;
mod firefox;
mod page;
#[cfg(feature = "parca")]
mod recording;
mod speedscope;
mod stacks;
mod stream;

use std::io;

use bytes::Bytes;
use profcol_otlp::json;
use profcol_pprof::{Limits, PprofError};
use profcol_profile::{
    Function, Interner, Invalid, Line, Location, LocationRef, Model, Profile, Profiles, SampleRef,
    Samples, Validation, ValueType,
};

use self::compressed::{GZIP, ZSTD, decompress};
pub use self::stream::RecordError;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the file is empty")]
    Empty,
    #[error("the profile needs more memory than the limit of {} GiB", MAX_BYTES >> 30)]
    TooLarge,
    #[error("failed to decompress: {0}")]
    Compressed(#[source] io::Error),
    #[error(transparent)]
    Pprof(#[from] PprofError),
    #[error("invalid OTLP JSON profile: {0}")]
    Json(#[from] json::JsonError),
    #[error("line {line}: invalid OTLP JSON profile: {error}")]
    Line {
        line: usize,
        #[source]
        error: RecordError,
    },
    #[error("invalid OTLP record at byte {at}: {error}")]
    Record {
        at: usize,
        #[source]
        error: RecordError,
    },
    #[error("invalid speedscope file: {0}")]
    Speedscope(String),
    #[error("invalid profile of the Firefox Profiler: {0}")]
    Firefox(String),
    #[error(
        "version {version} of the Firefox Profiler's format is too old: load the file in the Firefox Profiler and download it again, which upgrades it"
    )]
    OldFirefox { version: u32 },
    #[error("invalid profile in the HTML page: {0}")]
    Page(String),
    #[error(
        "an image, or an HTML page of another program, without a profile to read; `profcol record -o FILE.pb.gz` writes pprof"
    )]
    OnlyWritten,
    #[error("line {line} is not a folded stack such as `main;run;read 12`")]
    Folded { line: usize },
    #[cfg(feature = "parca")]
    #[error(transparent)]
    Recording(#[from] profcol_parca::padata::BadFile),
    #[cfg(feature = "parca")]
    #[error("the batch at byte {at}: {error}")]
    Batch {
        at: u64,
        #[source]
        error: profcol_parca::RecordError,
    },
    #[cfg(not(feature = "parca"))]
    #[error("a Parca recording: this profcol is built without the feature `parca`")]
    NoRecordings,
    #[error(
        "unknown profile format: not pprof ({pprof}), not OTLP ({otlp}), not folded stacks, speedscope, Firefox Profiler, a page or a recording of profcol"
    )]
    Unknown {
        pprof: PprofError,
        #[source]
        otlp: Invalid,
    },
}

/// Memory limit of a decoded profile.
const MAX_BYTES: usize = 2 << 30;

/// The first bytes of a recording.
#[cfg(not(feature = "parca"))]
const RECORDING: [u8; 4] = [0xa6, 0xe7, 0xcc, 0xca];
#[cfg(feature = "parca")]
use self::recording::MAGIC as RECORDING;

/// Reads any format that profcol writes except SVG, compressed or not.
pub fn read(content: &[u8]) -> Result<Model, ReadError> {
    read_within(content, MAX_BYTES)
}

/// Reads a profile of at most `max_bytes` of memory.
pub fn read_within(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    match content.starts_with(&ZSTD) {
        true => without_zstd(&decompress(content, max_bytes)?, max_bytes),
        false => without_zstd(content, max_bytes),
    }
}

fn without_zstd(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    if !content.starts_with(&GZIP) {
        return plain(content, max_bytes);
    }
    profcol_pprof::read(content, limits(max_bytes)).or_else(|error| {
        match decompress(content, max_bytes) {
            Ok(text) if text.first() == Some(&b'{') => plain(&text, max_bytes),
            _ => Err(error.into()),
        }
    })
}

fn limits(max_bytes: usize) -> Limits {
    Limits {
        file_bytes: max_bytes,
        model_bytes: max_bytes,
    }
}

fn plain(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    match content {
        [] => Err(ReadError::Empty),
        [b'{', ..] => read_json(content, max_bytes),
        _ if content.starts_with(&RECORDING) => recording(content, max_bytes),
        _ if stream::is_records(content) => stream::records(content, max_bytes),
        _ => binary_or_text(content, max_bytes),
    }
}

#[cfg(feature = "parca")]
fn recording(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    recording::read(content, max_bytes)
}

#[cfg(not(feature = "parca"))]
fn recording(_: &[u8], _: usize) -> Result<Model, ReadError> {
    Err(ReadError::NoRecordings)
}

fn read_json(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    let received = json::receive(content, Validation::Reject);
    match received.map(|it| it.profiles.into_model()) {
        Ok(model) if !model.resources.is_empty() => Ok(model),
        // Unknown fields are no error.
        _ if firefox::is_firefox(content) => firefox::read(content, max_bytes),
        _ if speedscope::is_speedscope(content) => speedscope::read(content, max_bytes),
        Err(_) if stream::is_lines(content) => stream::lines(content),
        decoded => Ok(decoded?),
    }
}

fn binary_or_text(content: &[u8], max_bytes: usize) -> Result<Model, ReadError> {
    // Text never starts with the first byte of either protobuf format.
    if content.first().is_some_and(|byte| *byte >= b' ')
        && let Ok(text) = std::str::from_utf8(content)
    {
        return match is_markup(text) {
            true => match page::document(text) {
                Some(document) => page::read(document, max_bytes),
                None => Err(ReadError::OnlyWritten),
            },
            false => folded(text),
        };
    }
    let pprof = match profcol_pprof::read(content, limits(max_bytes)) {
        Ok(model) => return Ok(model),
        Err(error) => error,
    };
    match Profiles::from_wire(Bytes::copy_from_slice(content), Validation::Reject) {
        Ok(received) => Ok(received.profiles.into_model()),
        Err(otlp) => Err(ReadError::Unknown { pprof, otlp }),
    }
}

/// Folded stacks can start with `<`, too.
fn is_markup(text: &str) -> bool {
    let start = text.get(..9).unwrap_or_default().to_ascii_lowercase();
    ["<!doctype", "<?xml", "<svg"]
        .iter()
        .any(|it| start.starts_with(it))
}

/// Semicolon-separated functions, outermost first, then a number.
fn folded(text: &str) -> Result<Model, ReadError> {
    let mut rows = Interner::default();
    let (kind, unit) = (rows.string("samples"), rows.string("count"));
    let mut samples = Samples::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || ReadError::Folded { line: number + 1 };
        let (stack, value) = line.rsplit_once(' ').ok_or_else(wrong)?;
        let value: i64 = value.parse().map_err(|_| wrong())?;
        let mut locations = Vec::new();
        for name in stack.split(';').rev() {
            let name = rows.string(name);
            let function = rows.function(Function {
                name,
                ..Function::default()
            });
            let line = Line {
                function,
                ..Line::default()
            };
            locations.push(rows.location(LocationRef {
                location: Location::default(),
                lines: &[line],
                attributes: &[],
            }));
        }
        samples.push(SampleRef {
            stack: rows.stack(&locations),
            values: &[value],
            ..SampleRef::default()
        });
    }
    let profile = Profile {
        sample_type: Some(ValueType { kind, unit }),
        samples,
        ..Profile::default()
    };
    Ok(Model::of_profile(rows.finish(), None, profile))
}
