//! grpc-go, using the program in `client/`.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;

use super::{Files, Sent, Shape};
use crate::wire::Compression;

const PROGRAM: &str = "target/peers/forward-client";

pub struct Load {
    bodies: Files,
    compression: Compression,
}

impl Load {
    pub fn new(bodies: &[Bytes], compression: Compression) -> Result<Self> {
        if compression == Compression::Zstd {
            bail!("grpc-go does not support zstd: choose another client, or gzip");
        }
        Ok(Self {
            bodies: Files::write(bodies.iter().map(|body| &**body))?,
            compression,
        })
    }

    pub fn run(&self, target: SocketAddr, shape: Shape, duration: Duration) -> Result<Sent> {
        let output = Command::new(PROGRAM)
            .args(["-target", &target.to_string()])
            .args(["-connections", &shape.connections.to_string()])
            .args(["-in-flight", &shape.in_flight.to_string()])
            .args(["-duration", &format!("{}ms", duration.as_millis())])
            .args(["-compression", self.compression.name()])
            .args(&self.bodies.paths)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| {
                format!("failed to start {PROGRAM}, which `cargo xtask peers` builds")
            })?;
        ensure!(output.status.success(), "{PROGRAM} failed");
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{PROGRAM} printed unexpected output"))
    }
}
