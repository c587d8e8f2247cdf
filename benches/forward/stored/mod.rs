//! Sending queues in memory and on disk: profcol's with each `fsync`, the Collector's with and without.
//!
//! *through*: the destination takes everything, and each batch passes the queue. *stored*: it is down, and batches
//! accumulate. With `--backlog`, they accumulate up to a size; then the process is killed and started again.

mod backlog;
mod passing;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::ValueEnum;
use profcol_benches::bodies;
use tempfile::TempDir;

use crate::forwarder::Setup;
use crate::load::{Client, Load, Shape};
use crate::options::Options;
use crate::wire::Compression;

/// More than any disk has; the Collector's `file_storage` has no limit by default.
const MAX_BYTES: u64 = 1 << 40;

/// A contestant: a program and its queue.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Queue {
    /// The Collector's, in memory
    CollectorMemory,
    /// The Collector's in its `file_storage`, with its default `fsync: false`
    CollectorUnsynced,
    /// The Collector's in its `file_storage`, with `fsync: true`
    CollectorSynced,
    /// profcol's, in memory
    Memory,
    /// profcol's on disk, with `fsync: never`
    Never,
    /// profcol's on disk, with its default `fsync: interval`
    Interval,
    /// profcol's on disk, with `fsync: always`
    Always,
}

/// What is the same in all runs of a comparison.
struct Comparison<'a> {
    options: &'a Options,
    folder: &'a Path,
    load: Load,
    client: Client,
    connections: usize,
    body: Bytes,
    samples: u64,
}

pub fn run(folder: &Path, options: &Options) -> Result<()> {
    for &client in &options.load {
        for &class in &options.bodies {
            // One body: h2load cannot send several, and their lengths differ.
            let mut bodies = bodies::load(class)?;
            bodies.truncate(1);
            let body = bodies.first().context("no bodies")?.clone();
            for &connections in &options.connections {
                let comparison = Comparison {
                    options,
                    folder,
                    load: Load::new(client, &bodies, Compression::None)?,
                    client,
                    connections,
                    body: body.clone(),
                    samples: bodies::count_samples(body.clone())?,
                };
                println!(
                    "\n{client}, {class}: {} bytes, {connections} connections\n",
                    body.len()
                );
                match options.backlog {
                    Some(mib) => backlog::compare(&comparison, mib << 20)?,
                    None => passing::compare(&comparison)?,
                }
            }
        }
    }
    Ok(())
}

impl Queue {
    fn is_stored(self) -> bool {
        !matches!(self, Self::CollectorMemory | Self::Memory)
    }

    fn is_collector(self) -> bool {
        matches!(
            self,
            Self::CollectorMemory | Self::CollectorUnsynced | Self::CollectorSynced
        )
    }

    /// The Collector's queue with the same promise.
    fn peer(self) -> Option<Self> {
        match self {
            Self::Memory => Some(Self::CollectorMemory),
            Self::Never | Self::Interval => Some(Self::CollectorUnsynced),
            Self::Always => Some(Self::CollectorSynced),
            Self::CollectorMemory | Self::CollectorUnsynced | Self::CollectorSynced => None,
        }
    }

    fn storage(self, folder: &Path) -> String {
        let folder = folder.display();
        let settings = match self {
            Self::CollectorMemory | Self::Memory => return "{}".to_owned(),
            Self::CollectorUnsynced => "fsync: false".to_owned(),
            Self::CollectorSynced => "fsync: true".to_owned(),
            Self::Never => format!("fsync: never, max_bytes: {MAX_BYTES}"),
            Self::Interval => format!("fsync: interval, max_bytes: {MAX_BYTES}"),
            Self::Always => format!("fsync: always, max_bytes: {MAX_BYTES}"),
        };
        format!("{{file_storage: {{directory: '{folder}', {settings}}}}}")
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CollectorMemory => "Collector, memory",
            Self::CollectorUnsynced => "Collector, `fsync: false`",
            Self::CollectorSynced => "Collector, `fsync: true`",
            Self::Memory => "profcol, memory",
            Self::Never => "profcol, `fsync: never`",
            Self::Interval => "profcol, `fsync: interval`",
            Self::Always => "profcol, `fsync: always`",
        })
    }
}

impl Comparison<'_> {
    fn command(&self, queue: Queue) -> &str {
        match queue.is_collector() {
            true => &self.options.collector,
            false => &self.options.profcol,
        }
    }

    fn shape(&self) -> Shape {
        Shape {
            connections: self.connections,
            in_flight: self.options.in_flight,
        }
    }

    /// A directory for a stored queue.
    fn new_directory(&self) -> Result<TempDir> {
        tempfile::tempdir_in(self.folder)
            .with_context(|| format!("failed to make a directory in {}", self.folder.display()))
    }

    fn setup(&self, queue: Queue, folder: &Path, queue_size: usize) -> Setup {
        let (storage, enabled) = match queue.is_stored() {
            true => (", storage: file_storage", "[file_storage]"),
            false => ("", "[]"),
        };
        Setup {
            load: self.client,
            compression: Compression::None,
            queue: format!("{{queue_size: {queue_size}, block_on_overflow: true{storage}}}"),
            extensions: queue.storage(folder),
            enabled,
        }
    }
}
