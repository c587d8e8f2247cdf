//! The part of the binary that tests and tools use too: which components there are.

mod components;
mod elsewhere;

pub use components::REGISTRY;
