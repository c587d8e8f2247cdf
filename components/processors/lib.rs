//! The processors: what happens to profiles on their way. One folder each, one line in the list.

mod batch;
pub mod container;
mod filter;
mod memory_limiter;
pub mod process;
pub mod relabel;
mod resource;
mod shared;
mod symbolize;
pub mod systemd;
mod values;

use profcol_component::{Entry, Processor, entry};

pub const ALL: &[Entry<dyn Processor>] = &[
    entry::<batch::BatchProcessor>(),
    entry::<container::ContainerProcessor>(),
    entry::<filter::FilterProcessor>(),
    entry::<memory_limiter::MemoryLimiter>(),
    entry::<process::ProcessProcessor>(),
    entry::<relabel::RelabelProcessor>(),
    entry::<resource::ResourceProcessor>(),
    entry::<symbolize::SymbolizeProcessor>(),
    entry::<systemd::SystemdProcessor>(),
];
