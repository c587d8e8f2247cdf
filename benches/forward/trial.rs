//! A run of a contestant in a case.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use profcol_benches::bodies;
use profcol_test_harness::procfs::{self, CpuTime};

use crate::forwarder::Forwarder;
use crate::load::{Load, Sent, Shape};
use crate::options::{Case, Options};
use crate::processes::Processes;
use crate::sink::{Received, Sink};

/// If a forwarder has sent nothing for this long, it will not send the rest either.
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
    let bodies = processes.in_place_of_those_of(bodies::load(case.class)?)?;
    let load = Load::new(
        case.load,
        &bodies,
        options.sent_as.unwrap_or(case.compression),
    )?;
    // All bodies of a class have the same number.
    let samples = bodies.first().context("no bodies")?;
    let sink = Sink::start(options.sink, bodies::count_samples(samples.clone())?)?;
    let forwarder = Forwarder::start(command, case, options.queue_size, sink.address())?;
    let shape = Shape {
        connections: case.connections,
        in_flight: options.in_flight,
    };
    measure(&load, &sink, &forwarder, shape, options).with_context(|| {
        let output = forwarder.program.last_words();
        format!("`{command}` failed; output:\n{output}")
    })
}

fn measure(
    load: &Load,
    sink: &Sink,
    forwarder: &Forwarder,
    shape: Shape,
    options: &Options,
) -> Result<Trial> {
    let pid = forwarder.program.pid();
    let load = |seconds| load.run(forwarder.address, shape, Duration::from_secs(seconds));
    let warm_up = load(options.warm_up)?;
    let before = drain(sink, Received::default(), warm_up)?;
    let (cpu, started) = (CpuTime::of(pid)?, Instant::now());

    let sent = load(options.seconds)?;
    let after = drain(sink, before, sent)?;
    Ok(Trial {
        cpu: CpuTime::of(pid)? - cpu,
        wall: started.elapsed(),
        sent,
        received: after - before,
        peak_bytes: procfs::peak_resident(pid)?,
    })
}

/// Waits until all accepted samples have arrived, and checks that none are lost or duplicated.
pub fn drain(sink: &Sink, before: Received, sent: Sent) -> Result<Received> {
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
        "{} samples accepted, {} received by the sink",
        sent.accepted_samples,
        received.samples - before.samples
    );
    Ok(received)
}

impl Trial {
    pub fn samples_per_core_second(&self) -> f64 {
        self.received.samples as f64 / self.cpu.total().as_secs_f64()
    }

    /// `None` if the sink does not count bytes.
    pub fn bytes_per_request(&self) -> Option<f64> {
        let messages = self.received.messages?;
        Some(messages.bytes as f64 / self.sent.accepted as f64)
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
            self.received
                .messages
                .map_or("?".to_owned(), |messages| messages.requests.to_string()),
            self.wall.as_secs_f64(),
            self.cpu.user.as_secs_f64() / cpu * 100.0,
            self.samples_per_core_second(),
            self.sent.accepted as f64 / cpu,
            self.peak_bytes as f64 / 1e6,
            self.refused(),
        )
    }
}
