//! A connector between pipelines.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::{
    Answer, Batch, Connector, Consumer, IntCounter, Meter, Pipelines, Refusal,
};
use profcol_config::PipelineId;
use profcol_profile::Profiles;

use super::fan_out::{FanOut, Part};
use super::pipeline::ProcessorBalance;

/// Connects a connector to the pipelines that it feeds, and counts samples.
pub(crate) struct ConnectorNode {
    connector: Arc<dyn Connector>,
    consumed: IntCounter,
    next: ConnectorOutputs,
}

/// The way from a pipeline into a connector.
pub(crate) struct ConnectorInput {
    pipeline: String,
    node: Arc<ConnectorNode>,
}

/// The pipelines that a connector feeds.
struct ConnectorOutputs {
    id: String,
    meter: Meter,
    fan_out: Arc<FanOut>,
    produced: Mutex<BTreeMap<PipelineId, IntCounter>>,
}

// === impl ConnectorNode ===

impl ConnectorNode {
    /// `fan_out` leads to the pipelines, by id.
    pub(crate) fn new(
        connector: Arc<dyn Connector>,
        id: &str,
        meter: &Meter,
        fan_out: Arc<FanOut>,
    ) -> Arc<Self> {
        let consumed = meter.counter(
            "otelcol_connector_consumed_items",
            "Samples passed to the connector.",
            &[("connector", id), ("otel_signal", "profiles")],
        );
        Arc::new(Self {
            connector,
            consumed,
            next: ConnectorOutputs {
                id: id.to_owned(),
                meter: meter.clone(),
                fan_out,
                produced: Mutex::default(),
            },
        })
    }

    pub(crate) fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&self.connector)
    }

    pub(crate) fn fan_out(&self) -> Arc<FanOut> {
        Arc::clone(&self.next.fan_out)
    }

    /// The entrance for batches of this pipeline.
    pub(crate) fn input(self: &Arc<Self>, pipeline: &PipelineId) -> Arc<ConnectorInput> {
        Arc::new(ConnectorInput {
            pipeline: pipeline.to_string(),
            node: Arc::clone(self),
        })
    }

    pub(crate) fn balance(&self, label: &str) -> ProcessorBalance {
        ProcessorBalance {
            processor: label.to_owned(),
            removed: self.connector.removed_samples(),
            lost: 0,
        }
    }
}

#[async_trait]
impl Consumer for ConnectorInput {
    async fn consume(&self, mut batch: Batch) -> Answer {
        // Two paths may lead here: each copy is delivered, and resent as itself.
        batch.resend_id = batch.resend_id.map(|id| id.within(&self.pipeline));
        let node = &self.node;
        let samples = batch.profiles.sample_count() as u64;
        node.consumed.inc_by(samples);
        node.connector.process(batch, &node.next).await
    }
}

// === impl ConnectorOutputs ===

impl ConnectorOutputs {
    fn produced(&self, pipeline: &PipelineId) -> IntCounter {
        let mut known = self.produced.lock();
        let counter = known.entry(pipeline.clone()).or_insert_with(|| {
            let name = pipeline.to_string();
            self.meter.counter(
                "otelcol_connector_produced_items",
                "Samples of the connector that its pipelines have accepted.",
                &[
                    ("connector", &self.id),
                    ("pipeline", &name),
                    ("otel_signal", "profiles"),
                ],
            )
        });
        counter.clone()
    }
}

#[async_trait]
impl Pipelines for ConnectorOutputs {
    async fn push_parts(&self, batch: Batch, parts: Vec<(PipelineId, Profiles)>) -> Answer {
        let mut samples = Vec::with_capacity(parts.len());
        let mut named = Vec::with_capacity(parts.len());
        for (pipeline, profiles) in parts {
            let name = pipeline.to_string();
            samples.push((pipeline, profiles.sample_count() as u64));
            named.push(Part { name, profiles });
        }
        match self.fan_out.consume_parts(batch, named).await {
            Ok(Ok(())) => {
                // A refused batch is sent again, or to other pipelines.
                for (pipeline, samples) in samples {
                    self.produced(&pipeline).inc_by(samples);
                }
                Ok(())
            }
            Ok(Err(refusal)) => Err(refusal),
            Err((batch, unknown)) => batch.refuse(Refusal::retry(unknown)),
        }
    }
}
