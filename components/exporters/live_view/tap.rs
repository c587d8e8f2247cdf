//! Shows the batches that pass a component.

use std::sync::Arc;
use std::time::Duration;

use profcol_component::{Kind, Passed, Side, TapPoint, TapSubscription, Taps};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::parameters::{BadRequest, Parameters};
use super::passing::{Extract, ShownBatch, shown};
use super::reply::Reply;

pub(super) const PATH: &str = "/api/v1/tap";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// A request ends after this time at the latest.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_BATCHES: usize = 20;
const DEFAULT_RESOURCES: usize = 20;
const MAX_RESOURCES: usize = 1000;
const DEFAULT_SAMPLES: usize = 5;
const MAX_SAMPLES: usize = 100;

/// Which batches to show, and how much of them.
struct Request<'a> {
    kind: Kind,
    id: &'a str,
    pipeline: Option<&'a str>,
    side: Option<Side>,
    batches: usize,
    timeout: Duration,
    extract: Extract,
}

#[derive(Serialize)]
struct Answer {
    batches: Vec<ShownBatch>,
    /// Batches that passed while others were being rendered.
    missed: u64,
}

/// Waits for batches and shows them. The subscription ends with the answer, or when the client disconnects.
pub(super) async fn answer(
    taps: &Taps,
    parameters: &Parameters,
    turns: &Arc<Semaphore>,
) -> Result<Reply, BadRequest> {
    let request = Request::of(parameters)?;
    let subscription = taps.subscribe(|point| request.selects(point))?;
    let deadline = Instant::now() + request.timeout;
    let mut batches = Vec::new();
    while batches.len() < request.batches {
        match timeout_at(deadline, next(&subscription, request.extract, turns)).await {
            Ok(batch) => batches.extend(batch),
            Err(_elapsed) => break,
        }
    }
    let missed = subscription.missed();
    Ok(Reply::json(&Answer { batches, missed }))
}

/// The next batch, if it matches the request.
async fn next(
    subscription: &TapSubscription,
    extract: Extract,
    turns: &Arc<Semaphore>,
) -> Option<ShownBatch> {
    let passed: Passed = subscription.next().await;
    let turn = Arc::clone(turns).acquire_owned().await.ok()?;
    let rendering = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        shown(&passed, extract)
    });
    rendering.await.ok().flatten()
}

impl<'a> Request<'a> {
    fn of(parameters: &'a Parameters) -> Result<Self, BadRequest> {
        let (kind, id) = parameters.component()?;
        let pid = parameters.number("pid")?;
        Ok(Self {
            kind,
            id,
            pipeline: parameters.text("pipeline").filter(|it| !it.is_empty()),
            side: parameters.side()?,
            batches: parameters.bounded("batches", 1, MAX_BATCHES)?,
            timeout: parameters.duration("timeout", DEFAULT_TIMEOUT, MAX_TIMEOUT)?,
            extract: Extract {
                resources: parameters.bounded("resources", DEFAULT_RESOURCES, MAX_RESOURCES)?,
                samples: parameters.bounded("samples", DEFAULT_SAMPLES, MAX_SAMPLES)?,
                pid: pid.map(|pid| i64::try_from(pid).unwrap_or(i64::MAX)),
            },
        })
    }

