//! Metrics of a running process from procfs. Times and memory include its descendants: profcol reads executables in processes of
//! their own.

use std::fs;
use std::ops::Sub;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of times in `/proc/PID/stat`: 1/100 s on every architecture that profcol supports.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process since its start, over all threads, and of its descendants.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub fn of(pid: u32) -> Result<Self> {
        let mut sum = Self::of_one(pid)?;
        for descendant in descendants(pid) {
            // One may have ended since.
            let time = Self::of_one(descendant).unwrap_or_default();
            sum.user += time.user;
            sum.system += time.system;
        }
        Ok(sum)
    }

    fn of_one(pid: u32) -> Result<Self> {
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

/// The processes that it started, and those that they started.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().map(u32::from_str);
            found.extend(children.filter_map(Result::ok));
        }
    }
    found.split_off(1)
}

/// CPU time of the current threads, and of those of its descendants.
pub fn running_time(pid: u32) -> Result<Duration> {
    let descendants = descendants(pid).into_iter();
    // One may have ended since.
    let of_descendants = descendants.filter_map(|it| running_time_of_one(it).ok());
    Ok(running_time_of_one(pid)? + of_descendants.sum::<Duration>())
}

fn running_time_of_one(pid: u32) -> Result<Duration> {
    let directory = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in fs::read_dir(&directory).with_context(|| format!("failed to list {directory}"))? {
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
    resident_with_descendants(pid, "VmRSS")
}

/// Peak resident bytes.
pub fn peak_resident(pid: u32) -> Result<u64> {
    resident_with_descendants(pid, "VmHWM")
}

/// Without the pages of files of its descendants: they run the same program, and share these pages.
fn resident_with_descendants(pid: u32, key: &str) -> Result<u64> {
    let own = |pid| -> Result<u64> {
        let status = format!("/proc/{pid}/status");
        let shared = status_number(&status, "RssFile")?;
        Ok(status_number(&status, key)?.saturating_sub(shared))
    };
    let descendants = descendants(pid).into_iter();
    // One may have ended since.
    let of_descendants = descendants.filter_map(|it| own(it).ok());
    let kib = status_number(&format!("/proc/{pid}/status"), key)? + of_descendants.sum::<u64>();
    Ok(1024 * kib)
}

/// Bytes that it caused to be written to disk: counted when a page of a file becomes dirty.
pub fn written(pid: u32) -> Result<u64> {
    status_number(&format!("/proc/{pid}/io"), "write_bytes")
}

/// The number of open file descriptors.
pub fn descriptors(pid: u32) -> Result<usize> {
    let directory = format!("/proc/{pid}/fd");
    let open = fs::read_dir(&directory).with_context(|| format!("failed to list {directory}"))?;
    Ok(open.count())
}

/// The number of threads.
pub fn threads(pid: u32) -> Result<u64> {
    status_number(&format!("/proc/{pid}/status"), "Threads")
}

/// The number of voluntary context switches, which equals the number of wake-ups. Excludes threads that have exited.
pub fn sleeps(pid: u32) -> Result<u64> {
    let directory = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in fs::read_dir(&directory).with_context(|| format!("failed to list {directory}"))? {
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

    // Of a process that has started and does nothing: memory of this one changes with the children of other tests.
    #[test]
    fn reads_the_memory_of_a_process() {
        let mut process = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(process.stdin.as_mut().unwrap(), &[0]).unwrap();
        std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let pid = process.id();
        let resident = resident(pid).unwrap();
        assert!(resident > 4096);
        assert!(peak_resident(pid).unwrap() >= resident);
        drop(process.stdin.take());
        process.wait().unwrap();
    }

    #[test]
    fn descendants_count() {
        let mut parent = std::process::Command::new("sh")
            .args(["-c", "sh -c 'echo; while :; do :; done' & wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(parent.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let pid = parent.id();
        let [child] = descendants(pid)[..] else {
            panic!("{:?}", descendants(pid));
        };
        let alone = running_time_of_one(pid).unwrap();
        while running_time(pid).unwrap() < alone + 2 * TICK {}
        while CpuTime::of(pid).unwrap().total() < CpuTime::of_one(pid).unwrap().total() + TICK {}
        let alone = status_number(&format!("/proc/{pid}/status"), "VmRSS").unwrap();
        assert!(resident(pid).unwrap() > 1024 * alone);
        let child = child.to_string();
        std::process::Command::new("kill")
            .arg(child)
            .status()
            .unwrap();
        parent.wait().unwrap();
    }
}
