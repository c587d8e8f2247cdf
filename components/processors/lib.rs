//! The processors: what happens to profiles on their way. One folder each, one line in the list.

mod batch;
mod filter;
mod memory_limiter;
pub mod relabel;
mod resource;
mod shared;
mod values;

use profcol_component::{Entry, Processor, entry};

pub const ALL: &[Entry<dyn Processor>] = &[
    entry::<batch::BatchProcessor>(),
    entry::<filter::FilterProcessor>(),
    entry::<memory_limiter::MemoryLimiter>(),
    entry::<relabel::RelabelProcessor>(),
    entry::<resource::ResourceProcessor>(),
];
