//! Selects the batches to show: the first ones of each second, then every Nth.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const WINDOW: Duration = Duration::from_secs(1);

pub(super) struct Sampling {
    initial: u64,
    thereafter: u64,
    window: Mutex<Option<Window>>,
}

struct Window {
    began: Instant,
    batches: u64,
}

impl Sampling {
    pub(super) fn new(initial: u64, thereafter: u64) -> Self {
        Self {
            initial,
            thereafter,
            window: Mutex::new(None),
        }
    }

    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut window = self.window.lock();
        let current = match window.take() {
            Some(window) if now.duration_since(window.began) < WINDOW => window,
            _ => Window {
                began: now,
                batches: 0,
            },
        };
        let batches = current.batches + 1;
        *window = Some(Window { batches, ..current });
        match batches.checked_sub(self.initial) {
            None | Some(0) => true,
            Some(beyond) => beyond.checked_rem(self.thereafter) == Some(0),
        }
    }
}
