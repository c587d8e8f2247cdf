//! Profiles in the formats of Parca's agent and server: Arrow records, and files of such records.
//!
//! ```text
//!              ┌ v1: samples with stack ids, and separate stack records ┐
//! Model ─ Table┤                                                        ├ ipc ── bytes
//!              ├ v2: samples with inline stacks                         ┘
//!              └ raw: one pprof per label set
//! bytes ── ipc ── v1, v2 ── Samples, Stacks ── Model
//! ```
//!
//! A [`Table`] is a batch with labels instead of resources and one row per sample, sorted so that equal cells are
//! adjacent: Parca's columns store adjacent equal cells once.
//!
//! This crate has no I/O, no runtime and no configuration.

mod arrays;
mod columns;
pub mod debuginfo;
mod error;
mod fatal;
mod frame_row;
mod frames;
pub mod ipc;
mod labels;
mod model;
pub mod padata;
pub mod raw;
mod read;
mod runs;
mod samples;
mod schema;
pub mod service;
mod stack_id;
mod table;
pub mod v1;
pub mod v2;

pub use arrow_array::RecordBatch;
pub use columns::Keyed;
pub use error::RecordError;
pub use frames::{Frame, Frames};
pub use labels::{LabelRules, Pattern, sanitized};
pub use model::to_model;
pub use read::read_samples;
pub use samples::{InlineStacks, Samples, StackRefs};
pub use schema::Version;
pub use stack_id::{StackId, StackIds};
pub use table::Table;
