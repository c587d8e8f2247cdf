//! Configuration field types beyond numbers and strings.

mod duration;
mod headers;
mod ids;
mod present;
mod secret;
mod url;

pub use duration::{Duration, DurationError};
pub use headers::Headers;
pub use ids::{ComponentId, IdError, PipelineId};
pub use present::{NULL_IS_PRESENT, Present};
pub use secret::{REDACTED, Secret};
pub use url::{Url, redact_url};
