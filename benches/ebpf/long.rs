//! Long runs of a single profiler: its first half minute, and a soak test of minutes or hours.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use profcol_test_harness::procfs::{self, CpuTime};

use crate::agent::Agent;
use crate::bpf::Facts;
use crate::options::Options;

const FIRST: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);

/// Costs from the start, while nothing about the host is cached.
pub fn first_seconds(frequency: u64, options: &Options) -> Result<String> {
    let agent = Agent::start(&options.profcol, frequency, "nop: {}")?;
    thread::sleep(FIRST.saturating_sub(agent.start));
    let cpu = CpuTime::of(agent.pid())?;
    Ok(format!(
        "The first {} s at {frequency} Hz: {:.2} s of CPU ({:.2} user, {:.2} system); programs loaded in {} ms; \
         peak {:.1} MiB resident.",
        FIRST.as_secs(),
        cpu.total().as_secs_f64(),
        cpu.user.as_secs_f64(),
        cpu.system.as_secs_f64(),
        agent.load,
        procfs::peak_resident(agent.pid())? as f64 / f64::from(1 << 20),
    ))
}

/// Prints a line per minute, which shows any growth.
pub fn soak(frequency: u64, minutes: u32, options: &Options) -> Result<()> {
    let agent = Agent::start(&options.profcol, frequency, "nop: {}")?;
    println!(
        "| minute | CPU, % of a core | resident MiB | maps MiB | samples | lost |\n|---|---|---|---|---|---|"
    );
    let mut before = CpuTime::of(agent.pid())?.total();
    for minute in 1..=minutes {
        thread::sleep(MINUTE);
        let cpu = CpuTime::of(agent.pid())?.total();
        let metrics = agent.metrics()?;
        println!(
            "| {minute} | {:.2} | {:.1} | {:.1} | {} | {} |",
            cpu.saturating_sub(before).as_secs_f64() * 100.0 / MINUTE.as_secs_f64(),
            procfs::resident(agent.pid())? as f64 / f64::from(1 << 20),
            Facts::of(agent.pid())?.map_bytes as f64 / f64::from(1 << 20),
            metrics.sum("samples"),
            metrics.sum("lost_samples") + metrics.sum("dropped_samples"),
        );
        before = cpu;
    }
    Ok(())
}
