//! What a component is.
//!
//! All four kinds live the same life: *build* wires (no file, no socket, no task), *start* opens
//! what is needed and fails loudly, *run* works until it is told to stop and cleans up. The engine
//! starts exporters first and receivers last, and stops them the other way round.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use prometheus::IntCounter;

use crate::registry::Handles;
use crate::{Answer, Batch, BatchId, Check, Delivered, Delivery, Meter, Refusal, Stop};

/// Why a component could not start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// Why a component ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(pub String);

/// Takes batches and answers for them.
#[async_trait]
pub trait Consumer: Send + Sync {
    async fn consume(&self, batch: Batch) -> Answer;
}

/// Brings profiles in. Only it knows when data comes, so it owns its loop.
#[async_trait]
pub trait Receiver: Send + 'static {
    /// Opens ports and files; called after everything downstream is ready.
    async fn start(&mut self) -> Result<(), StartError> {
        Ok(())
    }

    /// Looks at what it will need, in the place of [`start`](Self::start): sends nothing, changes nothing.
    async fn check(&mut self) -> Vec<Check> {
        Vec::new()
    }

    /// Works until `stop`, then takes in nothing new, finishes what it has taken and returns.
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError>;
}

/// Looks at, changes, holds back or drops what passes.
#[async_trait]
pub trait Processor: Send + Sync + 'static {
    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Looks at what it will need, in the place of [`start`](Self::start): sends nothing, changes nothing.
    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    /// Handles one batch, called by several senders at once. Whoever drops a batch on purpose
    /// settles its finalizers; whoever holds it back answers for it later through them.
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer;

    /// Samples (as their source counts them) that it accepted and, now that it has stopped, did not
    /// pass on, other than those that it removes on purpose.
    fn lost_samples(&self) -> u64 {
        0
    }

    /// Work beside the batches: timers. After `stop` no batch comes any more; what is held back is
    /// to be passed on before returning.
    async fn run(self: Arc<Self>, _next: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// Delivers profiles to one place. Queue, retry and timeout are the engine's.
#[async_trait]
pub trait Exporter: Send + Sync + 'static {
    /// How the engine is to queue, time and repeat for this exporter.
    fn delivery(&self) -> Delivery;

    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Looks at what it will need, in the place of [`start`](Self::start): sends nothing, changes nothing.
    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    /// What whoever runs the pipelines in its own process may look at.
    fn offer(self: Arc<Self>, _handles: &mut Handles) {}

    /// Delivers one batch, called by several consumers at once.
    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal>;

    /// Work beside the batches: rotation, flushing by time. After `stop` nothing is exported any
    /// more; what is still buffered is to be written before returning.
    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// Runs beside the pipelines and offers something to their components.
#[async_trait]
pub trait Extension: Send + Sync + 'static {
    /// What other components may ask for by this extension's id.
    fn offer(self: Arc<Self>, _handles: &mut Handles) {}

    async fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        Ok(())
    }
}

/// Where a receiver puts its batches; counts what was accepted and what was refused.
#[derive(Clone)]
pub struct Output {
    next: Arc<dyn Consumer>,
    meter: Meter,
    receiver: Arc<str>,
    totals: Arc<ReceiverTotals>,
    assigns_ids: bool,
    /// Made at the first use, or when the transport is told: most receivers have one to tell.
    counts: OnceLock<Counts>,
}

/// What a receiver took in, for the balance when everything has stopped.
#[derive(Default)]
pub struct ReceiverTotals {
    passed_on: AtomicU64,
    source: OnceLock<Box<dyn Fn() -> SourceCounts + Send + Sync>>,
}

/// What became of the samples of a source before they reached the pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// All that there were.
    pub taken: u64,
    /// Those that nobody wants.
    pub excluded: u64,
    /// Those for which there was no room on their way to the receiver.
    pub lost: u64,
    /// Those that the pipelines did not take.
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
            assigns_ids: false,
            counts: OnceLock::new(),
        }
    }

    /// Gives batches that clients may send again an [id](BatchId) by their content: where there are
    /// several destinations, one may take a batch and another refuse it.
    pub fn assigning_ids(mut self, assigns_ids: bool) -> Self {
        self.assigns_ids = assigns_ids;
        self
    }

    pub fn totals(&self) -> Arc<ReceiverTotals> {
        Arc::clone(&self.totals)
    }

    /// Where the counts of a source stand that samples by itself.
    pub fn count_source(&self, read: impl Fn() -> SourceCounts + Send + Sync + 'static) {
        // A receiver has one source.
        let _ = self.totals.source.set(Box::new(read));
    }

    /// The same output, its counts labelled with how the data came in: `grpc`, `http`, `file`.
    pub fn for_transport(&self, transport: &str) -> Self {
        Self {
            counts: Counts::new(&self.meter, &self.receiver, transport).into(),
            ..self.clone()
        }
    }

    pub async fn push(&self, mut batch: Batch) -> Answer {
        let samples = batch.profiles.sample_count() as u64;
        let source_samples = batch.source_samples();
        if self.assigns_ids && batch.id.is_none() {
            batch.id = Some(BatchId::of_content(&batch.profiles.body()));
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

    /// Counts samples that this receiver itself had to drop, such as damaged ones.
    pub fn count_failed(&self, samples: u64) {
        self.counts().failed.inc_by(samples);
    }

    fn counts(&self) -> &Counts {
        self.counts
            .get_or_init(|| Counts::new(&self.meter, &self.receiver, ""))
    }
}

impl ReceiverTotals {
    /// Samples that the pipelines took.
    pub fn passed_on(&self) -> u64 {
        self.passed_on.load(Ordering::Relaxed)
    }

    /// None of a receiver whose samples come from elsewhere.
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
