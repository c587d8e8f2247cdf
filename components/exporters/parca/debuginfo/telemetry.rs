//! Metrics of uploads.

use profcol_component::{BuildContext, Gauge, IntCounter, Meter};

#[derive(Clone)]
pub struct Telemetry {
    meter: Meter,
    exporter: String,
    pub bytes: IntCounter,
    pub waiting: Gauge,
}

impl Telemetry {
    pub fn new(context: &BuildContext) -> Self {
        let exporter = context.id.to_string();
        let labels: &[(&str, &str)] = &[("exporter", &exporter)];
        let telemetry = Self {
            bytes: context.meter.counter(
                "otelcol_exporter_parca_debuginfo_uploaded_bytes",
                "Bytes of debuginfo in completed uploads.",
                labels,
            ),
            waiting: context.meter.gauge(
                "otelcol_exporter_parca_debuginfo_waiting",
                "Executables queued for upload.",
                labels,
            ),
            meter: context.meter.clone(),
            exporter,
        };
        for outcome in ["uploaded", "there", "in_progress", "refused", "broken"] {
            telemetry.tries(outcome);
        }
        telemetry
    }

    /// Attempts by outcome.
    pub fn tries(&self, outcome: &str) -> IntCounter {
        self.meter.counter(
            "otelcol_exporter_parca_debuginfo_uploads",
            "Upload attempts, by outcome.",
            &[("exporter", &self.exporter), ("outcome", outcome)],
        )
    }

    /// Executables uploaded without lines.
    pub fn symbols_only(&self, reason: &str) -> IntCounter {
        self.meter.counter(
            "otelcol_exporter_parca_debuginfo_symbols_only",
            "Executables uploaded with symbols but without DWARF, by reason.",
            &[("exporter", &self.exporter), ("reason", reason)],
        )
    }

    /// Executables skipped without an attempt.
    pub fn skipped(&self, reason: &str) -> IntCounter {
        self.meter.counter(
            "otelcol_exporter_parca_debuginfo_skipped",
            "Executables skipped without an upload, by reason.",
            &[("exporter", &self.exporter), ("reason", reason)],
        )
    }
}
