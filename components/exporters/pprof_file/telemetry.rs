//! The exporter's metrics.

use profcol_component::{BuildContext, Gauge, IntCounter};

#[derive(Clone)]
pub(super) struct Telemetry {
    written_files: IntCounter,
    written_bytes: IntCounter,
    pub(super) failed_writes: IntCounter,
    pub(super) removed_files: IntCounter,
    pub(super) ungrouped_samples: IntCounter,
    pub(super) lost_samples: IntCounter,
    buffered_bytes: Gauge,
}

impl Telemetry {
    pub(super) fn new(context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let labels = [("exporter", id.as_str())];
        let counter = |name: &str, help: &str| {
            let name = format!("otelcol_exporter_pprof_file_{name}");
            context.meter.counter(&name, help, &labels)
        };
        Self {
            written_files: counter("written_files", "Files written."),
            written_bytes: counter("written_bytes", "Bytes written to files."),
            failed_writes: counter("failed_writes", "Failed attempts to write a file."),
            removed_files: counter("removed_files", "Old files removed by retention."),
            ungrouped_samples: counter(
                "ungrouped_profile_samples",
                "Samples written to the group `other` because of too many groups.",
            ),
            lost_samples: counter(
                "lost_profile_samples",
                "Samples not written before the shutdown deadline.",
            ),
            buffered_bytes: context.meter.gauge(
                "otelcol_exporter_pprof_file_buffered_bytes",
                "Memory used by buffered profiles.",
                &labels,
            ),
        }
    }

    pub(super) fn wrote(&self, bytes: usize) {
        self.written_files.inc();
        self.written_bytes.inc_by(bytes as u64);
    }

    pub(super) fn set_buffered(&self, bytes: usize) {
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
        self.buffered_bytes.set(bytes as f64);
    }
}
