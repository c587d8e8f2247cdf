//! A full queue, a kill, and the next start.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use profcol_test_harness::procfs::{self, CpuTime};

use super::{Comparison, Queue};
use crate::forwarder::Forwarder;
use crate::load::Sent;
use crate::program;
use crate::sink::Sink;

/// Load before the amount is checked again.
const STEP: Duration = Duration::from_secs(2);
/// A forwarder that delivers nothing for this long is broken.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// A start with a full queue.
struct Start {
    forwarder: Forwarder,
    /// Until it listens, which it does once its queue is open.
    open: Duration,
    open_peak: u64,
    delivered: Duration,
    delivered_peak: u64,
}

pub fn compare(comparison: &Comparison<'_>, bytes: u64) -> Result<()> {
    println!(
        "| queue | batches | MB | stored at MB/s | files | open, s | peak MB | first batch delivered, s | peak MB \
         | drained at MB/s | CPU us per batch | peak MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let queues = comparison.options.queues.iter().copied();
    for queue in queues.filter(|queue| queue.is_stored()) {
        recover(comparison, queue, bytes).with_context(|| queue.to_string())?;
    }
    Ok(())
}

fn recover(comparison: &Comparison<'_>, queue: Queue, bytes: u64) -> Result<()> {
    let directory = comparison.new_directory()?;
    let address = program::free_address()?;
    let setup = comparison.setup(queue, directory.path(), 100_000_000);
    let start = || Forwarder::with(comparison.command(queue), &setup, address);
    let forwarder = start()?;
    let began = Instant::now();
    let mut sent = Sent::default();
    let batch = comparison.body.len() as u64;
    while sent.accepted * batch < bytes {
        sent += comparison
            .load
            .run(forwarder.address, comparison.shape(), STEP)?;
    }
    let filling = began.elapsed();
    // Kills it.
    drop(forwarder);

    let sink = Sink::collector_at(address)?;
    let megabytes = (sent.accepted * batch) as f64 / 1e6;
    for files in ["cached", "not cached"] {
        if files == "not cached" {
            evict(directory.path())?;
        }
        let started = Start::measure(start, &sink)?;
        let drained = match files {
            "cached" => "| | |".to_owned(),
            _ => started.drain(&sink, sent, megabytes)?,
        };
        println!(
            "| {queue} | {} | {megabytes:.0} | {:.0} | {files} | {:.2} | {:.0} | {:.2} | {:.0} {drained}",
            sent.accepted,
            megabytes / filling.as_secs_f64(),
            started.open.as_secs_f64(),
            started.open_peak as f64 / 1e6,
            started.delivered.as_secs_f64(),
            started.delivered_peak as f64 / 1e6,
        );
    }
    Ok(())
}

impl Start {
    /// Starts a forwarder whose destination is up.
    fn measure(start: impl Fn() -> Result<Forwarder>, sink: &Sink) -> Result<Self> {
        let before = sink.received()?.samples;
        let began = Instant::now();
        let forwarder = start()?;
        let open = began.elapsed();
        let pid = forwarder.program.pid();
        let open_peak = procfs::peak_resident(pid)?;
        while sink.received()?.samples == before {
            ensure!(began.elapsed() < STALL_TIMEOUT, "delivers nothing");
            thread::sleep(Duration::from_millis(2));
        }
        let delivered = began.elapsed();
        let delivered_peak = procfs::peak_resident(pid)?;
        Ok(Self {
            forwarder,
            open,
            open_peak,
            delivered,
            delivered_peak,
        })
    }

    /// Waits until everything has arrived; batches of a start before this one may arrive again.
    fn drain(&self, sink: &Sink, sent: Sent, megabytes: f64) -> Result<String> {
        let pid = self.forwarder.program.pid();
        let (mut received, mut progress) = (0, Instant::now());
        let began = Instant::now();
        while received < sent.accepted_samples {
            let now = sink.received()?.samples;
            if now > received {
                (received, progress) = (now, Instant::now());
            }
            ensure!(
                progress.elapsed() < STALL_TIMEOUT,
                "{} samples accepted, {received} received",
                sent.accepted_samples
            );
            thread::sleep(Duration::from_millis(20));
        }
        let cpu = CpuTime::of(pid)?.total().as_secs_f64();
        Ok(format!(
            "| {:.0} | {:.0} | {:.0} |",
            megabytes / began.elapsed().as_secs_f64(),
            cpu / sent.accepted as f64 * 1e6,
            procfs::peak_resident(pid)? as f64 / 1e6
        ))
    }
}

/// Drops the pages of all files from the page cache, as after a reboot.
fn evict(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            evict(&path)?;
            continue;
        }
        let mut of = std::ffi::OsString::from("of=");
        of.push(&path);
        let arguments = ["if=/dev/null", "oflag=nocache", "count=0", "status=none"];
        let status = Command::new("dd")
            .arg(of)
            .args(arguments)
            .arg("conv=notrunc,fdatasync")
            .status()
            .context("failed to start dd")?;
        ensure!(status.success(), "dd failed");
    }
    Ok(())
}
