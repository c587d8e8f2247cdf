//! What the receiver and the exporter `kafka` share: connection settings, errors, checks, and the encoding of messages.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic fails the test"))]

mod check;
mod encoding;
mod error;
mod settings;

pub use check::{check_cluster, check_topic};
pub use encoding::{DecodeError, Encoding};
pub use error::Error;
pub use settings::ClientSettings;
