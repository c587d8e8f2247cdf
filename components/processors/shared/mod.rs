//! What several processors need.

pub(crate) mod actions;
pub(crate) mod generations;
pub(crate) mod grouper;
pub(crate) mod image;
pub(crate) mod left;
pub(crate) mod lists;
pub(crate) mod local;
pub(crate) mod locks;
pub(crate) mod lookup;
pub(crate) mod lookup_waiter;
pub(crate) mod resource_attributes;
pub(crate) mod resource_cache;
pub(crate) mod rules;
pub(crate) mod run_blocking;
pub(crate) mod sightings;
#[cfg(test)]
pub(crate) mod testkit;
pub(crate) mod threads;
