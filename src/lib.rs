//! The component registry, shared with tests and tools.

mod components;
mod elsewhere;

pub use components::REGISTRY;
