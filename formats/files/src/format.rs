//! Profile file formats and their file extensions.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// pprof's `profile.proto`, compressed by gzip.
    #[default]
    Pprof,
    /// OTLP profiles, in protobuf.
    OtlpProto,
    /// OTLP profiles, in JSON.
    OtlpJson,
    /// One stack and its value per line.
    Folded,
    /// A flame graph as a static image.
    Svg,
    /// A self-contained HTML page: the viewer and the profile.
    Html,
    Speedscope,
    /// A processed profile of the Firefox Profiler, in JSON.
    Firefox,
    /// The same, compressed by gzip.
    FirefoxGzip,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown file extension in {name:?}; use one of {}", endings())]
pub struct UnknownFormat {
    name: String,
}

/// An extension comes before any other that is its suffix.
const ENDINGS: &[(&str, Format)] = &[
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".otlp.json", Format::OtlpJson),
    (".otlp", Format::OtlpProto),
    (".folded", Format::Folded),
    (".collapsed", Format::Folded),
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".speedscope.json", Format::Speedscope),
    (".firefox.json.gz", Format::FirefoxGzip),
    (".firefox.json", Format::Firefox),
];

impl Format {
    pub fn of_file(name: &str) -> Result<Self, UnknownFormat> {
        let lower = name.to_ascii_lowercase();
        let entry = ENDINGS.iter().find(|(ending, _)| lower.ends_with(ending));
        entry
            .map(|(_, format)| *format)
            .ok_or_else(|| UnknownFormat {
                name: name.to_owned(),
            })
    }

    /// How to open a file of this format.
    pub fn how_to_open(self, file: &str) -> String {
        match self {
            Self::Pprof => format!("go tool pprof -http=: {file}"),
            Self::Html | Self::Svg => format!("open {file} in a browser"),
            Self::Speedscope => format!("speedscope {file}"),
            Self::Firefox | Self::FirefoxGzip => {
                format!("load {file} in https://profiler.firefox.com")
            }
            Self::Folded => format!("profcol convert {file} profile.html"),
            Self::OtlpProto | Self::OtlpJson => format!("profcol convert {file} profile.html"),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pprof => "pprof",
            Self::OtlpProto => "OTLP",
            Self::OtlpJson => "OTLP JSON",
            Self::Folded => "folded stacks",
            Self::Svg => "SVG",
            Self::Html => "HTML",
            Self::Speedscope => "speedscope",
            Self::Firefox | Self::FirefoxGzip => "Firefox Profiler",
        })
    }
}

fn endings() -> String {
    let endings: Vec<&str> = ENDINGS.iter().map(|(ending, _)| *ending).collect();
    endings.join(", ")
}
