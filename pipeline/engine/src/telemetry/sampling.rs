//! Samples repeated log lines.
//!
//! A dead backend makes every request log the same line. Each call site writes `initial` lines per interval and then
//! every `thereafter`-th, as in the Collector; call sites do not affect each other.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Metadata};
use tracing_subscriber::layer::{Context, Filter};

use super::settings::LogSampling;

pub(super) struct Sampling {
    settings: LogSampling,
    windows: Mutex<HashMap<Identifier, Window>>,
}

struct Window {
    began: Instant,
    lines: u64,
}

impl Sampling {
    pub(super) fn new(settings: LogSampling) -> Self {
        Self {
            settings,
            windows: Mutex::default(),
        }
    }

    fn admits(&self, place: Identifier, now: Instant) -> bool {
        if !self.settings.enabled {
            return true;
        }
        let mut windows = self.windows.lock();
        let window = windows.entry(place).or_insert(Window {
            began: now,
            lines: 0,
        });
        if now.duration_since(window.began) >= self.settings.tick.into() {
            *window = Window {
                began: now,
                lines: 0,
            };
        }
        window.lines += 1;
        let beyond = window.lines.saturating_sub(self.settings.initial);
        beyond == 0
            || beyond
                .checked_rem(self.settings.thereafter)
                .is_some_and(|remainder| remainder == 0)
    }
}

impl<S> Filter<S> for Sampling {
    fn enabled(&self, _metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        self.admits(event.metadata().callsite(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn writes_initial_lines_and_then_every_nth() {
        let sampling = Sampling::new(LogSampling {
            initial: 2,
            thereafter: 3,
            ..LogSampling::default()
        });
        let place = tracing::callsite!(name: "place", kind: tracing::metadata::Kind::EVENT, fields: message);
        let place = tracing::Callsite::metadata(place).callsite();
        let now = Instant::now();
        let admitted: Vec<bool> = (0..8)
            .map(|_| sampling.admits(place.clone(), now))
            .collect();
        assert_eq!(
            admitted,
            [true, true, false, false, true, false, false, true]
        );
        assert!(sampling.admits(place, now + Duration::from_secs(10)));
    }
}
