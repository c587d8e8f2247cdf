//! One batch to several consumers, without copying it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use profcol_component::{Answer, Batch, Consumer};

/// Hands each consumer its own reference to the batch, all at once, so that one that makes its
/// caller wait delays no other.
///
/// The answer is the worst of all. Where one consumer asks to retry, a client that sends the batch
/// again delivers it a second time to those that had taken it: at least once, never less.
pub(crate) struct FanOut {
    consumers: Vec<Arc<dyn Consumer>>,
}

impl FanOut {
    /// One consumer needs no fan-out.
    pub(crate) fn to(mut consumers: Vec<Arc<dyn Consumer>>) -> Arc<dyn Consumer> {
        match consumers.len() {
            1 => consumers.remove(0),
            _ => Arc::new(Self { consumers }),
        }
    }
}

#[async_trait]
impl Consumer for FanOut {
    async fn consume(&self, batch: Batch) -> Answer {
        let answers = self
            .consumers
            .iter()
            .map(|consumer| consumer.consume(batch.clone()));
        let answers = join_all(answers).await;
        batch
            .finalizers
            .settle(profcol_component::Outcome::Delivered);
        let worst = answers
            .into_iter()
            .filter_map(Result::err)
            .reduce(|a, b| a.prevailing(b));
        worst.map_or(Ok(()), Err)
    }
}
