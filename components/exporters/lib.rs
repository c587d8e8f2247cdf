//! The exporters: where profiles go. One folder each, one line in the list.

mod nop;
mod otlp_grpc;
mod otlp_http;
mod shared;

use profcol_component::{Entry, Exporter, entry};

pub const ALL: &[Entry<dyn Exporter>] = &[
    entry::<nop::Nop>(),
    entry::<otlp_grpc::OtlpGrpc>(),
    entry::<otlp_http::OtlpHttp>(),
];
