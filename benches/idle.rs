//! The cost of an idle process: resident memory and wake-ups per second.
//!
//! `cargo run --release -p profcol-benches --bin idle -- PID`

#![expect(
    clippy::print_stdout,
    reason = "this is a command-line tool; its report is its output"
)]

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use profcol_test_harness::procfs::{self, CpuTime};

/// Print resident memory, wake-ups and CPU usage of a process over some seconds.
#[derive(Parser)]
struct Options {
    pid: u32,
    /// Duration of the measurement
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

fn main() -> Result<()> {
    let Options { pid, seconds } = Options::parse();
    let (started, slept, cpu) = (Instant::now(), procfs::sleeps(pid)?, CpuTime::of(pid)?);
    thread::sleep(Duration::from_secs(seconds));
    let elapsed = started.elapsed().as_secs_f64();
    let wakeups = procfs::sleeps(pid)?.saturating_sub(slept) as f64 / elapsed;
    let cpu = (CpuTime::of(pid)? - cpu).total().as_secs_f64() / elapsed * 100.0;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "resident {:.1} MiB (peak {:.1}), {wakeups:.2} wake-ups/s, {cpu:.2} % of a core, over {elapsed:.1} s",
        mib(procfs::resident(pid)?),
        mib(procfs::peak_resident(pid)?),
    );
    Ok(())
}
