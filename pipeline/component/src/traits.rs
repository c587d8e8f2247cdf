//! The component traits.
//!
//! All kinds have the same lifecycle: *build* wires (no files, sockets or tasks), *start* opens resources and
//! reports errors, *run* works until stopped and cleans up. The engine starts exporters first and receivers last, and
//! stops them in reverse order.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use profcol_config::PipelineId;
use profcol_profile::Profiles;
use prometheus::IntCounter;
use tokio::sync::watch;

use crate::{
    Answer, Batch, BatchId, Check, Delivered, Delivery, Destinations, Handles, Meter, Refusal, Stop,
};

/// Why a component could not start.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StartError(Box<dyn Error + Send + Sync>);

impl StartError {
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// Why a component ended without a stop request.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RunError(Box<dyn Error + Send + Sync>);

impl RunError {
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// Accepts or refuses batches.
#[async_trait]
pub trait Consumer: Send + Sync {
    async fn consume(&self, batch: Batch) -> Answer;
}

/// A source of profiles. It owns its loop, as only it knows when data arrives.
#[async_trait]
pub trait Receiver: Send + 'static {
    /// Opens ports and files; called after all downstream components started.
    async fn start(&mut self) -> Result<(), StartError> {
        Ok(())
    }

    /// Checks the component's requirements instead of [`start`](Self::start), without sending or changing anything.
    async fn check(&mut self) -> Vec<Check> {
        Vec::new()
    }

    /// Runs until `stop`, then accepts nothing new, finishes what it has accepted and returns.
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError>;
}

/// Inspects, changes, buffers or drops batches.
#[async_trait]
pub trait Processor: Send + Sync + 'static {
    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Checks the component's requirements instead of [`start`](Self::start), without sending or changing anything.
    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    /// Processes one batch; called concurrently. A processor that drops a batch on purpose settles its finalizers; one
    /// that buffers it settles them later.
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer;

    /// Samples (as their source counts them) accepted but not passed on by the time it stopped, except those removed on
    /// purpose.
    fn lost_samples(&self) -> u64 {
        0
    }

