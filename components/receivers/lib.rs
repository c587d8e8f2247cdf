//! The receivers: where profiles come from. One folder each, one line in the list.

#[cfg(feature = "ebpf_cpu")]
mod ebpf_cpu;
mod nop;
mod otlp;
mod otlp_file;
pub mod padata;
mod parca;
mod shared;

use profcol_component::{Entry, Receiver, entry};

pub const ALL: &[Entry<dyn Receiver>] = &[
    #[cfg(feature = "ebpf_cpu")]
    entry::<ebpf_cpu::EbpfCpu>(),
    entry::<nop::Nop>(),
    entry::<otlp::Otlp>(),
    entry::<otlp_file::OtlpFile>(),
    entry::<padata::Padata>(),
    entry::<parca::Parca>(),
];
