//! The destination of the forwarder: it accepts everything and counts the samples.

mod collector;
mod grpc_go;
mod own;

use std::io::{Read, Write};

use std::net::{SocketAddr, TcpStream};
use std::ops::Sub;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::program;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Another OpenTelemetry Collector, which decodes and discards everything (`cargo xtask peers` builds it)
    Collector,
    /// grpc-go, which decodes nothing (`cargo xtask peers` builds it)
    GrpcGo,
    /// This program, with the largest HTTP/2 windows and frames
    Own,
}

pub enum Sink {
    Collector(collector::Sink),
    GrpcGo(grpc_go::Sink),
    Own(own::Sink),
}

#[derive(Clone, Copy, Default)]
pub struct Received {
    pub samples: u64,
    /// Not counted by a Collector.
    pub messages: Option<Messages>,
}

#[derive(Clone, Copy, Default)]
pub struct Messages {
    pub requests: u64,
    /// The size of the gRPC messages as received, including their five-byte headers.
    pub bytes: u64,
}

impl Sink {
    /// `samples_per_request` is for a sink that cannot tell.
    pub fn start(kind: Kind, samples_per_request: u64) -> Result<Self> {
        Ok(match kind {
            Kind::Collector => Self::collector_at(program::free_address()?)?,
            Kind::GrpcGo => Self::GrpcGo(grpc_go::Sink::start(samples_per_request)?),
            Kind::Own => Self::Own(own::Sink::start()?),
        })
    }

    /// A Collector that listens on this address.
    pub fn collector_at(address: SocketAddr) -> Result<Self> {
        Ok(Self::Collector(collector::Sink::start(address)?))
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Collector(sink) => sink.address,
            Self::GrpcGo(sink) => sink.address,
            Self::Own(sink) => sink.address,
        }
    }

    /// The counts so far.
    pub fn received(&self) -> Result<Received> {
        match self {
            Self::Collector(sink) => sink.received(),
            Self::GrpcGo(sink) => sink.received(),
            Self::Own(sink) => sink.received(),
        }
    }
}

impl Sub for Received {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        let earlier_messages = earlier.messages.unwrap_or_default();
        Self {
            samples: self.samples - earlier.samples,
            messages: self.messages.map(|now| Messages {
                requests: now.requests - earlier_messages.requests,
                bytes: now.bytes - earlier_messages.bytes,
            }),
        }
    }
}

/// The page with the counts of a sink.
fn scrape(counts: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(counts).context("failed to read the counts of the sink")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.lines().next().unwrap_or_default();
    ensure!(
        status.contains(" 200 "),
        "response of the sink:\n{response}"
    );
    Ok(response)
}

/// The sum over all series of a counter; 0 if there are none yet.
fn sum(metrics: &str, name: &str) -> Result<u64> {
    let series = metrics.lines().filter(|line| line.starts_with(name));
    let values = series.map(|line| {
        let value: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
        Ok(value as u64)
    });
    let values: Result<Vec<u64>> = values.collect();
    Ok(values
        .with_context(|| format!("no number after {name}"))?
        .iter()
        .sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_the_series_of_a_counter() {
        let metrics = "# TYPE accepted counter\n\
                       accepted_total{transport=\"grpc\"} 1.2e+06\naccepted_total{transport=\"http\"} 5\nother 7\n";
        assert_eq!(sum(metrics, "accepted").unwrap(), 1_200_005);
        assert_eq!(sum(metrics, "refused").unwrap(), 0);
    }
}
