//! Resource usage of this process, read from `/proc` on scrape.

use std::time::Instant;

use profcol_admission::resident_memory;
use profcol_component::{Gauge, Meter};

pub(crate) struct ProcessMetrics {
    started: Instant,
    uptime: Gauge,
    cpu_seconds: Gauge,
    memory_rss: Gauge,
    read_failures: Gauge,
}

impl ProcessMetrics {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            started: Instant::now(),
            uptime: meter.gauge(
                "otelcol_process_uptime",
                "Uptime of the process in seconds.",
                &[],
            ),
            cpu_seconds: meter.gauge(
                "otelcol_process_cpu_seconds",
                "CPU time of the process in seconds, user and system.",
                &[],
            ),
            memory_rss: meter.gauge(
                "otelcol_process_memory_rss",
                "Resident set size in bytes.",
                &[],
            ),
            read_failures: meter.gauge(
                "profcol_read_failures",
                "Batches that passed validation but failed to decode, due to a bug in profcol.",
                &[],
            ),
        }
    }

    pub(crate) fn refresh(&self) {
        self.uptime.set(self.started.elapsed().as_secs_f64());
        self.read_failures
            .set(profcol_profile::read_failures() as f64);
        if let Some(bytes) = resident_memory() {
            self.memory_rss.set(bytes as f64);
        }
        if let Some(seconds) = cpu_seconds() {
            self.cpu_seconds.set(seconds);
        }
    }
}

/// USER_HZ, the same on all supported architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time, fields 14 and 15 of `/proc/self/stat`. Field 2, the name, may contain anything, so parsing
/// starts after its closing parenthesis.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_cpu_time_of_this_process() {
        assert!(cpu_seconds().is_some_and(|seconds| seconds >= 0.0));
    }
}
