//! How fast files go out.
//!
//! A server cuts off what takes longer than its time limit, whoever asked for a slow upload. So an
//! upload is made fast enough to be done in half of that time, which also shows whether a larger one would
//! be done in all of it; and what was sent too much is waited for before the next one begins.

use std::time::Duration;

use tokio::time::Instant;

/// The share of the time limit in which an upload should be done.
const TIMEOUT_SHARE: f64 = 0.4;

/// What all uploads together may send.
#[derive(Debug)]
pub struct Budget {
    bytes_per_second: u64,
    /// When all that was sent is paid for.
    paid_until: Option<Instant>,
}

/// One upload's share of it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_second: f64,
    begin: Instant,
}

impl Budget {
    /// 0 means that there is no limit.
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

    /// When the next upload may begin, if not now.
    pub fn next_upload_at(&self, now: Instant) -> Option<Instant> {
        self.paid_until.filter(|paid_until| *paid_until > now)
    }

    /// For an upload of `size` bytes, in `timeout` if there is one.
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
    /// When so many bytes may have been sent.
    pub fn due(&self, sent: u64) -> Instant {
        self.begin + Duration::from_secs_f64(sent as f64 / self.bytes_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_in_time_and_the_next_one_pays() {
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
