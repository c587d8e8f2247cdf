//! What this process costs: read from `/proc` when metrics are asked for, never on a timer.

use std::time::Instant;

use profcol_admission::resident_memory;
use profcol_component::{Gauge, Meter};

pub(crate) struct ProcessMetrics {
    started: Instant,
    uptime: Gauge,
    cpu_seconds: Gauge,
    memory_rss: Gauge,
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
        }
    }

    pub(crate) fn refresh(&self) {
        self.uptime.set(self.started.elapsed().as_secs_f64());
        if let Some(bytes) = resident_memory() {
            self.memory_rss.set(bytes as f64);
        }
        if let Some(seconds) = cpu_seconds() {
            self.cpu_seconds.set(seconds);
        }
    }
}

/// The kernel's unit of CPU time towards user space, the same on every architecture we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time, fields 14 and 15 of `/proc/self/stat`; the name in field 2 may hold
/// anything, so counting starts behind its closing parenthesis.
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
    fn reads_the_time_that_this_process_took() {
        assert!(cpu_seconds().is_some_and(|seconds| seconds >= 0.0));
    }
}
