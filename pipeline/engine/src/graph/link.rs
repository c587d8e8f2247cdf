//! Connections between components, which a reload moves while batches pass.
//!
//! Each connection counts the calls to its target. A component that leaves the pipelines is stopped once nothing points
//! to it and its calls have ended.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::RwLock;
use profcol_component::{Answer, Batch, Consumer, Outcome, Refusal};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The calls to one component in flight.
#[derive(Clone, Default)]
pub(crate) struct Calls(TaskTracker);

/// A consumer and its calls.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) consumer: Arc<dyn Consumer>,
    pub(crate) calls: Calls,
}

/// A connection to one consumer.
#[derive(Default)]
pub(crate) struct Link(RwLock<Option<Target>>);

/// Holds batches while the exporter behind it is replaced by one that cannot run at the same time.
pub(crate) struct Gate(watch::Sender<Option<Target>>);

/// Replaces an exporter that a reload removed.
pub(crate) struct RemovedExporter;

// === impl Calls ===

impl Calls {
    pub(crate) fn begin(&self) -> TaskTrackerToken {
        self.0.token()
    }

    /// Resolves when there are none. Nothing may point to the component any more.
    pub(crate) async fn ended(&self) {
        self.0.close();
        self.0.wait().await;
    }
}

// === impl Target ===

impl Target {
    pub(crate) fn new(consumer: Arc<dyn Consumer>, calls: &Calls) -> Self {
        Self {
            consumer,
            calls: calls.clone(),
        }
    }
}

// === impl Link ===

impl Link {
    pub(crate) fn set(&self, target: Target) {
        *self.0.write() = Some(target);
    }
}

#[async_trait]
impl Consumer for Link {
    async fn consume(&self, batch: Batch) -> Answer {
        // The call begins under the lock, so that a reload that moves the link knows about it.
        let target = (self.0.read().as_ref())
            .map(|target| (Arc::clone(&target.consumer), target.calls.begin()));
        match target {
            Some((consumer, _call)) => consumer.consume(batch).await,
            None => batch.refuse(Refusal::retry("the pipeline is not connected yet")),
        }
    }
}

// === impl Gate ===

impl Gate {
    pub(crate) fn closed() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(None)))
    }

    /// Passes the waiting batches on.
    pub(crate) fn open(&self, target: Target) {
        self.0.send_replace(Some(target));
    }
}

#[async_trait]
impl Consumer for Gate {
    async fn consume(&self, batch: Batch) -> Answer {
        let mut opened = self.0.subscribe();
        let target = match opened.wait_for(Option::is_some).await {
            Ok(target) => {
                (target.as_ref()).map(|target| (Arc::clone(&target.consumer), target.calls.begin()))
            }
            Err(_closed) => None,
        };
        match target {
            Some((consumer, _call)) => consumer.consume(batch).await,
            None => batch.refuse(Refusal::retry("the exporter is being replaced")),
        }
    }
}

#[async_trait]
impl Consumer for RemovedExporter {
    async fn consume(&self, batch: Batch) -> Answer {
        batch.finalizers.settle(Outcome::Delivered);
        Ok(())
    }
}
