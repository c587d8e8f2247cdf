//! Progress of a running service, for its watchdog and status line.

use std::fmt;

use profcol_component::{Status, StatusBoard};

use super::ledger::Ledger;
use crate::sender::ExporterProgress;

/// Reads a service's counts while it runs and stops.
#[derive(Clone)]
pub struct ProgressReader {
    pub(super) ledger: Ledger,
    pub(super) board: StatusBoard,
}

/// Samples as their sources count them, and current errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub passed_on: Vec<(String, u64)>,
    pub exporters: Vec<ExporterProgress>,
    pub troubles: Vec<(String, String)>,
}

// === impl ProgressReader ===

impl ProgressReader {
    /// Takes the locks used by every batch and status change, so it hangs if one is deadlocked, as a watchdog should.
    pub fn progress(&self) -> Progress {
        let statuses = self.board.snapshot().into_iter();
        Progress {
            passed_on: self.ledger.passed_on(),
            exporters: self.ledger.exporters(),
            troubles: statuses
                .filter_map(|(component, status)| match status {
                    Status::RecoverableError(error) | Status::PermanentError(error) => {
                        Some((component, error.to_string()))
                    }
                    _ => None,
                })
                .collect(),
        }
    }
}

// === impl Progress ===

/// `ebpf_cpu: 958 samples; parca: 900 delivered, 58 waiting`
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed_on = self.passed_on.iter();
        let parts = passed_on
            .map(|(receiver, samples)| format!("{receiver}: {samples} samples"))
            .chain(self.exporters.iter().map(ToString::to_string))
            .chain(
                self.troubles
                    .iter()
                    .map(|(component, error)| format!("{component}: {error}")),
            );
        f.write_str(&parts.collect::<Vec<_>>().join("; "))
    }
}

impl fmt::Display for ExporterProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            exporter,
            delivered,
            waiting,
            dropped,
        } = self;
        write!(f, "{exporter}: {delivered} delivered")?;
        for (samples, what) in [(waiting, "waiting"), (dropped, "dropped")] {
            if *samples > 0 {
                write!(f, ", {samples} {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_progress_on_one_line() {
        let exporter = |exporter: &str, waiting, dropped| ExporterProgress {
            exporter: exporter.into(),
            delivered: 900,
            waiting,
            dropped,
        };
        let progress = Progress {
            passed_on: vec![("ebpf_cpu".into(), 958)],
            exporters: vec![exporter("file", 0, 0), exporter("parca", 50, 8)],
            troubles: vec![("exporter parca".into(), "connection refused".into())],
        };
        assert_eq!(
            progress.to_string(),
            "ebpf_cpu: 958 samples; file: 900 delivered; parca: 900 delivered, 50 waiting, 8 dropped; \
             exporter parca: connection refused"
        );
    }
}
