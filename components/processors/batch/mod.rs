//! Merges small batches into large ones and splits those that are too large.
//!
//! A batch held back has already been accepted, so it must not be lost. Merged batches wait in an outbox that
//! only the processor's own task empties, so a sender that hangs up loses nothing. While the next consumer
//! refuses, new batches are refused at once; while it is slow, senders wait. Live sources, which can do
//! neither, have their own queue.
//!
//! ```text
//! process ──► accumulator ──(size or timeout: merge, split)──► outbox ──run──► next
//! ```

mod config;
mod resent_recordings;
mod source_queue;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, Limits, Processor, RunError, Sizer,
    Source, Stability, Stop,
};

pub use self::config::BatchConfig;

use self::source_queue::SourceQueue;

pub struct BatchProcessor {
    replayable: SourceQueue,
    live: SourceQueue,
}

// === impl BatchProcessor ===

impl Factory for BatchProcessor {
    const NAME: &'static str = "batch";
    const STABILITY: Stability = Stability::Beta;
    const ANSWERS_EARLY: bool = true;
    type Config = BatchConfig;
    type Component = dyn Processor;

    fn build(
        config: &BatchConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        let queue = |source| SourceQueue::new(source, limits(config), context);
        Ok(Box::new(BatchProcessor {
            replayable: queue(Source::Replayable),
            live: queue(Source::Live),
        }))
    }
}

fn limits(config: &BatchConfig) -> Limits {
    let bound = |size: u32| NonZeroUsize::new(size as usize);
    Limits {
        sizer: Sizer::Items,
        min_size: match (config.timeout.is_zero(), config.send_batch_size) {
            (true, _) => 0,
            (false, 0) => u64::MAX,
            (false, size) => u64::from(size),
        },
        max_samples: bound(config.send_batch_max_size),
        max_bytes: bound(config.send_batch_max_bytes),
        flush_after: (!config.timeout.is_zero()).then(|| config.timeout.into()),
        keys: config.metadata_keys.clone(),
        max_partitions: match config.metadata_cardinality_limit {
            0 => usize::MAX,
            limit => limit as usize,
        },
    }
}

#[async_trait]
impl Processor for BatchProcessor {
    async fn process(&self, batch: Batch, _next: &dyn Consumer) -> Answer {
        match batch.source {
            Source::Replayable | Source::Recorded => self.replayable.add(batch).await,
            Source::Live => self.live.add(batch).await,
        }
    }

    fn lost_samples(&self) -> u64 {
        self.replayable.lost_samples() + self.live.lost_samples()
    }

    async fn run(self: Arc<Self>, next: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        tokio::join!(
            self.replayable.run(&*next, &stop),
            self.live.run(&*next, &stop),
        );
        Ok(())
    }
}