    /// Background work such as timers. No batches arrive after `stop`; flush buffered ones before returning.
    async fn run(self: Arc<Self>, _next: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// Delivers profiles to one destination. The engine provides queue, retry and timeout.
#[async_trait]
pub trait Exporter: Send + Sync + 'static {
    /// Queue, timeout and retry settings for the engine.
    fn delivery(&self) -> Delivery;

    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Checks the component's requirements instead of [`start`](Self::start), without sending or changing anything.
    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    /// Handles for code that embeds the pipelines in its own process.
    fn offer(self: Arc<Self>, _handles: &mut Handles) {}

    /// The current destinations of an exporter that divides its batches between several. The engine then delivers to
    /// each of them, by the settings of this exporter, instead of calling [`export`](Self::export). What waits for a
    /// destination that is gone is divided between the others.
    fn destinations(&self) -> Option<watch::Receiver<Arc<Destinations>>> {
        None
    }

    /// Delivers one batch; called concurrently.
    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal>;

    /// Background work such as rotation and timed flushes. Nothing is exported after `stop`; write buffered data before
    /// returning.
    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// Passes batches from the pipelines that it ends to those that it begins. It holds none: batches wait in the queues of
/// exporters.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Passes on one batch; called concurrently. A connector that drops a batch on purpose settles its finalizers.
    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> Answer;

    /// Samples (as their source counts them) removed on purpose.
    fn removed_samples(&self) -> u64 {
        0
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// The pipelines that a connector begins: those of [`BuildContext::pipelines`](crate::BuildContext::pipelines).
#[async_trait]
pub trait Pipelines: Send + Sync {
    /// Passes each pipeline its part of the batch, concurrently, and returns the worst answer.
    ///
    /// The source of a batch with a [resend id](Batch::resend_id) resends it after a retryable refusal; a pipeline that
    /// has given its final answer to its part is then skipped.
    async fn push_parts(&self, batch: Batch, parts: Vec<(PipelineId, Profiles)>) -> Answer;

    /// Passes all of the batch to each of these pipelines.
    async fn push(&self, batch: Batch, pipelines: &[PipelineId]) -> Answer {
        let part = |pipeline: &PipelineId| (pipeline.clone(), batch.profiles.clone());
        let parts = pipelines.iter().map(part).collect();
        self.push_parts(batch, parts).await
    }
}

/// Runs alongside the pipelines and offers services to components.
#[async_trait]
pub trait Extension: Send + Sync + 'static {
    /// Handles that other components get by this extension's id.
    fn offer(self: Arc<Self>, _handles: &mut Handles) {}

    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Checks the component's requirements instead of [`start`](Self::start), without sending or changing anything.
    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// A receiver's output into its pipelines; counts accepted and refused samples.
#[derive(Clone)]
pub struct Output {
    next: Arc<dyn Consumer>,
    meter: Meter,
    receiver: Arc<str>,
    totals: Arc<ReceiverTotals>,
    assigns_ids: Arc<AtomicBool>,
    /// Created on first use or by `for_transport`, so that unlabelled series do not exist next to labelled ones.
    counts: OnceLock<Counts>,
}

/// A receiver's totals, for the balance at shutdown.
#[derive(Default)]
pub struct ReceiverTotals {
    passed_on: AtomicU64,
    source: OnceLock<Box<dyn Fn() -> SourceCounts + Send + Sync>>,
}

/// What happened to a source's samples before the pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// All samples taken.
    pub taken: u64,
    /// Samples excluded by configuration.
    pub excluded: u64,
    /// Samples lost because a buffer was full.
    pub lost: u64,
    /// Samples refused by the pipelines.
    pub dropped: u64,
}

#[derive(Clone)]
struct Counts {
    accepted: IntCounter,
    refused: IntCounter,
    failed: IntCounter,
}

impl Output {
    pub fn new(next: Arc<dyn Consumer>, meter: Meter, receiver: &str) -> Self {
        Self {
            next,
            meter,
            receiver: receiver.into(),
            totals: Arc::default(),
            assigns_ids: Arc::default(),
            counts: OnceLock::new(),
        }
    }

    /// Derives a [resend id](Batch::resend_id) from the content of batches that clients may resend: with several
    /// destinations, one may accept a batch that another refuses. A reload may change the number of destinations.
    pub fn with_batch_ids(mut self, assigns_ids: Arc<AtomicBool>) -> Self {
        self.assigns_ids = assigns_ids;
        self
    }

    pub fn totals(&self) -> Arc<ReceiverTotals> {
        Arc::clone(&self.totals)
    }

    /// Registers the counts of a receiver that samples by itself.
    pub fn set_source_counts(&self, read: impl Fn() -> SourceCounts + Send + Sync + 'static) {
        // Set once: a receiver has one source.
        let _ = self.totals.source.set(Box::new(read));
    }

    /// The same output with a transport label on its counts: `grpc`, `http`, `file`.
    pub fn for_transport(&self, transport: &str) -> Self {
        Self {
            counts: Counts::new(&self.meter, &self.receiver, transport).into(),
            ..self.clone()
        }
    }

    pub async fn push(&self, mut batch: Batch) -> Answer {
        let samples = batch.profiles.sample_count() as u64;
        let source_samples = batch.source_samples();
        if self.assigns_ids.load(Ordering::Relaxed) && batch.resend_id.is_none() {
            batch.resend_id = Some(BatchId::of_content(&batch.profiles.body()));
        }
        let answer = self.next.consume(batch).await;
        match &answer {
            Ok(()) => {
                self.counts().accepted.inc_by(samples);
                self.totals
                    .passed_on
                    .fetch_add(source_samples, Ordering::Relaxed);
            }
            Err(_) => self.counts().refused.inc_by(samples),
        }
        answer
    }

    /// Counts samples the receiver itself dropped, such as corrupt ones.
    pub fn count_failed(&self, samples: u64) {
        self.counts().failed.inc_by(samples);
    }

    fn counts(&self) -> &Counts {
        self.counts
            .get_or_init(|| Counts::new(&self.meter, &self.receiver, ""))
    }
}

impl ReceiverTotals {
    /// Samples accepted by the pipelines.
    pub fn passed_on(&self) -> u64 {
        self.passed_on.load(Ordering::Relaxed)
    }

    /// `None` if the receiver does not sample itself.
    pub fn source(&self) -> Option<SourceCounts> {
        self.source.get().map(|read| read())
    }
}

impl Counts {
    fn new(meter: &Meter, receiver: &str, transport: &str) -> Self {
        let labels: &[(&str, &str)] = &[("receiver", receiver), ("transport", transport)];
        let counter = |name, help| meter.counter(name, help, labels);
        Self {
            accepted: counter(
                "otelcol_receiver_accepted_profile_samples",
                "Samples accepted by the pipelines.",
            ),
            refused: counter(
                "otelcol_receiver_refused_profile_samples",
                "Samples refused by the pipelines.",
            ),
            failed: counter(
                "otelcol_receiver_failed_profile_samples",
                "Samples that the receiver failed to process.",
            ),
        }
    }
}
