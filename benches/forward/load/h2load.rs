//! nghttp2's h2load: one body in a loop, encoded once.
//!
//! It counts responses with a successful HTTP status. It does not read gRPC trailers: a call refused there shows up as
//! missing samples at the sink.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use profcol_benches::bodies::count_samples;

use super::{Files, Protocol, Sent, Shape};
use crate::wire::{self, Compression};

/// Requests per request in flight of a first run, which measures the request rate.
const FIRST_ROUNDS: usize = 8;

pub struct Load {
    protocol: Protocol,
    compression: Compression,
    body: Files,
    samples: u64,
}

impl Load {
    pub fn new(protocol: Protocol, bodies: &[Bytes], compression: Compression) -> Result<Self> {
        let body = bodies.first().context("no bodies")?;
        let encoded = match protocol {
            Protocol::Grpc => wire::frame(body, compression)?,
            Protocol::Http => wire::compress(body, compression)?.into(),
        };
        Ok(Self {
            protocol,
            compression,
            body: Files::write([&*encoded])?,
            samples: count_samples(body.clone()).context("a body is not an export request")?,
        })
    }

    pub fn run(&self, target: SocketAddr, shape: Shape, duration: Duration) -> Result<Sent> {
        let started = Instant::now();
        let least = FIRST_ROUNDS * shape.connections * shape.in_flight;
        let mut accepted = 0;
        while let Some(left) = duration.checked_sub(started.elapsed()) {
            let per_second = accepted as f64 / started.elapsed().as_secs_f64();
            let requests = least.max((per_second * left.as_secs_f64()) as usize);
            accepted += self.requests(target, shape, requests)?;
        }
        Ok(Sent {
            accepted,
            accepted_samples: accepted * self.samples,
            refused: 0,
        })
    }

    /// Sends this many requests; all of them must succeed.
    fn requests(&self, target: SocketAddr, shape: Shape, requests: usize) -> Result<u64> {
        let (connections, in_flight) = match self.protocol {
            Protocol::Grpc => (shape.connections, shape.in_flight),
            // On a single connection it would use pipelining, which no client does.
            Protocol::Http => (shape.connections * shape.in_flight, 1),
        };
        let mut command = Command::new("h2load");
        command
            .args(["-n", &requests.to_string()])
            .args(["-c", &connections.to_string()])
            .args(["-m", &in_flight.to_string()])
            .arg("-d")
            .args(&self.body.paths);
        let encoding = self.compression.name();
        let path = match self.protocol {
            Protocol::Grpc => {
                command.args(["-H", "content-type: application/grpc"]);
                command.args(["-H", "te: trailers"]);
                if self.compression != Compression::None {
                    command.args(["-H", &format!("grpc-encoding: {encoding}")]);
                }
                wire::EXPORT
            }
            Protocol::Http => {
                command.arg("--h1");
                command.args(["-H", "content-type: application/x-protobuf"]);
                if self.compression != Compression::None {
                    command.args(["-H", &format!("content-encoding: {encoding}")]);
                }
                wire::EXPORT_HTTP
            }
        };
        let output = command
            .arg(format!("http://{target}{path}"))
            .output()
            .context("failed to start h2load (Debian's package nghttp2-client)")?;
        let report = String::from_utf8_lossy(&output.stdout);
        let succeeded = succeeded(&report);
        ensure!(
            succeeded == u64::try_from(requests).ok(),
            "h2load sent {requests} requests and not all succeeded; output:\n{report}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        succeeded.context("no summary in the output of h2load")
    }
}

/// Parses `requests: 8 total, 8 started, 8 done, 8 succeeded, 0 failed, 0 errored, 0 timeout`.
fn succeeded(report: &str) -> Option<u64> {
    let sums = report
        .lines()
        .find_map(|line| line.strip_prefix("requests: "))?;
    let sum = sums
        .split(", ")
        .find_map(|sum| sum.strip_suffix(" succeeded"))?;
    sum.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_number_of_successful_requests() {
        let report = "starting benchmark...\n\
                      requests: 64 total, 64 started, 64 done, 62 succeeded, 2 failed, 0 errored, 0 timeout\n\
                      status codes: 62 2xx, 0 3xx, 2 4xx, 0 5xx\n";
        assert_eq!(succeeded(report), Some(62));
        assert_eq!(succeeded("unable to connect"), None);
    }
}
