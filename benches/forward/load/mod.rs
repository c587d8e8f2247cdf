//! The clients of the forwarder: a few connections, each with a fixed number of requests in flight, so that the load is
//! as high as the forwarder can take, with never more than that number waiting.

mod grpc_go;
mod h2load;
mod own;

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::ValueEnum;
use serde::Deserialize;
use tempfile::TempDir;

use crate::wire::Compression;

/// The client that sends the load.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// grpc-go with the client of OpenTelemetry's eBPF profiler (`cargo xtask peers` builds it)
    GrpcGo,
    /// h2load with gRPC messages
    H2loadGrpc,
    /// h2load with OTLP over HTTP/1.1, the only version that the Collector supports without TLS
    H2loadHttp,
    /// This program, with gRPC frames of the largest size that the forwarder accepts: the cheapest client for it
    Own,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    Http,
}

impl Client {
    pub fn protocol(self) -> Protocol {
        match self {
            Self::GrpcGo | Self::H2loadGrpc | Self::Own => Protocol::Grpc,
            Self::H2loadHttp => Protocol::Http,
        }
    }
}

/// As in the option.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GrpcGo => "grpc-go",
            Self::H2loadGrpc => "h2load-grpc",
            Self::H2loadHttp => "h2load-http",
            Self::Own => "own",
        })
    }
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub connections: usize,
    pub in_flight: usize,
}

/// The forwarder's responses.
#[derive(Clone, Copy, Default, Deserialize)]
pub struct Sent {
    pub accepted: u64,
    pub accepted_samples: u64,
    /// Refused as retryable.
    pub refused: u64,
}

impl AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.accepted_samples += other.accepted_samples;
        self.refused += other.refused;
    }
}

/// A client with its bodies.
pub enum Load {
    GrpcGo(grpc_go::Load),
    H2load(h2load::Load),
    Own(Arc<own::Bodies>),
}

impl Load {
    pub fn new(client: Client, bodies: &[Bytes], compression: Compression) -> Result<Self> {
        Ok(match client {
            Client::GrpcGo => Self::GrpcGo(grpc_go::Load::new(bodies, compression)?),
            Client::Own => Self::Own(own::Bodies::new(bodies, compression)?),
            Client::H2loadGrpc | Client::H2loadHttp => {
                let protocol = client.protocol();
                Self::H2load(h2load::Load::new(protocol, bodies, compression)?)
            }
        })
    }

    /// Loads `target` for `duration`, then waits for outstanding responses.
    pub fn run(&self, target: SocketAddr, shape: Shape, duration: Duration) -> Result<Sent> {
        match self {
            Self::GrpcGo(load) => load.run(target, shape, duration),
            Self::H2load(load) => load.run(target, shape, duration),
            Self::Own(bodies) => own::run(target, bodies, shape, duration),
        }
    }
}

/// Bodies as files, for external clients.
struct Files {
    paths: Vec<PathBuf>,
    /// Keeps the files.
    _directory: TempDir,
}

impl Files {
    fn write<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> Result<Self> {
        let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
        let mut paths = Vec::new();
        for (number, body) in bodies.into_iter().enumerate() {
            let path = directory.path().join(format!("{number}.pb"));
            fs::write(&path, body).context("failed to write a body")?;
            paths.push(path);
        }
        Ok(Self {
            paths,
            _directory: directory,
        })
    }
}
