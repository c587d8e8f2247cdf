//! `perf record` under the same load.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use profcol_test_harness::procfs;

/// How perf obtains the user stack.
#[derive(Clone, Copy, Debug)]
pub enum CallGraph {
    FramePointers,
    /// Copies 8 KiB of each stack for later unwinding.
    Dwarf,
}

impl CallGraph {
    pub const ALL: [Self; 2] = [Self::FramePointers, Self::Dwarf];

    pub fn name(self) -> &'static str {
        match self {
            Self::FramePointers => "perf, frame pointers",
            Self::Dwarf => "perf, dwarf",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::FramePointers => "fp",
            Self::Dwarf => "dwarf,8192",
        }
    }
}

pub struct PerfRun {
    /// Percent of a core, excluding perf's own start and end.
    pub cpu: f64,
    pub resident: u64,
    pub bytes_per_second: f64,
}

/// Records for `window` and measures the cost of perf.
pub fn run(call_graph: CallGraph, frequency: u64, window: Duration) -> Result<PerfRun> {
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let data = directory.path().join("perf.data");
    let mut child = Command::new("perf")
        .args([
            "record",
            "-a",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            &frequency.to_string(),
        ])
        .args(["--call-graph", call_graph.option(), "-o"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("failed to start perf")?;
    let look = || -> Result<PerfRun> {
        let size = || fs::metadata(&data).map_or(0, |data| data.len());
        thread::sleep(Duration::from_secs(1));
        let (cpu, bytes) = (procfs::running_time(child.id())?, size());
        thread::sleep(window);
        let cpu = procfs::running_time(child.id())?.saturating_sub(cpu);
        Ok(PerfRun {
            cpu: cpu.as_secs_f64() / window.as_secs_f64(),
            resident: procfs::resident(child.id())?,
            bytes_per_second: size().saturating_sub(bytes) as f64 / window.as_secs_f64(),
        })
    };
    let looked = look();
    child.kill().context("failed to stop perf")?;
    child.wait()?;
    looked
}
