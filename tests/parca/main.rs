//! profcol as a Parca server, as a Parca Agent, and as a recorder and uploader, with recordings of real ones.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod crashing_server;
mod debuginfo;
mod dialogue;
mod disk;
mod files;
mod kills;
mod labels;
mod pyarrow;
mod script;
mod upload;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use profcol_profile::{Interner, Profile, Profiles, Samples, Validation, ValueType};
use profcol_test_harness::backend::{Destination, Mode};
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::support::golden;

/// A second of samples, by their number.
fn counted(rows: &mut Interner, samples: Samples) -> Profile {
    let count = ValueType {
        kind: rows.string("samples"),
        unit: rows.string("count"),
    };
    Profile {
        sample_type: Some(count),
        period_type: Some(count),
        samples,
        time_unix_nano: 1_700_000_000_000_000_000,
        duration_nano: 1_000_000_000,
        ..Profile::default()
    }
}

/// A profcol with a `parca` receiver.
struct Server {
    process: Process,
    address: SocketAddr,
    /// The destination of its exports.
    destination: Destination,
}

impl Server {
    fn new() -> Self {
        Self::with("127.0.0.1:0", "")
    }

    /// Listens on `endpoint`; `options` are further options of the receiver.
    fn with(endpoint: &str, options: &str) -> Self {
        let destination = Destination::new(Mode::Take);
        let mut process = profcol(&format!(
            "\
receivers:
  parca: {{endpoint: \"{endpoint}\", write_timeout: 2s, {options}}}
exporters:
  otlp_grpc: {{endpoint: {}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [parca], exporters: [otlp_grpc]}}
",
            destination.address
        ));
        Self {
            address: listening(&mut process),
            process,
            destination,
        }
    }

    /// The sum of all forwarded values.
    fn total(&self) -> i64 {
        total(&self.destination)
    }
}

/// Waits until the receiver `parca` listens, and returns its address.
fn listening(process: &mut Process) -> SocketAddr {
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let output = process.output();
    let line = output
        .lines()
        .find(|line| line.contains("Parca server"))
        .unwrap();
    let address = line.rsplit("endpoint=").next().unwrap();
    address.trim().parse().unwrap()
}

fn total(destination: &Destination) -> i64 {
    sum(&destination.taken())
}

/// The sum of all values.
fn sum(taken: &[Profiles]) -> i64 {
    let profiles = taken.iter().flat_map(|taken| taken.model().profiles());
    let samples = profiles.flat_map(|profile| profile.samples.iter());
    samples
        .map(|sample| match sample.values {
            [] => sample.timestamps.len() as i64,
            values => values.iter().sum(),
        })
        .sum()
}

/// Profiles of a real profiler.
fn profiles() -> Profiles {
    let body = fs::read(golden("otlp/profiler/export-03.pb")).unwrap();
    let received = Profiles::from_wire(body.into(), Validation::Reject).unwrap();
    received.profiles
}

/// The messages of a recorded call: whether the client sent each, and its bytes.
fn messages(path: &Path) -> Vec<(bool, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut messages = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let [direction, length @ ..] = *head;
        let (message, tail) = tail.split_at(u32::from_be_bytes(length) as usize);
        messages.push((direction == b'>', message.to_vec()));
        rest = tail;
    }
    messages
}
