//! The part of the binary that tests and tools use too: which components there are.

mod components;

pub use components::REGISTRY;
