//! The outcome of every sample, after shutdown.

use std::fmt;

use profcol_component::{ReceiverTotals, SourceCounts};

use crate::graph::ProcessorBalance;
use crate::sender::ExporterBalance;

/// Samples as their sources count them. For a single pipeline: samples passed on by the receiver equal those removed or
/// lost by processors plus those each exporter delivered, dropped or stored, minus those it recovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    pub receivers: Vec<ReceiverBalance>,
    pub processors: Vec<ProcessorBalance>,
    pub exporters: Vec<ExporterBalance>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverBalance {
    pub receiver: String,
    pub passed_on: u64,
    /// For receivers that sample by themselves.
    pub source: Option<SourceCounts>,
}

impl ReceiverBalance {
    pub(super) fn of(id: &str, totals: &ReceiverTotals) -> Self {
        Self {
            receiver: id.to_owned(),
            passed_on: totals.passed_on(),
            source: totals.source(),
        }
    }
}

impl Balance {
    /// Adds an instance of a receiver.
    pub(super) fn add_receiver(&mut self, other: ReceiverBalance) {
        let mut known = self.receivers.iter_mut();
        match known.find(|known| known.receiver == other.receiver) {
            Some(known) => {
                known.passed_on += other.passed_on;
                // All instances count in the same series.
                known.source = other.source.or(known.source);
            }
            None => self.receivers.push(other),
        }
    }

    /// Adds an instance of a processor.
    pub(super) fn add_processor(&mut self, other: ProcessorBalance) {
        let mut known = self.processors.iter_mut();
        match known.find(|known| known.processor == other.processor) {
            Some(known) => {
                known.removed += other.removed;
                known.lost += other.lost;
            }
            None => self.processors.push(other),
        }
    }

    /// Adds a later instance of an exporter.
    pub(super) fn add_exporter(&mut self, other: ExporterBalance) {
        let mut known = self.exporters.iter_mut();
        match known.find(|known| known.exporter == other.exporter) {
            Some(known) => {
                // Left by one instance and found by the next one.
                let handed_over = known.stored.min(other.recovered);
                known.stored = known.stored - handed_over + other.stored;
                known.recovered += other.recovered - handed_over;
                // All instances count in the same series.
                known.delivered = other.delivered;
                known.dropped = other.dropped;
            }
            None => self.exporters.push(other),
        }
    }

    /// Samples taken or accepted but not delivered, for any reason.
    pub fn lost(&self) -> u64 {
        let sources = self.receivers.iter().filter_map(|receiver| receiver.source);
        let before = sources
            .map(|counts| counts.lost + counts.dropped)
            .sum::<u64>();
        let after = self.exporters.iter().flat_map(|exporter| &exporter.dropped);
        before + self.lost_by_processors() + after.map(|(_, samples)| samples).sum::<u64>()
    }

    /// Samples cut off by the shutdown deadline.
    pub fn cut_off(&self) -> u64 {
        let shutdown = crate::sender::DropReason::Shutdown.name();
        let dropped = self.exporters.iter().flat_map(|exporter| &exporter.dropped);
        let after = dropped.filter(|(reason, _)| *reason == shutdown);
        self.lost_by_processors() + after.map(|(_, samples)| samples).sum::<u64>()
    }

    fn lost_by_processors(&self) -> u64 {
        self.processors.iter().map(|processor| processor.lost).sum()
    }

    /// `ebpf_cpu: taken=958 excluded=0 lost=0 dropped=0 passed_on=958`
    pub fn receivers(&self) -> String {
        list(&self.receivers)
    }

    /// `filter/idle: removed=12 lost=0`, only processors with nonzero counts.
    pub fn processors(&self) -> String {
        list(
            self.processors
                .iter()
                .filter(|balance| balance.removed + balance.lost > 0),
        )
    }

    /// `parca: delivered=900 queue_full=58`
    pub fn exporters(&self) -> String {
        list(&self.exporters)
    }
}

impl fmt::Display for ReceiverBalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.receiver)?;
        if let Some(SourceCounts {
            taken,
            excluded,
            lost,
            dropped,
        }) = self.source
        {
            write!(
                f,
                " taken={taken} excluded={excluded} lost={lost} dropped={dropped}"
            )?;
        }
        write!(f, " passed_on={}", self.passed_on)
    }
}

impl fmt::Display for ProcessorBalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            removed,
            lost,
        } = self;
        write!(f, "{processor}: removed={removed} lost={lost}")
    }
}

impl fmt::Display for ExporterBalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.exporter)?;
        if self.recovered > 0 {
            write!(f, " recovered={}", self.recovered)?;
        }
        write!(f, " delivered={}", self.delivered)?;
        for (reason, samples) in &self.dropped {
            write!(f, " {reason}={samples}")?;
        }
        if self.stored > 0 {
            write!(f, " stored={}", self.stored)?;
        }
        Ok(())
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_instances_of_a_component() {
        let exporter = |delivered, recovered, stored| ExporterBalance {
            exporter: "parca".into(),
            delivered,
            dropped: Vec::new(),
            recovered,
            stored,
        };
        let receiver = |passed_on, taken| ReceiverBalance {
            receiver: "ebpf_cpu".into(),
            passed_on,
            source: Some(SourceCounts {
                taken,
                ..SourceCounts::default()
            }),
        };
        let mut balance = Balance::default();
        balance.add_receiver(receiver(5, 5));
        balance.add_receiver(receiver(7, 12));
        balance.add_exporter(exporter(3, 0, 2));
        balance.add_exporter(exporter(9, 2, 3));
        assert_eq!(
            balance.receivers(),
            "ebpf_cpu: taken=12 excluded=0 lost=0 dropped=0 passed_on=12"
        );
        assert_eq!(balance.exporters(), "parca: delivered=9 stored=3");
    }

    #[test]
    fn accounts_for_every_sample() {
        let balance = Balance {
            receivers: vec![ReceiverBalance {
                receiver: "ebpf_cpu".into(),
                passed_on: 950,
                source: Some(SourceCounts {
                    taken: 958,
                    excluded: 5,
                    lost: 2,
                    dropped: 1,
                }),
            }],
            processors: vec![ProcessorBalance {
                processor: "processor filter in pipeline profiles".into(),
                removed: 50,
                lost: 0,
            }],
            exporters: vec![
                ExporterBalance {
                    exporter: "file".into(),
                    delivered: 900,
                    dropped: Vec::new(),
                    recovered: 0,
                    stored: 0,
                },
                ExporterBalance {
                    exporter: "parca".into(),
                    delivered: 600,
                    dropped: vec![("queue_full", 200), ("shutdown", 100)],
                    recovered: 57,
                    stored: 7,
                },
            ],
        };
        assert_eq!(
            balance.receivers(),
            "ebpf_cpu: taken=958 excluded=5 lost=2 dropped=1 passed_on=950"
        );
        assert_eq!(
            balance.processors(),
            "processor filter in pipeline profiles: removed=50 lost=0"
        );
        assert_eq!(
            balance.exporters(),
            "file: delivered=900; parca: recovered=57 delivered=600 queue_full=200 shutdown=100 stored=7"
        );
        assert_eq!((balance.lost(), balance.cut_off()), (303, 100));
    }
}