    fn selects(&self, point: &TapPoint) -> bool {
        let in_pipeline = self.pipeline.is_none()
            || point.pipeline.is_none()
            || self.pipeline == point.pipeline.as_deref();
        point.kind == self.kind
            && point.id == self.id
            && in_pipeline
            && self.side.is_none_or(|side| side == point.side)
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::testkit::batch;
    use profcol_component::{MAX_SUBSCRIPTIONS, SubscribeError, Tap};
    use serde_json::{Value, json};

    use super::*;

    fn tap(taps: &Taps, kind: Kind, pipeline: Option<&str>, side: Side) -> Arc<Tap> {
        taps.tap(TapPoint {
            kind,
            id: "otlp/a".to_owned(),
            pipeline: pipeline.map(str::to_owned),
            side,
        })
    }

    async fn asked(taps: &Taps, query: &str) -> Result<Value, BadRequest> {
        let parameters = Parameters::parse(Some(query));
        let reply = answer(taps, &parameters, &Arc::new(Semaphore::new(1))).await?;
        Ok(serde_json::from_slice(&reply.body).unwrap())
    }

    #[tokio::test]
    async fn shows_what_passes_the_component_in_question() {
        let taps = Taps::default();
        let mut all = Vec::new();
        for pipeline in ["profiles/x", "profiles/y"] {
            for side in [Side::Input, Side::Output] {
                all.push(tap(&taps, Kind::Processor, Some(pipeline), side));
            }
        }
        all.push(tap(&taps, Kind::Receiver, None, Side::Output));
        for (query, expected) in [
            ("component=receiver/otlp/a&batches=1", vec![5]),
            ("component=processor/otlp/a&batches=4", vec![1, 2, 3, 4]),
            (
                "component=processor/otlp/a&pipeline=profiles/y&batches=2",
                vec![3, 4],
            ),
            (
                "component=processor/otlp/a&side=output&batches=2",
                vec![2, 4],
            ),
            ("component=processor/otlp/a&batches=1&samples=1", vec![1]),
        ] {
            let passing = async {
                tokio::task::yield_now().await;
                for (number, tap) in all.iter().enumerate() {
                    tap.pass(&batch(number + 1));
                }
            };
            let (answer, ()) = tokio::join!(asked(&taps, query), passing);
            let answer = answer.unwrap();
            let batches = answer["batches"].as_array().unwrap().iter();
            let samples: Vec<_> = batches.map(|batch| batch["samples"].clone()).collect();
            assert_eq!(samples, expected, "{query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_after_its_time() {
        let taps = Taps::default();
        let _tap = tap(&taps, Kind::Exporter, None, Side::Input);
        for (timeout, seconds) in [("", 5), ("&timeout=1500ms", 1), ("&timeout=10h", 30)] {
            let began = Instant::now();
            let answer = asked(&taps, &format!("component=exporter/otlp/a{timeout}")).await;
            assert_eq!(answer.unwrap(), json!({"batches": [], "missed": 0}));
            assert_eq!(began.elapsed().as_secs(), seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_away_ends_its_subscription() {
        let taps = Taps::default();
        let _tap = tap(&taps, Kind::Exporter, None, Side::Input);
        let soon = Duration::from_millis(10);
        for _ in 0..2 * MAX_SUBSCRIPTIONS {
            let asking = asked(&taps, "component=exporter/otlp/a");
            assert!(tokio::time::timeout(soon, asking).await.is_err());
        }
        assert!(taps.subscribe(|_| true).is_ok());
    }

    #[tokio::test]
    async fn refusals_have_a_reason() {
        let taps = Taps::default();
        let _tap = tap(&taps, Kind::Exporter, None, Side::Input);
        let refused = async |query| match asked(&taps, query).await {
            Err(refused) => (refused.status().as_u16(), refused.to_string()),
            Ok(answer) => (200, answer.to_string()),
        };
        for (query, status, reason) in [
            ("", 400, "the parameter `component` is missing"),
            (
                "component=relabel",
                400,
                "\"relabel\" is not a component: write receiver/ID, processor/ID, connector/ID or exporter/ID, such as processor/relabel",
            ),
            (
                "component=exporter/otlp/a&timeout=5",
                400,
                "`timeout`: time: missing unit in duration \"5\"; write it like 5s",
            ),
            (
                "component=exporter/otlp/a&side=top",
                400,
                "\"top\" is not a side of a component: use input or output",
            ),
            (
                "component=exporter/otlp/b",
                404,
                "there is no such component in the running pipelines",
            ),
        ] {
            assert_eq!(refused(query).await, (status, reason.to_owned()));
        }
        let _subscriptions: Vec<TapSubscription> = (0..MAX_SUBSCRIPTIONS)
            .map(|_| taps.subscribe(|_| true).unwrap())
            .collect();
        let (status, reason) = refused("component=exporter/otlp/a").await;
        assert_eq!((status, reason), (503, SubscribeError::TooMany.to_string()));
    }
}
