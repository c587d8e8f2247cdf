//! The receivers: where profiles come from. One folder each, one line in the list.

mod nop;
mod otlp;
mod otlp_file;

use profcol_component::{Entry, Receiver, entry};

pub const ALL: &[Entry<dyn Receiver>] = &[
    entry::<nop::Nop>(),
    entry::<otlp::Otlp>(),
    entry::<otlp_file::OtlpFile>(),
];
