//! A contestant as a process with the configuration of the case.

use std::net::SocketAddr;

use anyhow::Result;

use crate::load::{Client, Protocol};
use crate::options::Case;
use crate::program::{self, Program};
use crate::wire::Compression;

pub struct Forwarder {
    pub program: Program,
    pub address: SocketAddr,
}

impl Forwarder {
    /// Starts `command` as a forwarder to `sink` and waits until it listens.
    pub fn start(command: &str, case: &Case, queue_size: usize, sink: SocketAddr) -> Result<Self> {
        let setup = Setup {
            load: case.load,
            compression: case.compression,
            queue: case.delivery.queue(queue_size),
            extensions: "{}".to_owned(),
            enabled: "[]",
        };
        Self::with(command, &setup, sink)
    }

    pub fn with(command: &str, setup: &Setup, sink: SocketAddr) -> Result<Self> {
        let address = program::free_address()?;
        let configuration = setup.configuration(address, sink);
        Ok(Self {
            program: Program::start(command, &configuration, address)?,
            address,
        })
    }
}

/// What differs between the configurations of forwarders.
pub struct Setup {
    pub load: Client,
    pub compression: Compression,
    /// `sending_queue`.
    pub queue: String,
    pub extensions: String,
    /// `service::extensions`.
    pub enabled: &'static str,
}

impl Setup {
    /// The same text for every contestant.
    fn configuration(&self, listen: SocketAddr, sink: SocketAddr) -> String {
        let protocol = match self.load.protocol() {
            Protocol::Grpc => {
                format!("grpc: {{endpoint: '{listen}', max_recv_msg_size_mib: 64}}")
            }
            Protocol::Http => format!("http: {{endpoint: '{listen}'}}"),
        };
        let compression = self.compression.name();
        let Self {
            queue,
            extensions,
            enabled,
            ..
        } = self;
        format!(
            "\
extensions: {extensions}
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
    retry_on_failure: {{max_elapsed_time: 0s}}
    sending_queue: {queue}
service:
  extensions: {enabled}
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
}
