//! A contestant as a process with the configuration of the case.

use std::net::SocketAddr;

use anyhow::Result;

use crate::load::Protocol;
use crate::options::{Case, Delivery};
use crate::program::{self, Program};

pub struct Forwarder {
    pub program: Program,
    pub address: SocketAddr,
}

impl Forwarder {
    /// Starts `command` as a forwarder to `sink` and waits until it listens.
    pub fn start(command: &str, case: &Case, queue_size: usize, sink: SocketAddr) -> Result<Self> {
        let address = program::free_address()?;
        let configuration = configuration(case, queue_size, address, sink);
        Ok(Self {
            program: Program::start(command, &configuration, address)?,
            address,
        })
    }
}

/// The same text for every contestant.
fn configuration(case: &Case, queue_size: usize, listen: SocketAddr, sink: SocketAddr) -> String {
    let protocol = match case.load.protocol() {
        Protocol::Grpc => format!("grpc: {{endpoint: '{listen}', max_recv_msg_size_mib: 64}}"),
        Protocol::Http => format!("http: {{endpoint: '{listen}'}}"),
    };
    let compression = case.compression.name();
    let queue = match case.delivery {
        Delivery::Direct => "{enabled: false}".to_owned(),
        Delivery::Queued => format!("{{queue_size: {queue_size}, block_on_overflow: true}}"),
        Delivery::Batched => format!(
            "{{queue_size: {queue_size}, block_on_overflow: true, batch: {{min_size: 8192, flush_timeout: 200ms}}}}"
        ),
    };
    format!(
        "\
receivers:
  otlp:
    protocols:
      {protocol}
exporters:
  otlp_grpc:
    endpoint: {sink}
    tls: {{insecure: true}}
    compression: {compression}
    timeout: 60s
    sending_queue: {queue}
service:
  telemetry:
    metrics: {{level: none}}
    logs: {{level: warn}}
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [otlp_grpc]
"
    )
}
