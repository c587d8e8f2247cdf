//! The processors: what happens to profiles on their way. One folder each, one line in the list.

mod batch;
pub mod container;
mod filter;
#[cfg(feature = "k8s_attributes")]
mod k8s_attributes;
mod memory_limiter;
pub mod process;
pub mod relabel;
mod resource;
mod shared;
pub mod systemd;
mod values;

use profcol_component::{Entry, Processor, entry};

pub const ALL: &[Entry<dyn Processor>] = &[
    entry::<batch::BatchProcessor>(),
    entry::<container::ContainerProcessor>(),
    entry::<filter::FilterProcessor>(),
    #[cfg(feature = "k8s_attributes")]
    entry::<k8s_attributes::K8sAttributes>(),
    entry::<memory_limiter::MemoryLimiter>(),
    entry::<process::ProcessProcessor>(),
    entry::<relabel::RelabelProcessor>(),
    entry::<resource::ResourceProcessor>(),
    entry::<systemd::SystemdProcessor>(),
];
