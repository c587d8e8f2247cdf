//! Call trees of profiles, and what is drawn from them.
//!
//! ```text
//! Model ─┐                       ┌─ Document   JSON, for the viewer
//!        ├─ CallTree ─ Layout ───┼─ folded     one line per stack
//! store ─┘   by function         ├─ svg        a picture
//!                                ├─ speedscope
//!                                └─ html       the viewer with its data in one file
//! ```
//!
//! A tree has two values at each node, so that two profiles are compared in one: what is looked at, and what it is
//! compared with. This crate knows no files and no network.

mod document;
mod folded;
mod frames;
mod html;
mod layout;
mod model;
mod sample_type;
mod speedscope;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod tree;
pub mod viewer;

pub use document::{Document, Sandwich, Source};
pub use folded::folded;
pub use frames::{Frame, FrameId, FrameKind, FrameTable};
pub use html::html;
pub use layout::{Cut, Layout};
pub use model::{ModelFrames, add_model, to_model};
pub use sample_type::{Measured, SampleType, Weight, measured, sample_types};
pub use speedscope::speedscope;
pub use svg::svg;
pub use table::{FunctionTable, function_table};
pub use tree::{CallTree, NodeId, Side, Values};
