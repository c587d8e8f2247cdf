//! Scripted readings of the memory in use: what is refused from the soft limit on, and what percentages mean.

use std::sync::atomic::AtomicU64;

use profcol_component::testkit::{Sink, batch, batch_with_outcomes, context};
use profcol_component::{Outcome, StatusBoard};
use profcol_config::{Config, Duration as ConfigDuration, Problems};

use super::*;

fn config() -> MemoryLimiterConfig {
    MemoryLimiterConfig {
        check_interval: ConfigDuration::from_millis(1),
        limit_mib: 100,
        ..MemoryLimiterConfig::default()
    }
}

fn limiter(read: fn() -> Option<u64>) -> (MemoryLimiter, BuildContext) {
    let context = BuildContext {
        admission: Admission::with_memory_reader(read, u64::MAX),
        ..context("memory_limiter")
    };
    let thresholds = Thresholds::new(&config(), 0);
    (MemoryLimiter::new(&config(), thresholds, &context), context)
}

#[tokio::test]
async fn accepts_batches_below_the_soft_limit() {
    let (limiter, _) = limiter(|| Some(80 * MIB - 1));
    let sink = Sink::default();
    limiter.process(batch(2), &sink).await.unwrap();
    assert_eq!(sink.accepted(), [2]);
}

#[tokio::test]
async fn refuses_with_a_retry_delay_from_the_soft_limit_on() {
    let (limiter, context) = limiter(|| Some(80 * MIB));
    let sink = Sink::default();
    let (refused, outcomes) = batch_with_outcomes(2);
    let refusal = limiter.process(refused, &sink).await.unwrap_err();
    let interval = Duration::from_millis(1);
    assert_eq!(
        refusal,
        Refusal::retry_after("data refused due to high memory usage", interval)
    );
    assert_eq!(sink.offered(), 0);
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    assert!(matches!(
        context.shared.get::<StatusBoard>().snapshot()["memory_limiter"],
        Status::RecoverableError(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn accepts_batches_again_once_memory_is_free() {
    static READINGS: AtomicU64 = AtomicU64::new(0);
    let read = || {
        Some(if READINGS.fetch_add(1, Ordering::Relaxed) == 0 {
            99 * MIB
        } else {
            MIB
        })
    };
    let (limiter, context) = limiter(read);
    let sink = Sink::default();
    limiter.process(batch(1), &sink).await.unwrap_err();
    tokio::time::advance(Duration::from_millis(2)).await;
    limiter.process(batch(1), &sink).await.unwrap();
    assert_eq!(
        context.shared.get::<StatusBoard>().snapshot()["memory_limiter"],
        Status::Ok
    );
}

#[test]
fn servers_refuse_requests_from_the_soft_limit_on() {
    let (_limiter, context) = limiter(|| Some(70 * MIB));
    context.admission.take(10 << 20).unwrap();
    let refused = context.admission.take(11 << 20).unwrap_err();
    assert_eq!(refused.limit, 80 * MIB);
}

#[test]
fn percentages_refer_to_the_available_memory() {
    let check = |config: MemoryLimiterConfig, soft, hard| {
        let thresholds = Thresholds::new(&config, 1000 * MIB);
        assert_eq!(
            thresholds,
            Thresholds {
                soft: soft * MIB,
                hard: hard * MIB
            }
        );
    };
    let percent = |limit, spike| MemoryLimiterConfig {
        limit_percentage: limit,
        spike_limit_percentage: spike,
        ..MemoryLimiterConfig::default()
    };
    check(percent(50, 20), 300, 500);
    check(percent(50, 0), 400, 500);
    check(
        MemoryLimiterConfig {
            limit_mib: 10,
            spike_limit_mib: 3,
            ..percent(50, 20)
        },
        7,
        10,
    );
}

#[test]
fn validates_the_options() {
    let config = MemoryLimiterConfig {
        limit_mib: 10,
        spike_limit_mib: 20,
        limit_percentage: 200,
        ..MemoryLimiterConfig::default()
    };
    let mut problems = Problems::default();
    Config::validate(&config, &mut problems);
    assert_eq!(
        problems.to_string(),
        "check_interval: 'check_interval' must be greater than zero\n\
         limit_percentage: 'limit_percentage' must be greater than zero and less than or equal to hundred\n\
         spike_limit_mib: 'spike_limit_mib' must be smaller than 'limit_mib'"
    );
}
