//! Profiles as Parca's agent and server speak them: records in Arrow, and files of such records.
//!
//! ```text
//!              ┌ v1: samples with ids of stacks, and apart from them the stacks ┐
//! Model ─ Table┤                                                                ├ ipc ── bytes
//!              ├ v2: samples with their stacks                                  ┘
//!              └ raw: a pprof for each set of labels
//! bytes ── ipc ── v1, v2 ── Samples, Stacks ── Model
//! ```
//!
//! A [`Table`] is a batch with labels instead of resources, a row for each sample, sorted so that
//! equal cells stand one below the other: that is what Parca's columns keep once.
//!
//! This crate knows no sockets, no runtime and no configuration.

mod arrays;
mod columns;
pub mod debuginfo;
mod fatal;
mod frames;
pub mod ipc;
mod labels;
mod model;
pub mod padata;
pub mod raw;
mod read;
mod runs;
mod schema;
pub mod service;
mod stack_id;
mod table;
pub mod v1;
pub mod v2;

pub use arrow_array::RecordBatch;
pub use columns::Keyed;
pub use frames::{Frame, Frames};
pub use labels::{LabelRules, Pattern, sanitized};
pub use model::to_model;
pub use read::{Refused, Samples, StackRefs, read_samples};
pub use schema::Version;
pub use stack_id::{StackId, StackIds};
pub use table::Table;
