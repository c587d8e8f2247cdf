//! What is counted of uploads.

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
                "Bytes of debuginfo in uploads that came to their end.",
                labels,
            ),
            waiting: context.meter.gauge(
                "otelcol_exporter_parca_debuginfo_waiting",
                "Executables that are kept open for their upload.",
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

    /// Tries by what became of them.
    pub fn tries(&self, outcome: &str) -> IntCounter {
        self.meter.counter(
            "otelcol_exporter_parca_debuginfo_uploads",
            "Executables that were offered to the server, by what became of it.",
            &[("exporter", &self.exporter), ("outcome", outcome)],
        )
    }

    /// What the server gets no lines of.
    pub fn symbols_only(&self, reason: &str) -> IntCounter {
        self.meter.counter(
            "otelcol_exporter_parca_debuginfo_symbols_only",
            "Executables of which symbols were uploaded and no DWARF, by the reason.",
            &[("exporter", &self.exporter), ("reason", reason)],
        )
    }

    /// What was not even tried.
    pub fn skipped(&self, reason: &str) -> IntCounter {
        self.meter.counter(
            "otelcol_exporter_parca_debuginfo_skipped",
            "Executables whose debuginfo is not uploaded, by the reason.",
            &[("exporter", &self.exporter), ("reason", reason)],
        )
    }
}
