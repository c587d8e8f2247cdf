//! Throughput, CPU and bytes written per batch.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use profcol_test_harness::procfs::{self, CpuTime};

use super::{Comparison, Queue};
use crate::forwarder::Forwarder;
use crate::program;
use crate::report::median;
use crate::sink::{Received, Sink};
use crate::trial;

/// A queue that is never full.
const ENDLESS: usize = 100_000_000;

#[derive(Clone, Copy)]
enum Phase {
    Through,
    Stored,
}

/// A phase of a run.
struct Measured {
    batches_per_second: f64,
    cpu_per_batch: Duration,
    /// Bytes written to disk per byte of the batches.
    written: f64,
    peak_bytes: u64,
}

pub fn compare(comparison: &Comparison<'_>) -> Result<()> {
    println!(
        "| queue | phase | batches/s | MB/s | CPU us per batch | written per byte | peak MB | throughput, of the \
         Collector's | CPU, of the Collector's |\n|---|---|---|---|---|---|---|---|---|"
    );
    for phase in [Phase::Through, Phase::Stored] {
        let queues = comparison.options.queues.iter().copied();
        // A queue in memory fills up when the destination is down.
        let queues = queues.filter(|queue| queue.is_stored() || matches!(phase, Phase::Through));
        let mut results: Vec<(Queue, Vec<Measured>)> =
            queues.map(|queue| (queue, Vec::new())).collect();
        for round in 1..=comparison.options.rounds {
            for (queue, runs) in &mut results {
                // Nobody pays for what the one before has left to write.
                Command::new("sync").status().context("`sync` failed")?;
                let measured = match phase {
                    Phase::Through => comparison.through(*queue),
                    Phase::Stored => comparison.stored(*queue),
                };
                let measured = measured.with_context(|| format!("{queue}, {phase}"))?;
                eprintln!("{queue}, {phase}, round {round}: {measured}");
                runs.push(measured);
            }
        }
        for (queue, runs) in &results {
            let peer = queue
                .peer()
                .and_then(|peer| results.iter().find(|(it, _)| *it == peer));
            let peer = peer.map(|(_, runs)| &**runs);
            println!(
                "| {queue} | {phase} | {}",
                row(runs, peer, comparison.body.len())
            );
        }
    }
    Ok(())
}

impl Comparison<'_> {
    fn through(&self, queue: Queue) -> Result<Measured> {
        let sink = Sink::start(self.options.sink, self.samples)?;
        let directory = self.new_directory()?;
        let setup = self.setup(queue, directory.path(), self.options.queue_size);
        let forwarder = Forwarder::with(self.command(queue), &setup, sink.address())?;
        let measured = self.measure(&forwarder, Some(&sink));
        measured.with_context(|| forwarder.program.last_words())
    }

    fn stored(&self, queue: Queue) -> Result<Measured> {
        let directory = self.new_directory()?;
        let setup = self.setup(queue, directory.path(), ENDLESS);
        let nobody = program::free_address()?;
        let forwarder = Forwarder::with(self.command(queue), &setup, nobody)?;
        let measured = self.measure(&forwarder, None);
        measured.with_context(|| forwarder.program.last_words())
    }

    /// Until everything has arrived at the sink, or been stored if there is none.
    fn measure(&self, forwarder: &Forwarder, sink: Option<&Sink>) -> Result<Measured> {
        let pid = forwarder.program.pid();
        let load = |seconds| {
            let duration = Duration::from_secs(seconds);
            self.load.run(forwarder.address, self.shape(), duration)
        };
        let warm_up = load(self.options.warm_up)?;
        let before = sink.map(|sink| trial::drain(sink, Received::default(), warm_up));
        let before = before.transpose()?;
        let (cpu, written, began) = (CpuTime::of(pid)?, procfs::written(pid)?, Instant::now());
        let sent = load(self.options.seconds)?;
        if let (Some(sink), Some(before)) = (sink, before) {
            trial::drain(sink, before, sent)?;
        }
        let batches = sent.accepted as f64;
        Ok(Measured {
            batches_per_second: batches / began.elapsed().as_secs_f64(),
            cpu_per_batch: (CpuTime::of(pid)? - cpu).total().div_f64(batches),
            written: (procfs::written(pid)? - written) as f64 / batches / self.body.len() as f64,
            peak_bytes: procfs::peak_resident(pid)?,
        })
    }
}

impl Measured {
    fn cpu_us(&self) -> f64 {
        self.cpu_per_batch.as_secs_f64() * 1e6
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} batches/s, CPU {:.0} us per batch, written {:.2} per byte, peak {:.0} MB",
            self.batches_per_second,
            self.cpu_us(),
            self.written,
            self.peak_bytes as f64 / 1e6
        )
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Through => "through",
            Self::Stored => "stored",
        })
    }
}

fn row(runs: &[Measured], peer: Option<&[Measured]>, bytes: usize) -> String {
    let of = |figure: fn(&Measured) -> f64| median(runs.iter().map(figure).collect());
    let ratio = |figure: fn(&Measured) -> f64| {
        let Some(peer) = peer else {
            return String::new();
        };
        let pairs = runs.iter().zip(peer);
        let ratios: Vec<f64> = pairs
            .map(|(ours, theirs)| figure(ours) / figure(theirs))
            .collect();
        let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = ratios.iter().copied().fold(0.0, f64::max);
        format!("**{:.2}** ({lowest:.2}-{highest:.2})", median(ratios))
    };
    let per_second = of(|it| it.batches_per_second);
    format!(
        "{per_second:.0} | {:.0} | {:.0} | {:.2} | {:.0} | {} | {} |",
        per_second * bytes as f64 / 1e6,
        of(Measured::cpu_us),
        of(|it| it.written),
        of(|it| it.peak_bytes as f64 / 1e6),
        ratio(|it| it.batches_per_second),
        ratio(Measured::cpu_us),
    )
}
