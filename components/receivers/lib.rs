//! The receivers. One directory each, one line in the list.

#[cfg(feature = "ebpf_cpu")]
mod ebpf_cpu;
#[cfg(feature = "kafka")]
mod kafka;
mod nop;
mod otlp;
mod otlp_file;
#[cfg(feature = "parca")]
mod padata;
#[cfg(feature = "parca")]
mod parca;
mod shared;

use profcol_component::{Entry, Receiver, entry};

pub const ALL: &[Entry<dyn Receiver>] = &[
    #[cfg(feature = "ebpf_cpu")]
    entry::<ebpf_cpu::EbpfCpu>(),
    #[cfg(feature = "kafka")]
    entry::<kafka::Kafka>(),
    entry::<nop::Nop>(),
    entry::<otlp::Otlp>(),
    entry::<otlp_file::OtlpFile>(),
    #[cfg(feature = "parca")]
    entry::<padata::Padata>(),
    #[cfg(feature = "parca")]
    entry::<parca::Parca>(),
];
