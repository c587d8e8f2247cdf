//! Fault injection with the real program: invalid input, misbehaving clients, failing destinations, missing files and
//! ports, full, failing and slow disks, kills, jumps of the clock, crowds, too little memory and CPU.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod addresses;
mod answers;
mod clients;
mod clock;
mod destinations;
mod disk;
mod floods;
mod http_destinations;
mod input;
mod memory;
mod outage;
mod pressure;
mod queues;
mod schedule;
mod start;
mod status;
mod stored_queue;
mod stuck;
mod tls;

use std::net::SocketAddr;

use profcol_test_harness::backend::endpoint_in;
use profcol_test_harness::peers::{Process, profcol};

/// The profcol under test with one `otlp` receiver for gRPC and HTTP.
struct Rig {
    process: Process,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Rig {
    /// `exporters` is the section of that name, `names` are the exporters of the pipeline.
    fn new(exporters: &str, names: &str) -> Self {
        Self::with_limits(exporters, names, 64)
    }

    fn with_limits(exporters: &str, names: &str, mib: u32) -> Self {
        let bytes = mib << 20;
        let config = format!(
            "\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: 127.0.0.1:0, max_recv_msg_size_mib: {mib}}}
      http: {{endpoint: 127.0.0.1:0, max_request_body_size: {bytes}}}
exporters:
{exporters}
service:
  shutdown_timeout: 10s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [{names}]}}
"
        );
        Self::started(profcol(&config))
    }

    fn started(mut process: Process) -> Self {
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        let output = process.output();
        Self {
            grpc: endpoint_in(&output, "grpc"),
            http: endpoint_in(&output, "http"),
            process,
        }
    }

    /// Stops it; it must exit successfully.
    fn stop(self) -> String {
        let (status, output) = self.process.stop();
        assert!(status.success(), "{status}: {output}");
        output
    }

    /// The peak memory of the process so far, in MiB.
    fn peak_mib(&self) -> usize {
        self.status_mib("VmHWM:")
    }

    /// The pages of files, which are part of that.
    fn file_mib(&self) -> usize {
        self.status_mib("RssFile:")
    }

    fn status_mib(&self, name: &str) -> usize {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = std::fs::read_to_string(path).expect("the process runs");
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        let kib: usize = kib.and_then(|kib| kib.parse().ok()).expect("a number");
        kib >> 10
    }
}
