//! The program as a Parca server, as a Parca Agent, and as the one that records and uploads, with what real ones sent
//! and wrote.

#![allow(
    clippy::unwrap_used,
    reason = "what is unwrapped wrongly fails the test, as it should"
)]

#[path = "../backend/mod.rs"]
mod backend;
mod deadly;
mod debuginfo;
mod dialogue;
mod disk;
mod files;
mod kills;
#[path = "../peers/mod.rs"]
mod peers;
mod pyarrow;
mod script;
#[path = "../support/mod.rs"]
mod support;
mod upload;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use backend::{Destination, Mode};
use peers::{Process, profcol};
use profcol_profile::{Profiles, Validation};
use support::golden;

/// A profcol that takes what Parca Agents send.
struct Server {
    process: Process,
    address: SocketAddr,
    /// Where it sends that.
    destination: Destination,
}

impl Server {
    fn new() -> Self {
        Self::with("127.0.0.1:0", "")
    }

    /// Listens on `endpoint`; `options` are further ones of the receiver.
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
        process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
        let said = process.output();
        let line = said
            .lines()
            .find(|line| line.contains("Parca server"))
            .unwrap();
        let address = line.rsplit("endpoint=").next().unwrap();
        Self {
            address: address.trim().parse().unwrap(),
            process,
            destination,
        }
    }

    /// The sum of all values that it passed on.
    fn total(&self) -> i64 {
        total(&self.destination)
    }
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

/// The messages of a recorded call: whether the client sent it, and its bytes.
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
