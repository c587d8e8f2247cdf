//! Metrics of a stored queue.

use profcol_component::{Gauge, Histogram, IntCounter, Meter, QueueSettings};

use crate::telemetry::DURATIONS;

#[derive(Clone)]
pub(super) struct StorageMetrics {
    pub queue_size: Gauge,
    pub bytes: Gauge,
    pub batches: Gauge,
    pub stored_batches: IntCounter,
    pub stored_bytes: IntCounter,
    pub corrupt_records: IntCounter,
    pub missing_batches: IntCounter,
    pub shared_bytes: IntCounter,
    pub fsync: Histogram,
    pub failed_syncs: IntCounter,
}

impl StorageMetrics {
    pub(super) fn new(settings: &QueueSettings, exporter: &str, meter: &Meter) -> Self {
        let labels: &[(&str, &str)] = &[("exporter", exporter)];
        let capacity = meter.gauge(
            "otelcol_exporter_queue_capacity",
            "Capacity of the sending queue, in units of its sizer.",
            labels,
        );
        capacity.set(settings.queue_size as f64);
        let counter = |name, help| meter.counter(name, help, labels);
        let gauge = |name, help| meter.gauge(name, help, labels);
        Self {
            queue_size: gauge(
                "otelcol_exporter_queue_size",
                "Current size of the sending queue, in units of its sizer.",
            ),
            bytes: gauge(
                "profcol_storage_bytes",
                "Bytes on disk of a stored queue, with the batches that it shares.",
            ),
            batches: gauge(
                "profcol_storage_batches",
                "Batches in a stored queue, including those being sent.",
            ),
            stored_batches: counter(
                "profcol_storage_stored_batches",
                "Batches written to a stored queue.",
            ),
            stored_bytes: counter(
                "profcol_storage_stored_bytes",
                "Bytes of batches written to a stored queue.",
            ),
            shared_bytes: counter(
                "profcol_storage_shared_bytes",
                "Bytes of batches not written to a stored queue, as that of another exporter has them.",
            ),
            corrupt_records: counter(
                "profcol_storage_corrupt_records",
                "Damaged records of a stored queue that were dropped.",
            ),
            missing_batches: counter(
                "profcol_storage_missing_batches",
                "Batches of a stored queue that were dropped, as what they share with other queues is missing.",
            ),
            fsync: meter.histogram(
                "profcol_storage_fsync_seconds",
                "Duration of making a stored queue durable.",
                DURATIONS,
                labels,
            ),
            failed_syncs: counter(
                "profcol_storage_failed_fsyncs",
                "Failures to make a stored queue durable.",
            ),
        }
    }
}
