//! Which levels have failed, and which one a batch tries next.

use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Levels {
    retry_interval: Duration,
    /// When each level has failed or was last tried since; `None` if it works.
    failed: Vec<Option<Instant>>,
}

impl Levels {
    pub(super) fn new(count: usize, retry_interval: Duration) -> Self {
        Self {
            retry_interval,
            failed: vec![None; count],
        }
    }

    /// The order in which a batch tries all levels: one failed level of higher priority, if it is time, those that work,
    /// and for want of a better place the others.
    pub(super) fn order(&mut self, now: Instant) -> Vec<usize> {
        let works = |level: &usize| matches!(self.failed.get(*level), Some(None));
        let all = 0..self.failed.len();
        let (working, failed): (Vec<usize>, Vec<usize>) = all.partition(works);
        let preferred = working.first().copied().unwrap_or(usize::MAX);
        let is_due = |level: &&usize| {
            let since = self.failed.get(**level).copied().flatten();
            **level < preferred && since.is_some_and(|it| now - it >= self.retry_interval)
        };
        let due = failed.iter().find(is_due).copied();
        if let Some(since) = due.and_then(|due| self.failed.get_mut(due)) {
            // Other batches do not wait for the outcome.
            *since = Some(now);
        }
        let rest = failed.into_iter().filter(|level| Some(*level) != due);
        due.into_iter().chain(working).chain(rest).collect()
    }

    /// Returns whether it worked before.
    pub(super) fn fail(&mut self, level: usize, now: Instant) -> bool {
        let since = self.failed.get_mut(level);
        since.is_some_and(|since| since.replace(now).is_none())
    }

    /// Returns whether it had failed before.
    pub(super) fn recover(&mut self, level: usize) -> bool {
        let since = self.failed.get_mut(level);
        since.is_some_and(|since| since.take().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_failed_level_is_tried_each_interval() {
        let interval = Duration::from_secs(60);
        let mut levels = Levels::new(4, interval);
        let start = Instant::now();
        assert_eq!(levels.order(start), [0, 1, 2, 3]);
        assert!(levels.fail(0, start) && levels.fail(1, start) && levels.fail(3, start));
        assert!(!levels.fail(1, start));
        assert_eq!(levels.order(start), [2, 0, 1, 3]);
        let due = start + interval;
        assert_eq!(levels.order(due), [0, 2, 1, 3]);
        assert_eq!(levels.order(due), [1, 2, 0, 3], "the next one");
        assert_eq!(
            levels.order(due),
            [2, 0, 1, 3],
            "3 is less preferred than 2"
        );
        assert!(levels.recover(1) && !levels.recover(1));
        assert_eq!(levels.order(due), [1, 2, 0, 3]);
        assert_eq!(levels.order(due + interval), [0, 1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_working_level_all_are_tried() {
        let now = Instant::now();
        let mut levels = Levels::new(2, Duration::from_secs(60));
        levels.fail(0, now);
        levels.fail(1, now);
        assert_eq!(levels.order(now), [0, 1]);
    }
}
