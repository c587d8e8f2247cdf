//! The processors. One directory each, one line in the list.

mod attributes;
mod batch;
mod container;
mod filter;
mod groupbyattrs;
#[cfg(feature = "k8s_attributes")]
mod k8s_attributes;
mod memory_limiter;
mod probabilistic_sampler;
mod process;
mod relabel;
mod resource;
mod resource_detection;
mod shared;
mod symbolize;
mod systemd;
mod values;

use profcol_component::{Entry, Processor, entry};

pub const ALL: &[Entry<dyn Processor>] = &[
    entry::<attributes::AttributesProcessor>(),
    entry::<batch::BatchProcessor>(),
    entry::<container::ContainerProcessor>(),
    entry::<filter::FilterProcessor>(),
    entry::<groupbyattrs::GroupByAttrs>(),
    #[cfg(feature = "k8s_attributes")]
    entry::<k8s_attributes::K8sAttributes>(),
    entry::<memory_limiter::MemoryLimiter>(),
    entry::<probabilistic_sampler::ProbabilisticSampler>(),
    entry::<process::ProcessProcessor>(),
    entry::<relabel::RelabelProcessor>(),
    entry::<resource::ResourceProcessor>(),
    entry::<resource_detection::ResourceDetectionProcessor>(),
    entry::<symbolize::SymbolizeProcessor>(),
    entry::<systemd::SystemdProcessor>(),
];
