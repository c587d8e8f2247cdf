//! The rate of uploads.
//!
//! A server cuts off uploads that exceed its time limit, even if only the rate limit slows them down. So an
//! upload is paced to take less than half of that limit, which also shows whether a larger one would
//! finish in all of it; the excess over the rate limit delays the next upload.

use std::time::Duration;

use tokio::time::Instant;

/// The share of the time limit that an upload should take.
const TIMEOUT_SHARE: f64 = 0.4;

/// The rate limit of all uploads together.
#[derive(Debug)]
pub struct Budget {
    bytes_per_second: u64,
    /// When the bytes sent so far are within the rate limit.
    paid_until: Option<Instant>,
}

/// The pace of one upload.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_second: f64,
    begin: Instant,
}

impl Budget {
    /// 0 means no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            paid_until: None,
        }
    }

    pub fn spend(&mut self, bytes: u64, now: Instant) {
        if self.bytes_per_second > 0 {
            let seconds = bytes as f64 / self.bytes_per_second as f64;
            let paid_until = self
                .paid_until
                .map_or(now, |paid_until| paid_until.max(now));
            self.paid_until = Some(paid_until + Duration::from_secs_f64(seconds));
        }
    }

    /// When the next upload may start, if not now.
    pub fn next_upload_at(&self, now: Instant) -> Option<Instant> {
        self.paid_until.filter(|paid_until| *paid_until > now)
    }

    /// The pace of an upload of `size` bytes, within `timeout` if there is one.
    pub fn pace(&self, size: u64, timeout: Option<Duration>, now: Instant) -> Option<Pace> {
        if self.bytes_per_second == 0 {
            return None;
        }
        let needed = timeout.map_or(0.0, |timeout| {
            size as f64 / (TIMEOUT_SHARE * timeout.as_secs_f64())
        });
        Some(Pace {
            bytes_per_second: needed.max(self.bytes_per_second as f64),
            begin: now,
        })
    }
}

impl Pace {
    /// When this many bytes may have been sent.
    pub fn due(&self, sent: u64) -> Instant {
        self.begin + Duration::from_secs_f64(sent as f64 / self.bytes_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_in_time_and_delays_the_next_one() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut budget = Budget::new(1000);
        let check = |budget: &Budget, size, timeout: Option<u64>, seconds: f64| {
            let timeout = timeout.map(Duration::from_secs);
            let pace = budget.pace(size, timeout, now).unwrap();
            let accepted = (pace.due(size) - now).as_secs_f64();
            assert!((accepted - seconds).abs() < 1e-6, "{size}: {accepted}");
        };
        check(&budget, 500, Some(5), 0.5);
        check(&budget, 2000, Some(5), 2.0);
        check(&budget, 400_000, Some(5), 2.0);
        check(&budget, 400_000, None, 400.0);
        budget.spend(2000, now);
        budget.spend(1000, now);
        assert_eq!(budget.next_upload_at(now), Some(now + 3 * second));
        assert_eq!(budget.next_upload_at(now + 3 * second), None);
        budget.spend(1000, now + 10 * second);
        assert_eq!(
            budget.next_upload_at(now + 10 * second),
            Some(now + 11 * second)
        );
        let mut unlimited = Budget::new(0);
        unlimited.spend(1 << 40, now);
        assert_eq!(unlimited.next_upload_at(now), None);
        assert!(unlimited.pace(1 << 40, None, now).is_none());
    }
}
