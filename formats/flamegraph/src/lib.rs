//! Call trees of profiles and their renderings.
//!
//! ```text
//! Model ─┬─────────────────────────► firefox    threads over time
//!        │                       ┌─ Document   JSON, for the viewer
//!        ├─ CallTree ─ Layout ───┼─ folded     one line per stack
//! store ─┘   by function         ├─ svg        a static image
//!                                ├─ speedscope
//!                                └─ html       the viewer and its data in one file
//! ```
//!
//! Each node has two values, so that one tree compares two profiles: the current one and the baseline. This crate does
//! no file or network I/O.

mod code;
mod document;
mod firefox;
mod folded;
mod frames;
mod html;
mod layout;
mod model;
mod numbers;
mod sample_type;
mod speedscope;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod tree;
pub mod viewer;

pub use code::{Code, Execution, FrameKind, Language};
pub use document::{Document, Relation, Sandwich, Source};
pub use firefox::firefox;
pub use folded::folded;
pub use frames::{Frame, FrameId, FrameTable};
pub use html::html;
pub use layout::{Cut, Layout};
pub use model::{FrameAdder, ModelFrames, add_location, add_model, to_model};
pub use numbers::Numbers;
pub use sample_type::{Measured, SampleType, Weight, measured, sample_types};
pub use speedscope::speedscope;
pub use svg::{difference_svg, svg};
pub use table::{FunctionTable, function_table};
pub use tree::{CallTree, NodeId, Side, Values};
