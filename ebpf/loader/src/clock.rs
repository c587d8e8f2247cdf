//! The sampling event, and the weight of one sample.
//!
//! Both events have a fixed period, so a profile can state the weight of each sample. The kernel's frequency
//! mode for cycles would change the period from sample to sample, the more so the less busy a CPU is.

use std::fs;

/// The configured sampling event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// CPU time while a CPU is busy.
    #[default]
    CpuClock,
    /// CPU cycles, which are fewer at a lower frequency.
    Cycles,
    /// Cycles if every CPU counts them, else CPU time.
    Auto,
}

/// The sampling event in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Cpu,
    Cycles {
        /// For a CPU at its maximum frequency.
        per_second: u64,
    },
}

const NANOSECONDS: u64 = 1_000_000_000;
/// The default if the maximum is unknown; its error carries over to the sampling frequency.
const CYCLES_PER_SECOND: u64 = 2_500_000_000;

impl Clock {
    pub fn cycles() -> Self {
        Self::Cycles {
            per_second: highest_speed().unwrap_or(CYCLES_PER_SECOND),
        }
    }

    /// The period that gives this sampling frequency.
    pub fn period(self, frequency: u64) -> u64 {
        let per_second = match self {
            Self::Cpu => NANOSECONDS,
            Self::Cycles { per_second } => per_second,
        };
        (per_second / frequency.max(1)).max(1)
    }

    /// The type and unit of the values.
    pub fn counts(self) -> (&'static str, &'static str) {
        match self {
            Self::Cpu => ("cpu", "nanoseconds"),
            Self::Cycles { .. } => ("cycles", "count"),
        }
    }
}

/// The maximum frequency of the CPUs, in cycles per second.
fn highest_speed() -> Option<u64> {
    let policies = fs::read_dir("/sys/devices/system/cpu/cpufreq").into_iter();
    let maxima = policies.flatten().flatten().filter_map(|policy| {
        let text = fs::read_to_string(policy.path().join("cpuinfo_max_freq")).ok()?;
        text.trim().parse::<u64>().ok()?.checked_mul(1000)
    });
    maxima
        .max()
        .or_else(|| speed_in(&fs::read_to_string("/proc/cpuinfo").ok()?))
}

/// The highest frequency in the text of `/proc/cpuinfo`.
fn speed_in(text: &str) -> Option<u64> {
    let speeds = text.lines().filter_map(|line| {
        let (_, speed) = line.strip_prefix("cpu MHz")?.split_once(':')?;
        let speed: f64 = speed.trim().parse().ok()?;
        (1.0..1e6)
            .contains(&speed)
            .then_some((speed * 1e6).round() as u64)
    });
    speeds.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_gives_the_frequency() {
        let cycles = Clock::Cycles {
            per_second: 2_600_000_000,
        };
        for (clock, frequency, expected) in [
            (Clock::Cpu, 19, 52_631_578),
            (Clock::Cpu, 100, 10_000_000),
            (Clock::Cpu, 0, NANOSECONDS),
            (cycles, 100, 26_000_000),
            (cycles, u64::MAX, 1),
        ] {
            assert_eq!(clock.period(frequency), expected, "{clock:?} {frequency}");
        }
    }

    #[test]
    fn reads_the_maximum_frequency() {
        for (text, expected) in [
            (
                "processor\t: 0\ncpu MHz\t\t: 2596.130\n\nprocessor\t: 1\ncpu MHz\t\t: 2600.5\n",
                Some(2_600_500_000),
            ),
            ("cpu MHz\t\t: 0.000\n", None),
            ("cpu MHz\t\t: nan\ncpu MHz\n", None),
            ("processor\t: 0\nBogoMIPS\t: 48.00\n", None),
        ] {
            assert_eq!(speed_in(text), expected, "{text}");
        }
    }
}
