//! Time windows of profiles and of their timestamps.

/// A time window, both ends inclusive; if empty, the end is before the start.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub start: u64,
    pub end: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            start: u64::MAX,
            end: 0,
        }
    }
}

impl Window {
    pub fn of_profile(time: u64, duration: u64) -> Self {
        let start = time;
        let end = if time == 0 {
            u64::MAX
        } else {
            time.saturating_add(duration)
        };
        Self { start, end }
    }

    pub fn at(timestamp: u64) -> Self {
        Self {
            start: timestamp,
            end: timestamp,
        }
    }

    #[inline(always)]
    pub fn extend(&mut self, seen: Self) {
        self.start = self.start.min(seen.start);
        self.end = self.end.max(seen.end);
    }

    pub fn contains(&self, seen: &Self) -> bool {
        self.start <= seen.start && seen.end <= self.end
    }
}
