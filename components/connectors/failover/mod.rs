//! Passes batches to the first pipelines that accept them, by priority.

mod config;
mod levels;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Connector, Factory, Gauge, Pipelines, Refusal,
    Stability,
};
use profcol_config::PipelineId;
use tokio::time::Instant;

pub use self::config::FailoverConfig;
use self::levels::Levels;

pub struct Failover {
    id: String,
    pipelines: Vec<Vec<PipelineId>>,
    levels: Mutex<Levels>,
    level: Gauge,
}

impl Factory for Failover {
    const NAME: &'static str = "failover";
    const STABILITY: Stability = Stability::Alpha;
    type Config = FailoverConfig;
    type Component = dyn Connector;

    fn pipelines(config: &FailoverConfig) -> Vec<(String, PipelineId)> {
        config.named_pipelines()
    }

    fn build(
        config: &FailoverConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Connector>, BuildError> {
        let id = context.id.to_string();
        let levels = Levels::new(config.priority_levels.len(), config.retry_interval.into());
        Ok(Box::new(Failover {
            pipelines: config.priority_levels.clone(),
            levels: Mutex::new(levels),
            level: context.meter.gauge(
                "profcol_failover_level",
                "The priority level that accepted the last batch; 1 is the preferred one.",
                &[("connector", &id)],
            ),
            id,
        }))
    }
}

impl Failover {
    fn accepted(&self, level: usize) {
        self.level.set((level + 1) as f64);
        if self.levels.lock().recover(level) {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "connector",
                level = level + 1,
                "A priority level accepts batches again."
            );
        }
    }

    fn refused(&self, level: usize, refusal: &Refusal) {
        if self.levels.lock().fail(level, Instant::now()) {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "connector",
                level = level + 1,
                error = %refusal,
                "A priority level refuses batches. They go to the next one."
            );
        }
    }
}

#[async_trait]
impl Connector for Failover {
    async fn process(&self, mut batch: Batch, next: &dyn Pipelines) -> Answer {
        let order = self.levels.lock().order(Instant::now());
        let mut waiting = std::mem::take(&mut batch.finalizers);
        // A batch that no level takes says nothing about the levels.
        let mut permanent: Vec<(usize, Refusal)> = Vec::new();
        let mut worst: Option<Refusal> = None;
        for level in order {
            let Some(pipelines) = self.pipelines.get(level) else {
                continue;
            };
            let (finalizers, attempt) = waiting.attempt();
            let copy = Batch {
                finalizers,
                has_alternative: true,
                // What other levels answered is of no concern.
                resend_id: batch.resend_id.map(|id| id.within(&level.to_string())),
                ..batch.clone()
            };
            let refusal = match next.push(copy, pipelines).await {
                Ok(()) => {
                    attempt.accepted();
                    for (level, refusal) in permanent {
                        self.refused(level, &refusal);
                    }
                    self.accepted(level);
                    return Ok(());
                }
                Err(refusal) => refusal,
            };
            waiting = attempt.refused();
            match refusal.is_retryable() {
                true => self.refused(level, &refusal),
                false => permanent.push((level, refusal.clone())),
            }
            worst = Some(match worst {
                Some(worst) => worst.prevailing(refusal),
                None => refusal,
            });
        }
        let refusal = worst.unwrap_or_else(|| Refusal::retry("there is no priority level"));
        waiting.settle(refusal.outcome());
        Err(refusal)
    }
}
