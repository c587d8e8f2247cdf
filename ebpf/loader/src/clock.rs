//! What ticks, and what one tick stands for.
//!
//! Both tick after a fixed amount of what they count, so a profile can say what each sample is worth.
//! The kernel's own way to a frequency of cycles would change that amount from tick to tick, and more
//! so the less a CPU has to do.

use std::fs;

/// What shall tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// The time that a CPU is busy.
    #[default]
    CpuClock,
    /// The cycles of a CPU, which are fewer while it is slow.
    Cycles,
    /// Cycles where every CPU counts them, else the time.
    Auto,
}

/// What ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Cpu,
    Cycles {
        /// Of a CPU at its highest speed.
        per_second: u64,
    },
}

const NANOSECONDS: u64 = 1_000_000_000;
/// Where nobody tells: what it is wrong by, the frequency is.
const CYCLES_PER_SECOND: u64 = 2_500_000_000;

impl Clock {
    pub fn cycles() -> Self {
        Self::Cycles {
            per_second: highest_speed().unwrap_or(CYCLES_PER_SECOND),
        }
    }

    /// What one tick stands for, so that there are so many of them in a second.
    pub fn period(self, frequency: u64) -> u64 {
        let per_second = match self {
            Self::Cpu => NANOSECONDS,
            Self::Cycles { per_second } => per_second,
        };
        (per_second / frequency.max(1)).max(1)
    }

    /// What is counted, and in which unit.
    pub fn counts(self) -> (&'static str, &'static str) {
        match self {
            Self::Cpu => ("cpu", "nanoseconds"),
            Self::Cycles { .. } => ("cycles", "count"),
        }
    }
}

/// In cycles a second.
fn highest_speed() -> Option<u64> {
    let policies = fs::read_dir("/sys/devices/system/cpu/cpufreq").into_iter();
    let told = policies.flatten().flatten().filter_map(|policy| {
        let text = fs::read_to_string(policy.path().join("cpuinfo_max_freq")).ok()?;
        text.trim().parse::<u64>().ok()?.checked_mul(1000)
    });
    told.max()
        .or_else(|| speed_in(&fs::read_to_string("/proc/cpuinfo").ok()?))
}

/// The highest one in the text of `/proc/cpuinfo`.
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
    fn ticks_so_often_in_a_second() {
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
    fn reads_the_highest_speed() {
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
