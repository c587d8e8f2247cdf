//! A storm of short-lived processes, compared with `perf record` over the same time.

use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::agent::Agent;
use crate::options::{Options, Workload};
use crate::recording::{self, Recorded, WHOLE};
use crate::workload::Programs;

const FREQUENCY: u64 = 99;

/// End reasons of processes without an image, as named by profcol.
const GONE: [&str; 2] = ["exec", "exit"];

pub fn run(programs: &Programs, options: &Options) -> Result<String> {
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    let path = directory.path().join("profiles.jsonl");
    let data = directory.path().join("perf.data");
    let running = programs.start(
        Workload::Spawn,
        options.window() * 4 + options.warm_up() + std::time::Duration::from_secs(60),
    )?;
    let exporter = format!("file: {{path: {}}}", path.display());
    let agent = Agent::start(&options.profcol, FREQUENCY, &exporter)?;
    thread::sleep(options.warm_up());
    // Longer than a cost measurement, because this compares counts.
    let seconds = (options.window() * 3).as_secs_f64().to_string();
    let frequency = FREQUENCY.to_string();
    let status = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F", &frequency])
        // The clock of the profiles.
        .args(["-k", "CLOCK_REALTIME", "-o"])
        .arg(&data)
        .args(["--", "sleep", &seconds])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("failed to start perf")?;
    if !status.success() {
        bail!("perf record failed ({status})");
    }
    agent.finish()?;
    drop(running);
    let script = Command::new("perf")
        .args(["script", "--ns", "-F", "pid,time", "-i"])
        .arg(&data)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("failed to start perf")?;
    let seen: Vec<u64> = String::from_utf8_lossy(&script.stdout)
        .lines()
        .filter_map(busy_at)
        .collect();
    let (Some(&first), Some(&last)) = (seen.iter().min(), seen.iter().max()) else {
        bail!("perf recorded no samples");
    };
    let recorded = recording::read(&path)?;
    let in_window = |recorded: &Recorded| {
        let times = recorded.times.iter();
        times.filter(|&time| (first..=last).contains(time)).count()
    };
    let count = |matches: &dyn Fn(&Recorded) -> bool| -> usize {
        recorded.iter().filter(|r| matches(r)).map(in_window).sum()
    };
    let is_gone = |r: &Recorded| r.end.as_deref().is_some_and(|end| GONE.contains(&end));
    let all = count(&|_| true);
    let named = count(&|r| r.has_name);
    let gone = count(&is_gone);
    let whole = count(&|r| r.end.is_none() || r.end.as_deref() == Some(WHOLE));
    let percent = |part: usize, of: usize| part as f64 * 100.0 / of.max(1) as f64;
    Ok(format!(
        "Spawn storm at {FREQUENCY} Hz: perf recorded {} samples of busy CPUs, profcol {all} ({:.1} %) in the same time, \
         {named} ({:.1} %) with a name; of those with an image {:.1} % are whole, {gone} were in exec or exit.",
        seen.len(),
        percent(all, seen.len()),
        percent(named, seen.len()),
        percent(whole, all - gone),
    ))
}

/// The time of a sample on a busy CPU: `pid seconds.nanoseconds:`; the idle task has PID 0.
fn busy_at(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let pid: u32 = words.next()?.parse().ok()?;
    let (seconds, fraction) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?;
    (pid != 0).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_time_of_busy_cpus_only() {
        assert_eq!(busy_at("   17  12.000000034: "), Some(12_000_000_034));
        assert_eq!(busy_at("    0  12.000000034: "), None);
        assert_eq!(busy_at("what perf says"), None);
    }
}
