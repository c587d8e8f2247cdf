//! The exporters. One directory each, one line in the list.

mod debug;
mod file;
#[cfg(feature = "kafka")]
mod kafka;
mod live_view;
mod load_balancing;
mod nop;
mod otlp_grpc;
mod otlp_http;
#[cfg(feature = "parca")]
mod padata;
#[cfg(feature = "parca")]
mod parca;
mod pprof_file;
mod profile_file;
mod shared;
mod top;

use profcol_component::{Entry, Exporter, entry};

pub const ALL: &[Entry<dyn Exporter>] = &[
    entry::<debug::Debug>(),
    entry::<file::File>(),
    #[cfg(feature = "kafka")]
    entry::<kafka::Kafka>(),
    entry::<live_view::LiveView>(),
    entry::<load_balancing::LoadBalancing>(),
    entry::<nop::Nop>(),
    entry::<otlp_grpc::OtlpGrpc>(),
    entry::<otlp_http::OtlpHttp>(),
    #[cfg(feature = "parca")]
    entry::<padata::Padata>(),
    #[cfg(feature = "parca")]
    entry::<parca::Parca>(),
    entry::<pprof_file::PprofFile>(),
    entry::<profile_file::ProfileFile>(),
    entry::<top::Top>(),
];
