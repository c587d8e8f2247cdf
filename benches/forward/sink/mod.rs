//! The destination of the forwarder: it accepts everything and counts the samples.

mod collector;
mod own;

use std::net::SocketAddr;
use std::ops::Sub;

use anyhow::Result;
use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Another OpenTelemetry Collector, which decodes and discards everything (`cargo xtask peers` builds it)
    Collector,
    /// This program, with the largest HTTP/2 windows and frames
    Own,
}

pub enum Sink {
    Collector(collector::Sink),
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
    pub fn start(kind: Kind) -> Result<Self> {
        Ok(match kind {
            Kind::Collector => Self::Collector(collector::Sink::start()?),
            Kind::Own => Self::Own(own::Sink::start()?),
        })
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Collector(sink) => sink.address,
            Self::Own(sink) => sink.address,
        }
    }

    /// The counts so far.
    pub fn received(&self) -> Result<Received> {
        match self {
            Self::Collector(sink) => sink.received(),
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
