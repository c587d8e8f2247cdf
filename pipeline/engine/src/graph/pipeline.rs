//! A processor within a pipeline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, Consumer, Histogram, IntCounter, Kind, Meter, Processor, Side, Tap, TapPoint,
    Taps,
};
use profcol_config::PipelineId;

use super::link::{Link, Target};
use crate::telemetry::DURATIONS;

/// Connects a processor to the next consumer and counts samples.
pub(crate) struct Stage {
    processor: Arc<dyn Processor>,
    tap: Arc<Tap>,
    incoming: IntCounter,
    duration: Histogram,
    next: Arc<Outgoing>,
    /// Samples of batches that were accepted, as their source counts them.
    accepted: AtomicU64,
}

/// Samples a processor did not pass on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorBalance {
    pub processor: String,
    /// Removed on purpose.
    pub removed: u64,
    pub lost: u64,
}

/// The next consumer for one batch; sums up the time spent downstream.
struct TimedConsumer<'a> {
    next: &'a dyn Consumer,
    nanos: AtomicU64,
}

/// Counts samples a processor passes on.
struct Outgoing {
    tap: Arc<Tap>,
    items: IntCounter,
    /// Samples of accepted batches, as their source counts them.
    taken: AtomicU64,
    next: Link,
}

impl Stage {
    pub(crate) fn new(
        processor: Arc<dyn Processor>,
        id: &str,
        pipeline: &PipelineId,
        meter: &Meter,
        taps: &Taps,
    ) -> Arc<Self> {
        let tap = |side| {
            taps.tap(TapPoint {
                kind: Kind::Processor,
                id: id.to_owned(),
                pipeline: Some(pipeline.to_string()),
                side,
            })
        };
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
        let duration = meter.histogram(
            "otelcol_processor_internal_duration_seconds",
            "Processing time per batch, without the following components.",
            DURATIONS,
            labels,
        );
        let next = Arc::new(Outgoing {
            tap: tap(Side::Output),
            items,
            taken: AtomicU64::new(0),
            next: Link::default(),
        });
        Arc::new(Self {
            processor,
            tap: tap(Side::Input),
            incoming,
            duration,
            next,
            accepted: AtomicU64::new(0),
        })
    }

    pub(crate) fn processor(&self) -> Arc<dyn Processor> {
        Arc::clone(&self.processor)
    }

    /// Sends the batches that the processor passes on to `next`.
    pub(crate) fn connect(&self, next: Target) {
        self.next.next.set(next);
    }

    pub(crate) fn next(&self) -> Arc<dyn Consumer> {
        Arc::clone(&self.next) as Arc<dyn Consumer>
    }

    /// Samples accepted but not passed on, once the processor has stopped.
    pub(crate) fn balance(&self, label: &str) -> ProcessorBalance {
        let accepted = self.accepted.load(Ordering::Relaxed);
        let kept = accepted.saturating_sub(self.next.taken.load(Ordering::Relaxed));
        let lost = self.processor.lost_samples().min(kept);
        ProcessorBalance {
            processor: label.to_owned(),
            removed: kept - lost,
            lost,
        }
    }
}

#[async_trait]
impl Consumer for Stage {
    async fn consume(&self, batch: Batch) -> Answer {
        self.tap.pass(&batch);
        self.incoming.inc_by(batch.profiles.sample_count() as u64);
        let timed = TimedConsumer {
            next: &*self.next,
            nanos: AtomicU64::new(0),
        };
        let began = Instant::now();
        let samples = batch.source_samples();
        let answer = self.processor.process(batch, &timed).await;
        if answer.is_ok() {
            self.accepted.fetch_add(samples, Ordering::Relaxed);
        }
        let elsewhere = Duration::from_nanos(timed.nanos.into_inner());
        let own = began.elapsed().saturating_sub(elsewhere);
        self.duration.observe(own.as_secs_f64());
        answer
    }
}

#[async_trait]
impl Consumer for TimedConsumer<'_> {
    async fn consume(&self, batch: Batch) -> Answer {
        let began = Instant::now();
        let answer = self.next.consume(batch).await;
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        answer
    }
}

#[async_trait]
impl Consumer for Outgoing {
    async fn consume(&self, batch: Batch) -> Answer {
        self.tap.pass(&batch);
        self.items.inc_by(batch.profiles.sample_count() as u64);
        let samples = batch.source_samples();
        let answer = self.next.consume(batch).await;
        if answer.is_ok() {
            self.taken.fetch_add(samples, Ordering::Relaxed);
        }
        answer
    }
}
