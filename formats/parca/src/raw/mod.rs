//! The oldest layout, which every server accepts: series of pprof files, each with its labels.
//!
//! ```text
//! WriteRawRequest  { repeated RawProfileSeries series = 2; bool normalized = 3 }
//! RawProfileSeries { LabelSet labels = 1; repeated RawSample samples = 2 }
//! LabelSet         { repeated Label labels = 1 }      Label { string name = 1; string value = 2 }
//! RawSample        { bytes raw_profile = 1 }
//! ```
//!
//! Parca's server drops the sample labels of a file, so each label set becomes a series.

mod encode;
mod read;

pub use encode::encode;
pub use read::{BadSeries, Series, limits, read, to_profiles};

/// The label that holds the profile name.
const NAME: &str = "__name__";

mod field {
    use profcol_profile::proto::tag;

    pub const SERIES: u32 = tag::len(2);
    pub const NORMALIZED: u32 = tag::varint(3);
    pub const SERIES_LABELS: u32 = tag::len(1);
    pub const SERIES_SAMPLES: u32 = tag::len(2);
    pub const LABEL: u32 = tag::len(1);
    pub const LABEL_NAME: u32 = tag::len(1);
    pub const LABEL_VALUE: u32 = tag::len(2);
    pub const RAW_PROFILE: u32 = tag::len(1);
}
