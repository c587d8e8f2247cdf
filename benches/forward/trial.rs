//! One run of one contestant in one case.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use profcol_benches::bodies;
use profcol_benches::procfs::{self, CpuTime};
use tokio::runtime;

use crate::forwarder::Forwarder;
use crate::load::{self, Bodies, Sent, Shape};
use crate::options::{Case, Options};
use crate::processes::Processes;
use crate::sink::{Received, Sink};

/// A forwarder that has not passed anything on for this long will not pass on the rest either.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Trial {
    cpu: CpuTime,
    wall: Duration,
    sent: Sent,
    received: Received,
    pub peak_bytes: u64,
}

pub fn run(command: &str, case: &Case, options: &Options) -> Result<Trial> {
    let processes = Processes::start(options.processes)?;
    let bodies = Bodies::new(
        &processes.in_place_of_those_of(bodies::load(case.class)?)?,
        options.sent_as.unwrap_or(case.compression),
    )?;
    let sink = Sink::start()?;
    let forwarder = Forwarder::start(command, case, options.queue_size, sink.address)?;
    let shape = Shape {
        connections: case.connections,
        in_flight: options.in_flight,
    };
    measure(&bodies, &sink, &forwarder, shape, options)
        .with_context(|| format!("`{command}` failed; it said:\n{}", forwarder.last_words()))
}

fn measure(
    bodies: &Arc<Bodies>,
    sink: &Sink,
    forwarder: &Forwarder,
    shape: Shape,
    options: &Options,
) -> Result<Trial> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the load")?;
    let load = |target: SocketAddr, seconds| {
        runtime.block_on(load::run(
            target,
            bodies,
            shape,
            Duration::from_secs(seconds),
        ))
    };
    let warm_up = load(forwarder.address, options.warm_up)?;
    let before = drain(sink, Received::default(), warm_up)?;
    let (cpu, started) = (CpuTime::of(forwarder.pid())?, Instant::now());

    let sent = load(forwarder.address, options.seconds)?;
    let after = drain(sink, before, sent)?;
    Ok(Trial {
        cpu: CpuTime::of(forwarder.pid())? - cpu,
        wall: started.elapsed(),
        sent,
        received: Received {
            requests: after.requests - before.requests,
            bytes: after.bytes - before.bytes,
            samples: after.samples - before.samples,
        },
        peak_bytes: procfs::peak_resident(forwarder.pid())?,
    })
}

/// Waits until everything that was accepted has come out, and makes sure that nothing is lost or doubled.
fn drain(sink: &Sink, before: Received, sent: Sent) -> Result<Received> {
    let due = before.samples + sent.accepted_samples;
    let mut received = sink.received()?;
    let mut last_progress = Instant::now();
    while received.samples < due && last_progress.elapsed() < STALL_TIMEOUT {
        thread::sleep(Duration::from_millis(5));
        let now = sink.received()?;
        if now.samples > received.samples {
            last_progress = Instant::now();
        }
        received = now;
    }
    ensure!(
        received.samples == due,
        "{} samples were accepted, {} came out",
        sent.accepted_samples,
        received.samples - before.samples
    );
    Ok(received)
}

impl Trial {
    pub fn samples_per_core_second(&self) -> f64 {
        self.received.samples as f64 / self.cpu.total().as_secs_f64()
    }

    pub fn bytes_per_request(&self) -> f64 {
        self.received.bytes as f64 / self.sent.accepted as f64
    }

    pub fn refused(&self) -> u64 {
        self.sent.refused
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.total().as_secs_f64();
        write!(
            f,
            "{} requests in, {} out, {:.1} s; CPU {cpu:.2} s ({:.0} % user); {:.0} samples and {:.1} requests per \
             core-second; peak {:.0} MB; {} refused",
            self.sent.accepted,
            self.received.requests,
            self.wall.as_secs_f64(),
            self.cpu.user.as_secs_f64() / cpu * 100.0,
            self.samples_per_core_second(),
            self.sent.accepted as f64 / cpu,
            self.peak_bytes as f64 / 1e6,
            self.refused(),
        )
    }
}
