//! Decodes a file of any known format into the model.

use bytes::Bytes;
use profcol_otlp::json;
use profcol_pprof::{Limits, PprofError};
use profcol_profile::{
    Function, Interner, Invalid, Line, Location, LocationRef, Model, Profile, Profiles, SampleRef,
    Samples, Validation, ValueType,
};

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the file is empty")]
    Empty,
    #[error(transparent)]
    Pprof(#[from] PprofError),
    #[error("invalid OTLP JSON profile: {0}")]
    Json(#[from] json::JsonError),
    #[error(
        "an HTML, SVG, Firefox Profiler or speedscope file, which profcol only writes; read pprof, OTLP or folded stacks: `profcol record -o FILE.pb.gz` writes pprof"
    )]
    OnlyWritten,
    #[error("line {line} is not a folded stack such as `main;run;read 12`")]
    Folded { line: usize },
    #[error("unknown profile format: not pprof ({pprof}), not OTLP ({otlp}), not folded stacks")]
    Unknown {
        pprof: PprofError,
        #[source]
        otlp: Invalid,
    },
}

/// Memory limit of a decoded profile.
const MAX_BYTES: usize = 2 << 30;

/// Reads pprof, OTLP in protobuf or JSON, or folded stacks.
pub fn read(content: &[u8]) -> Result<Model, ReadError> {
    let limits = Limits {
        file_bytes: MAX_BYTES,
        model_bytes: MAX_BYTES,
    };
    match content {
        [] => Err(ReadError::Empty),
        [0x1f, 0x8b, ..] => Ok(profcol_pprof::read(content, limits)?),
        [b'{', ..] => otlp_json(content),
        _ => binary_or_text(content, limits),
    }
}

fn otlp_json(content: &[u8]) -> Result<Model, ReadError> {
    let has = |key: &[u8]| content.windows(key.len()).any(|it| it == key);
    match json::decode(content) {
        Ok(model) if !model.resources.is_empty() => Ok(model),
        // Unknown fields are no error.
        _ if has(b"\"preprocessedProfileVersion\"")
            || has(b"speedscope.app/file-format-schema") =>
        {
            Err(ReadError::OnlyWritten)
        }
        decoded => Ok(decoded?),
    }
}

fn binary_or_text(content: &[u8], limits: Limits) -> Result<Model, ReadError> {
    // Text never starts with the first byte of either protobuf format.
    if content.first().is_some_and(|byte| *byte >= b' ')
        && let Ok(text) = std::str::from_utf8(content)
    {
        return match is_markup(text) {
            true => Err(ReadError::OnlyWritten),
            false => folded(text),
        };
    }
    let pprof = match profcol_pprof::read(content, limits) {
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
