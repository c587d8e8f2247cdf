//! Loads configurations in the OpenTelemetry Collector's format; errors show the offending line.
//!
//! ```text
//! files, variables, --set ── resolve ──> Node ── check ──> Node ── decode ──> a Config ── validate
//!                             (yaml)             (schema)                                     └──> Problems ──> Report
//! ```

mod config;
mod decode;
pub mod node;
pub mod print;
mod problem;
mod report;
pub mod resolve;
pub mod schema;
mod sources;
mod suggest;
mod values;
pub mod yaml;

pub use config::{Config, load};
pub use decode::decode;
pub use node::{Map, MapEntry, Node, Value};
pub use problem::{MAX_PROBLEMS, Problem, Problems};
pub use report::Report;
pub use resolve::{
    ConfigProviders, Input, Note, NoteLevel, ProviderError, Resolved, SCHEMES, SystemProviders,
    Unresolved, content_hash, parse_untrusted, resolve,
};
pub use sources::{Location, SourceId, SourceLimitError, Sources};
pub use suggest::did_you_mean;
pub use values::{
    ComponentId, Duration, DurationError, Headers, IdError, PipelineId, Present, REDACTED, Secret,
    Url, redact_url,
};
