//! When to log a lasting condition: as it begins, after a minute, and then at growing intervals.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) struct LogSchedule {
    due: Instant,
    interval: Duration,
}

impl LogSchedule {
    /// The begin has been logged.
    pub(super) fn new() -> Self {
        Self {
            due: Instant::now() + FIRST,
            interval: FIRST,
        }
    }

    /// Whether to log now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return false;
        }
        self.interval = (2 * self.interval).min(LONGEST);
        self.due = now + self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_day_takes_few_lines() {
        let mut schedule = LogSchedule::new();
        let mut minutes = Vec::new();
        for minute in 0..24 * 60 {
            if schedule.is_due() {
                minutes.push(minute);
            }
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(minutes[..7], [1, 3, 7, 15, 31, 63, 123]);
        assert_eq!(minutes.len(), 28);
    }
}
