//! Logs sending queue overflows: at the start, at growing intervals, and at the end.

use parking_lot::Mutex;
use profcol_component::Refusal;

use super::log_schedule::LogSchedule;

pub(super) struct OverflowLog {
    exporter: String,
    period: Mutex<Option<OverflowPeriod>>,
}

/// From the first refused batch to the next accepted one.
struct OverflowPeriod {
    log_schedule: LogSchedule,
    dropped: u64,
    refused: u64,
}

impl OverflowLog {
    pub(super) fn new(exporter: &str) -> Self {
        Self {
            exporter: exporter.to_owned(),
            period: Mutex::default(),
        }
    }

    /// Samples of a live source were dropped.
    pub(super) fn dropped(&self, samples: u64, refusal: &Refusal) {
        self.add(samples, 0, refusal);
    }

    /// Samples were refused that their source still holds.
    pub(super) fn refused(&self, samples: u64, refusal: &Refusal) {
        self.add(0, samples, refusal);
    }

    /// The queue accepted a batch.
    pub(super) fn ended(&self) {
        let Some(period) = self.period.lock().take() else {
            return;
        };
        tracing::info!(
            otelcol.component.id = %self.exporter,
            otelcol.component.kind = "exporter",
            dropped_samples = period.dropped,
            refused_samples = period.refused,
            "The sending queue accepts batches again."
        );
    }

    fn add(&self, dropped: u64, refused: u64, refusal: &Refusal) {
        let mut period = self.period.lock();
        let is_new = period.is_none();
        let period = period.get_or_insert(OverflowPeriod {
            log_schedule: LogSchedule::new(),
            dropped: 0,
            refused: 0,
        });
        period.dropped += dropped;
        period.refused += refused;
        if is_new || period.log_schedule.is_due() {
            tracing::warn!(
                otelcol.component.id = %self.exporter,
                otelcol.component.kind = "exporter",
                error = %refusal,
                dropped_samples = period.dropped,
                refused_samples = period.refused,
                "The sending queue refuses batches."
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_overflow_is_logged_at_its_begin_then_seldom_and_at_its_end() {
        let mut file = tempfile::tempfile().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(Mutex::new(file.try_clone().unwrap()))
            .finish();
        let logging = tracing::subscriber::set_default(subscriber);
        let log = OverflowLog::new("sink");
        let full = Refusal::retry("full");
        for _ in 0..100 {
            log.dropped(2, &full);
            log.refused(3, &full);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        log.ended();
        log.ended();
        log.refused(1, &full);
        drop(logging);
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let counts = |line: &str| {
            let (_, counts) = line.split_once("dropped_samples=").unwrap();
            counts.replace("refused_samples=", "")
        };
        let lines: Vec<_> = text.lines().map(counts).collect();
        assert_eq!(lines, ["2 0", "122 180", "200 300", "0 1"], "{text}");
    }
}
