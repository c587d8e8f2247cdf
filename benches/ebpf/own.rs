//! The stacks of a workload's own processes: the host also runs others, whose stacks end for other reasons.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::agent::Agent;
use crate::options::Options;
use crate::recording::{self, WHOLE};

/// Records the host for a while and returns how many stacks of these processes are complete.
pub fn run(frequency: u64, pids: &[u32], options: &Options) -> Result<String> {
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let path = directory.path().join("profiles.jsonl");
    let from = record(&options.profcol, frequency, &path, options)?;
    let mut recorded = recording::read(&path)?;
    for sample in &mut recorded {
        sample.times.retain(|&time| time >= from);
    }
    let own = recording::of_processes(&recorded, pids);
    let reasons = recording::reasons(&own);
    let all: usize = reasons.values().sum();
    let share = |count: usize| count as f64 * 100.0 / all.max(1) as f64;
    let whole = reasons.get(WHOLE).copied().unwrap_or_default();
    let mut text = format!("{:.1} % of {all}", share(whole));
    let mut others: Vec<_> = reasons.iter().filter(|(end, _)| *end != WHOLE).collect();
    others.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (end, &count) in others.into_iter().take(3) {
        let _ = write!(text, ", {end} {:.1} %", share(count));
    }
    Ok(text)
}

/// Returns the Unix time of the end of the warm-up, in nanoseconds.
fn record(profcol: &Path, frequency: u64, path: &Path, options: &Options) -> Result<u64> {
    let exporter = format!("file: {{path: {}}}", path.display());
    let agent = Agent::start(profcol, frequency, &exporter)?;
    thread::sleep(options.warm_up());
    let from = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    thread::sleep(options.window());
    agent.finish()?;
    Ok(from)
}
