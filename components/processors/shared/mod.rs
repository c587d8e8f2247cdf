//! Shared by several processors.

pub(crate) mod actions;
pub(crate) mod grouper;
pub(crate) mod lists;
pub(crate) mod lookup_waiter;
pub(crate) mod remainder;
pub(crate) mod resource_cache;
pub(crate) mod rules;
pub(crate) mod sampled_processes;
#[cfg(test)]
pub(crate) mod testkit;
pub(crate) mod threads;
