//! What the kernel says about a running process.

use std::fs;
use std::ops::Sub;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of the times in `/proc/PID/stat`: 1/100 s on every architecture that profcol runs on.
const TICK: Duration = Duration::from_millis(10);

/// CPU time that a process has used since its start, over all threads.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        // The command's name comes second, in brackets, and may hold anything: count fields from behind it.
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

/// CPU time of the threads that the process has now, to the nanosecond.
pub fn running_time(pid: u32) -> Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in fs::read_dir(&folder).with_context(|| format!("failed to list {folder}"))? {
        // A thread that ended since it was listed has no times any more.
        let times = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let on_cpu = times
            .split_whitespace()
            .next()
            .and_then(|text| text.parse().ok());
        sum += on_cpu.unwrap_or(0u64);
    }
    Ok(Duration::from_nanos(sum))
}

/// Bytes resident now.
pub fn resident(pid: u32) -> Result<u64> {
    Ok(1024 * status_number(&format!("/proc/{pid}/status"), "VmRSS")?)
}

/// Bytes resident at the highest point so far.
pub fn peak_resident(pid: u32) -> Result<u64> {
    Ok(1024 * status_number(&format!("/proc/{pid}/status"), "VmHWM")?)
}

/// How often the threads of the process went to sleep of their own accord, which is as often as they were woken up.
/// Threads that have ended are not counted.
pub fn sleeps(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in fs::read_dir(&folder).with_context(|| format!("failed to list {folder}"))? {
        let status = thread?.path().join("status");
        // A thread that ended since it was listed has no status any more.
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
    fn reads_what_the_kernel_says_of_this_process() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).unwrap();
        assert!((CpuTime::of(pid).unwrap() - before).total() < Duration::from_secs(3600));
        assert!(running_time(pid).unwrap() > Duration::ZERO);
        let resident = resident(pid).unwrap();
        assert!(resident > 4096);
        assert!(peak_resident(pid).unwrap() >= resident);
        // The threads of other tests end and take their counts with them.
        let grows = || {
            let slept = sleeps(pid).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            sleeps(pid).unwrap() > slept
        };
        assert!((0..100).any(|_| grows()));
    }
}
