//! A Collector with the `nop` exporter; its own metrics tell what it has received.

use std::net::SocketAddr;

use anyhow::Result;

use super::{Received, scrape, sum};
use crate::program::{self, Program};

const PROGRAM: &str = "target/peers/otelcol";
const SAMPLES: &str = "otelcol_receiver_accepted_profile_samples";

pub struct Sink {
    pub address: SocketAddr,
    metrics: SocketAddr,
    _program: Program,
}

impl Sink {
    pub fn start(address: SocketAddr) -> Result<Self> {
        let metrics = program::free_address()?;
        let configuration = configuration(address, metrics);
        Ok(Self {
            address,
            metrics,
            _program: Program::start(PROGRAM, &configuration, address)?,
        })
    }

    pub fn received(&self) -> Result<Received> {
        let metrics = scrape(self.metrics)?;
        Ok(Received {
            samples: sum(&metrics, SAMPLES)?,
            messages: None,
        })
    }
}

fn configuration(listen: SocketAddr, metrics: SocketAddr) -> String {
    let (host, port) = (metrics.ip(), metrics.port());
    format!(
        "\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '{listen}', max_recv_msg_size_mib: 64}}
exporters:
  nop:
service:
  telemetry:
    metrics:
      level: normal
      readers: [{{pull: {{exporter: {{prometheus: {{host: '{host}', port: {port}}}}}}}}}]
    logs: {{level: warn}}
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [nop]
"
    )
}
