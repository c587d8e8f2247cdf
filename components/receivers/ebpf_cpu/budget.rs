//! Lowers the sampling frequency to stay within `cpu_budget`.
//!
//! The budget covers the CPU time of this process, with all its threads, and the run time of the BPF
//! sampling program.

use std::time::Duration;

use profcol_ebpf_loader::own_cpu_time;

/// Shorter windows are too noisy.
const MIN_WINDOW: Duration = Duration::from_secs(5);

/// The cost of startup, mostly building unwind tables, does not depend on the frequency.
const STARTUP_GRACE: Duration = Duration::from_secs(10);

/// Consecutive calm windows before the frequency is raised a step.
const CALM_WINDOWS: u32 = 3;

/// A step at most doubles the cost; it is taken if that stays below this share of the budget.
const HEADROOM: f64 = 0.8;

pub struct Budget {
    /// Share of one core; 0 means no limit.
    share: f64,
    configured: u64,
    frequency: u64,
    window: Duration,
    used: Duration,
    calm: u32,
}

impl Budget {
    pub fn new(share: f64, frequency: u64) -> Self {
        Self {
            share,
            configured: frequency,
            frequency,
            window: Duration::ZERO,
            used: Duration::ZERO,
            calm: 0,
        }
    }

    pub fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Records the CPU time `used` during `length`. Returns the new frequency if it changes.
    pub fn spend(&mut self, length: Duration, used: Duration) -> Option<u64> {
        self.window += length;
        self.used += used;
        if self.share <= 0.0 || self.window < MIN_WINDOW {
            return None;
        }
        let share = self.used.as_secs_f64() / self.window.as_secs_f64();
        (self.window, self.used) = (Duration::ZERO, Duration::ZERO);
        let next = self.next(share);
        if next == self.frequency {
            return None;
        }
        tracing::info!(
            share,
            budget = self.share,
            from = self.frequency,
            to = next,
            "Changed the sampling frequency to stay within `cpu_budget`."
        );
        self.calm = 0;
        self.frequency = next;
        Some(next)
    }

    fn next(&mut self, share: f64) -> u64 {
        if share > self.share {
            self.calm = 0;
            return (self.frequency / 2).max(1);
        }
        let is_calm = share * 2.0 <= self.share * HEADROOM;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if self.calm < CALM_WINDOWS {
            return self.frequency;
        }
        (self.frequency * 2).min(self.configured)
    }
}

/// Measures the CPU time used between two reads.
pub struct Meter {
    started: Duration,
    time: Duration,
    spent: Duration,
}

impl Meter {
    /// `time` is since boot.
    pub fn start(time: Duration, run_time: Duration) -> Self {
        Self {
            started: time,
            time,
            spent: own_cpu_time() + run_time,
        }
    }

    /// The time since the last read, and the CPU time used in it.
    pub fn read(&mut self, time: Duration, run_time: Duration) -> Option<(Duration, Duration)> {
        let spent = own_cpu_time() + run_time;
        let length = time.saturating_sub(self.time);
        let used = spent.saturating_sub(self.spent);
        (self.time, self.spent) = (time, spent);
        (time.saturating_sub(self.started) > STARTUP_GRACE).then_some((length, used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends these shares in percent, one window each, and returns the frequency after each.
    fn check(shares: &[u64], expected: &[u64]) {
        let mut budget = Budget::new(0.10, 99);
        let frequencies: Vec<u64> = shares
            .iter()
            .map(|share| {
                budget.spend(MIN_WINDOW, MIN_WINDOW / 100 * *share as u32);
                budget.frequency()
            })
            .collect();
        assert_eq!(frequencies, expected, "{shares:?}");
    }

    #[test]
    fn lowers_in_steps_and_raises_after_calm_windows() {
        check(&[10, 5, 10], &[99, 99, 99]);
        check(&[11, 20, 9], &[49, 24, 24]);
        check(&[11, 4, 4, 4, 4, 4], &[49, 49, 49, 98, 98, 98]);
        check(&[11, 4, 4, 5, 4, 4, 4], &[49, 49, 49, 49, 49, 49, 98]);
        check(&[11, 4, 4, 4, 1, 1, 1], &[49, 49, 49, 98, 98, 98, 99]);
        check(&[90; 9], &[49, 24, 12, 6, 3, 1, 1, 1, 1]);
    }

    #[test]
    fn accumulates_short_times_into_a_window() {
        let mut budget = Budget::new(0.10, 99);
        for _ in 0..4 {
            assert_eq!(budget.spend(MIN_WINDOW / 5, MIN_WINDOW), None);
        }
        assert_eq!(budget.spend(MIN_WINDOW / 5, MIN_WINDOW), Some(49));
    }

    #[test]
    fn without_a_budget_nothing_changes() {
        assert_eq!(Budget::new(0.0, 99).spend(MIN_WINDOW, MIN_WINDOW * 2), None);
    }
}
