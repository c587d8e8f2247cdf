//! What several processors need.

pub(crate) mod attributes;
pub(crate) mod generations;
pub(crate) mod patience;
pub(crate) mod sightings;
