//! Refuses batches while this process uses too much memory.
//!
//! As the first processor of a pipeline it answers "retry later", so that clients keep what does not fit.
//! Memory usage is read when a batch arrives and the last reading is too old, so an idle agent is
//! not woken up. Servers apply the same limit before they read or decompress a request
//! ([`Admission`]).

mod config;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use profcol_admission::{Admission, available_memory};
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, ComponentStatus, Consumer, Factory, IntCounter,
    Processor, Refusal, Stability, Status,
};

pub use self::config::MemoryLimiterConfig;

const MIB: u64 = 1024 * 1024;

pub struct MemoryLimiter {
    thresholds: Thresholds,
    check_interval: Duration,
    admission: Admission,
    refusing: AtomicBool,
    refused: IntCounter,
    status: ComponentStatus,
}

/// Resident memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Thresholds {
    /// Batches are refused above it.
    soft: u64,
    hard: u64,
}

impl Factory for MemoryLimiter {
    const NAME: &'static str = "memory_limiter";
    const STABILITY: Stability = Stability::Beta;
    type Config = MemoryLimiterConfig;
    type Component = dyn Processor;

    fn build(
        config: &MemoryLimiterConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        let total = available_memory()
            .ok_or_else(|| BuildError::new("failed to read the memory size from /proc/meminfo"))?;
        let thresholds = Thresholds::new(config, total);
        Ok(Box::new(MemoryLimiter::new(config, thresholds, context)))
    }
}

impl MemoryLimiter {
    fn new(config: &MemoryLimiterConfig, thresholds: Thresholds, context: &BuildContext) -> Self {
        context.admission.lower_limit(thresholds.soft);
        let id = context.id.to_string();
        Self {
            thresholds,
            check_interval: config.check_interval.into(),
            admission: context.admission.clone(),
            refusing: AtomicBool::new(false),
            refused: context.meter.counter(
                "otelcol_processor_refused_profile_samples",
                "Samples refused because of high memory usage.",
                &[("processor", &id)],
            ),
            status: context.status.clone(),
        }
    }

    fn refuses_now(&self) -> bool {
        if let Some(used) = self.admission.memory_in_use(self.check_interval) {
            self.judge(used);
        }
        self.refusing.load(Ordering::Relaxed)
    }

    fn judge(&self, used: u64) {
        let refuse = used >= self.thresholds.soft;
        if self.refusing.swap(refuse, Ordering::Relaxed) == refuse {
            return;
        }
        let (used_mib, limit_mib) = (used / MIB, self.thresholds.hard / MIB);
        if refuse {
            tracing::warn!(
                used_mib,
                limit_mib,
                "Memory usage is above soft limit. Refusing data."
            );
            let state = format!("refusing data: {used_mib} MiB in use of {limit_mib} MiB");
            self.status.set(Status::RecoverableError(state.into()));
        } else {
            tracing::info!(
                used_mib,
                limit_mib,
                "Memory usage back within limits. Resuming."
            );
            self.status.set(Status::Ok);
        }
    }
}

#[async_trait]
impl Processor for MemoryLimiter {
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        if self.refuses_now() {
            self.refused.inc_by(batch.profiles.sample_count() as u64);
            let reason = "data refused due to high memory usage";
            return batch.refuse(Refusal::retry_after(reason, self.check_interval));
        }
        next.consume(batch).await
    }
}

impl Thresholds {
    fn new(config: &MemoryLimiterConfig, total: u64) -> Self {
        let share = |percentage: u32| total / 100 * u64::from(percentage);
        let (hard, spike) = if config.limit_mib > 0 {
            (
                u64::from(config.limit_mib) * MIB,
                u64::from(config.spike_limit_mib) * MIB,
            )
        } else {
            (
                share(config.limit_percentage),
                share(config.spike_limit_percentage),
            )
        };
        let spike = if spike == 0 { hard / 5 } else { spike };
        Self {
            soft: hard.saturating_sub(spike),
            hard,
        }
    }
}
