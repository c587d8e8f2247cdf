//! The component registry, shared with tests and tools.

mod components;
mod other_distributions;

pub use components::REGISTRY;
