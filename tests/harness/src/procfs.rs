//! Metrics of a running process from procfs.

use std::fs;
use std::ops::Sub;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of times in `/proc/PID/stat`: 1/100 s on every architecture that profcol supports.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process since its start, over all threads.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        // The command name comes second, in brackets, and may contain anything: count the fields after it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut times = after_name.split_whitespace().skip(11).map(u32::from_str);
        let mut next = || {
            times
                .next()
                .and_then(Result::ok)
                .with_context(|| format!("no times in {path}"))
        };
        Ok(Self {
            user: TICK * next()?,
            system: TICK * next()?,
        })
    }

    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// CPU time of the current threads, in nanoseconds.
pub fn running_time(pid: u32) -> Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in fs::read_dir(&folder).with_context(|| format!("failed to list {folder}"))? {
        // Skip threads that have exited since listing.
        let times = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let on_cpu = times
            .split_whitespace()
            .next()
            .and_then(|text| text.parse().ok());
        sum += on_cpu.unwrap_or(0u64);
    }
    Ok(Duration::from_nanos(sum))
}

/// Current resident bytes.
pub fn resident(pid: u32) -> Result<u64> {
    Ok(1024 * status_number(&format!("/proc/{pid}/status"), "VmRSS")?)
}

/// Peak resident bytes.
pub fn peak_resident(pid: u32) -> Result<u64> {
    Ok(1024 * status_number(&format!("/proc/{pid}/status"), "VmHWM")?)
}

/// Bytes that it caused to be written to disk: counted when a page of a file becomes dirty.
pub fn written(pid: u32) -> Result<u64> {
    status_number(&format!("/proc/{pid}/io"), "write_bytes")
}

/// The number of open file descriptors.
pub fn descriptors(pid: u32) -> Result<usize> {
    let folder = format!("/proc/{pid}/fd");
    let open = fs::read_dir(&folder).with_context(|| format!("failed to list {folder}"))?;
    Ok(open.count())
}

/// The number of threads.
pub fn threads(pid: u32) -> Result<u64> {
    status_number(&format!("/proc/{pid}/status"), "Threads")
}

/// The number of voluntary context switches, which equals the number of wake-ups. Excludes threads that have exited.
pub fn sleeps(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in fs::read_dir(&folder).with_context(|| format!("failed to list {folder}"))? {
        let status = thread?.path().join("status");
        // Skip threads that have exited since listing.
        if let Ok(switches) = status_number(&status.to_string_lossy(), "voluntary_ctxt_switches") {
            sum += switches;
        }
    }
    Ok(sum)
}

fn status_number(path: &str, key: &str) -> Result<u64> {
    let status = fs::read_to_string(path).with_context(|| format!("failed to read {path}"))?;
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(':')?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .with_context(|| format!("no `{key}` in {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_metrics_of_this_process() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).unwrap();
        assert!((CpuTime::of(pid).unwrap() - before).total() < Duration::from_secs(3600));
        assert!(running_time(pid).unwrap() > Duration::ZERO);
        let resident = resident(pid).unwrap();
        assert!(resident > 4096);
        assert!(peak_resident(pid).unwrap() >= resident);
        assert!(written(pid).is_ok());
        assert!(descriptors(pid).unwrap() > 2);
        assert!(threads(pid).unwrap() >= 1);
        // Threads of other tests may exit, which removes their counts.
        let grows = || {
            let slept = sleeps(pid).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            sleeps(pid).unwrap() > slept
        };
        assert!((0..100).any(|_| grows()));
    }
}
