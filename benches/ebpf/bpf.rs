//! The BPF programs and maps of a process according to `/proc/PID/fdinfo`.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// `BPF_PROG_TYPE_PERF_EVENT`.
const PERF_EVENT: u64 = 7;

/// The perf event programs and the maps of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    pub runs: u64,
    pub nanoseconds: u64,
    pub verified: u64,
    pub map_bytes: u64,
}

impl Facts {
    pub fn of(pid: u32) -> Result<Self> {
        let directory = format!("/proc/{pid}/fdinfo");
        let mut facts = Self::default();
        let (mut programs, mut maps) = (HashSet::new(), HashSet::new());
        for entry in
            fs::read_dir(&directory).with_context(|| format!("failed to list {directory}"))?
        {
            // Files closed after listing are empty.
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            let number = |key: &str| number(&text, key).unwrap_or_default();
            if number("prog_type") == PERF_EVENT && programs.insert(number("prog_id")) {
                facts.runs += number("run_cnt");
                facts.nanoseconds += number("run_time_ns");
                facts.verified += number("verified_insns");
            } else if number("map_id") != 0 && maps.insert(number("map_id")) {
                facts.map_bytes += number("memlock");
            }
        }
        Ok(facts)
    }
}

/// Polls a program's counters so often that most polls see a single run: the mean hides the typical duration when some
/// runs wait for a CPU that the hypervisor gave to another guest.
pub struct RunTimes {
    stop: Arc<AtomicBool>,
    looking: JoinHandle<Vec<f64>>,
}

const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl RunTimes {
    pub fn start(pid: u32) -> Result<Self> {
        let path = program(pid)?;
        let stop = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&stop);
        let looking = thread::spawn(move || {
            let look = || {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let number = |key| number(&text, key).unwrap_or_default();
                (number("run_cnt"), number("run_time_ns"))
            };
            let mut times = Vec::new();
            let mut before = look();
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(POLL_INTERVAL);
                let now = look();
                let runs = now.0.saturating_sub(before.0);
                if runs > 0 {
                    let mean = now.1.saturating_sub(before.1) as f64 / runs as f64;
                    times.extend(std::iter::repeat_n(mean, runs as usize));
                    before = now;
                }
            }
            times
        });
        Ok(Self { stop, looking })
    }

    /// Run durations in nanoseconds, ascending.
    pub fn end(self) -> Vec<f64> {
        self.stop.store(true, Ordering::Relaxed);
        // The thread has no reason to panic; without durations there is no median.
        let mut times = self.looking.join().unwrap_or_default();
        times.sort_by(f64::total_cmp);
        times
    }
}

/// The fdinfo path of the perf event program of a process.
fn program(pid: u32) -> Result<PathBuf> {
    let directory = format!("/proc/{pid}/fdinfo");
    for entry in fs::read_dir(&directory).with_context(|| format!("failed to list {directory}"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        if number(&text, "prog_type") == Some(PERF_EVENT) {
            return Ok(path);
        }
    }
    bail!("process {pid} has no perf event program");
}

fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(':')?
            .trim()
            .parse()
            .ok()
    })
}

/// Enables the kernel's counting of BPF runs and their time while the value exists. It costs about 130 ns per run,
/// which [`crate::floor`] measures.
pub struct Stats {
    before: String,
}

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Stats {
    pub fn enable() -> Result<Self> {
        let before =
            fs::read_to_string(SWITCH).with_context(|| format!("failed to read {SWITCH}"))?;
        fs::write(SWITCH, "1")
            .with_context(|| format!("failed to write {SWITCH}; this needs root"))?;
        Ok(Self { before })
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // Errors cannot be reported here; leaving the switch on costs little.
        let _ = fs::write(SWITCH, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_number_after_its_key() {
        let text = "pos:\t0\nprog_type:\t7\nmemlock:\t8192\nrun_cnt:\t12\n";
        assert_eq!(number(text, "run_cnt"), Some(12));
        assert_eq!(number(text, "run"), None);
        assert_eq!(number(text, "absent"), None);
    }
}
