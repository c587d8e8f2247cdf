//! A processor in its place in a pipeline.

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{Answer, Batch, Consumer, IntCounter, Meter, Processor};

/// Joins a processor to what comes after it and counts what goes through.
pub(crate) struct Stage {
    processor: Arc<dyn Processor>,
    incoming: IntCounter,
    next: Arc<dyn Consumer>,
}

/// Counts what a processor passes on.
struct Outgoing {
    items: IntCounter,
    next: Arc<dyn Consumer>,
}

impl Stage {
    pub(crate) fn new(
        processor: Arc<dyn Processor>,
        id: &str,
        next: Arc<dyn Consumer>,
        meter: &Meter,
    ) -> Arc<Self> {
        let labels: &[(&str, &str)] = &[("processor", id), ("otel_signal", "profiles")];
        let incoming = meter.counter(
            "otelcol_processor_incoming_items",
            "Samples passed to the processor.",
            labels,
        );
        let items = meter.counter(
            "otelcol_processor_outgoing_items",
            "Samples passed on by the processor.",
            labels,
        );
        let next = Arc::new(Outgoing { items, next });
        Arc::new(Self {
            processor,
            incoming,
            next,
        })
    }

    pub(crate) fn processor(&self) -> Arc<dyn Processor> {
        Arc::clone(&self.processor)
    }

    pub(crate) fn next(&self) -> Arc<dyn Consumer> {
        Arc::clone(&self.next)
    }
}

#[async_trait]
impl Consumer for Stage {
    async fn consume(&self, batch: Batch) -> Answer {
        self.incoming.inc_by(batch.profiles.sample_count() as u64);
        self.processor.process(batch, &*self.next).await
    }
}

#[async_trait]
impl Consumer for Outgoing {
    async fn consume(&self, batch: Batch) -> Answer {
        self.items.inc_by(batch.profiles.sample_count() as u64);
        self.next.consume(batch).await
    }
}
