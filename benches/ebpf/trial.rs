//! A measurement of profcol under a load.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use profcol_test_harness::procfs;

use crate::agent::{Agent, Metrics};
use crate::bpf::{Facts, RunTimes};
use crate::floor::{Floor, FloorCounts};
use crate::options::Options;

#[derive(Debug)]
pub struct Trial {
    /// Percent of a core.
    pub cpu: f64,
    pub resident: u64,
    pub peak: u64,
    pub map_bytes: u64,
    /// Samples in the window.
    pub samples: f64,
    /// Fraction of the expected samples.
    pub delivered: f64,
    /// Nanoseconds per sample, excluding the overhead of the kernel's counting.
    pub program: f64,
    /// Of single samples: median and 90th percentile.
    pub median: f64,
    pub ninth_decile: f64,
    pub frame_pointers: f64,
    pub empty: f64,
    /// Fractions of user stacks by end reason, largest first.
    pub reasons: Vec<(String, f64)>,
    /// Time from process start to readiness, and CPU time from then to the end of the warm-up.
    pub start: f64,
    pub load: f64,
    pub start_cpu: f64,
    pub verified: u64,
}

/// All counters at one point in time.
struct Snapshot {
    at: Instant,
    cpu: Duration,
    facts: Facts,
    floor: FloorCounts,
    metrics: Metrics,
}

impl Snapshot {
    fn at(agent: &Agent, floor: &Floor) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            cpu: procfs::running_time(agent.pid())?,
            facts: Facts::of(agent.pid())?,
            floor: floor.counts()?,
            metrics: agent.metrics()?,
        })
    }
}

pub fn run(frequency: u64, options: &Options) -> Result<Trial> {
    let agent = Agent::start(&options.profcol, frequency, "nop: {}")?;
    thread::sleep(options.warm_up());
    let floor = Floor::start(frequency)?;
    let times = RunTimes::start(agent.pid())?;
    let before = Snapshot::at(&agent, &floor)?;
    thread::sleep(options.window());
    let after = Snapshot::at(&agent, &floor)?;
    let times = times.end();
    let empty = after.floor.empty.since(before.floor.empty);
    let frame_pointers = after
        .floor
        .frame_pointers
        .since(before.floor.frame_pointers);
    let runs = (after.facts.runs - before.facts.runs) as f64;
    let nanoseconds = (after.facts.nanoseconds - before.facts.nanoseconds) as f64;
    let due = (after.floor.busy - before.floor.busy) as f64;
    let resident = procfs::resident(agent.pid())?;
    let peak = procfs::peak_resident(agent.pid())?;
    let (start, load) = (agent.start, agent.load);
    let all_runs = Facts::of(agent.pid())?.runs as f64;
    let ended = agent.finish()?;
    // The program exits early for processes that it does not sample. Both counts are totals up to the snapshot.
    let sampled = (ended.samples / all_runs).min(1.0);
    let lost = ended.lost / ended.samples;
    Ok(Trial {
        cpu: (after.cpu.saturating_sub(before.cpu)).as_secs_f64()
            / (after.at - before.at).as_secs_f64(),
        resident,
        peak,
        map_bytes: after.facts.map_bytes,
        samples: runs * sampled,
        delivered: runs * sampled / due * (1.0 - lost),
        program: (nanoseconds / runs - empty.mean()) / sampled,
        median: at_share(&times, 0.5) - empty.mean(),
        ninth_decile: at_share(&times, 0.9) - empty.mean(),
        // It also runs on idle CPUs, but has nothing to walk there.
        frame_pointers: (frame_pointers.mean() - empty.mean()) * frame_pointers.count as f64 / due,
        empty: empty.mean(),
        reasons: reasons(&before.metrics, &after.metrics),
        start: start.as_secs_f64(),
        load,
        start_cpu: before.cpu.as_secs_f64(),
        verified: after.facts.verified,
    })
}

fn at_share(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

fn reasons(before: &Metrics, after: &Metrics) -> Vec<(String, f64)> {
    let earlier: BTreeMap<String, f64> = before.stacks();
    let mut reasons: Vec<(String, f64)> = after
        .stacks()
        .into_iter()
        .map(|(reason, count)| {
            let since = count - earlier.get(&reason).copied().unwrap_or_default();
            (reason, since)
        })
        .filter(|&(_, count)| count > 0.0)
        .collect();
    let all: f64 = reasons.iter().map(|(_, count)| count).sum();
    for (_, count) in &mut reasons {
        *count /= all;
    }
    reasons.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    reasons
}
