//! Scripted pipelines on the paused clock: which priority level gets a batch, and the return to a higher one.

use std::time::Duration;

use profcol_component::testkit::{
    Outcomes, Sink, SinkPipelines, batch_with_outcomes, context, load,
};
use profcol_component::{BuildContext, Outcome};

use super::*;

const THREE: &str =
    "{priority_levels: [[profiles/a, profiles/b], [profiles/c], [profiles/d]], retry_interval: 1m}";

fn full(times: usize) -> Sink {
    Sink::refusing((0..times).map(|_| Refusal::retry("sending queue is full")))
}

fn pipelines(a: Sink, b: Sink, c: Sink, d: Sink) -> SinkPipelines {
    SinkPipelines::new([
        ("profiles/a", a),
        ("profiles/b", b),
        ("profiles/c", c),
        ("profiles/d", d),
    ])
}

fn failover(next: &SinkPipelines) -> Box<dyn Connector> {
    let context = BuildContext {
        pipelines: next.ids(),
        ..context("failover")
    };
    Failover::build(&load(THREE).unwrap(), &context).unwrap()
}

async fn push(
    failover: &dyn Connector,
    samples: usize,
    next: &SinkPipelines,
) -> (Answer, Outcomes) {
    let (batch, outcomes) = batch_with_outcomes(samples);
    let answer = failover.process(batch, next).await;
    (answer, outcomes)
}

#[tokio::test(start_paused = true)]
async fn goes_to_the_next_level_and_returns_after_the_interval() {
    let ok = Sink::default;
    let next = pipelines(ok(), full(2), ok(), ok());
    let failover = failover(&next);
    for samples in [1, 2] {
        let (answer, outcomes) = push(&*failover, samples, &next).await;
        answer.unwrap();
        assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    }
    assert_eq!(next.accepted("profiles/c"), [1, 2]);
    assert_eq!(next.sink("profiles/b").offered(), 1, "passed over");
    for samples in [3, 4] {
        tokio::time::advance(Duration::from_secs(60)).await;
        push(&*failover, samples, &next).await.0.unwrap();
    }
    push(&*failover, 5, &next).await.0.unwrap();
    assert_eq!(next.accepted("profiles/c"), [1, 2, 3]);
    assert_eq!(
        next.accepted("profiles/b"),
        [4, 5],
        "all of a level get a batch"
    );
    assert_eq!(next.accepted("profiles/d"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn refuses_what_no_level_accepts_and_tries_all_again() {
    let next = pipelines(full(1), Sink::default(), full(1), full(1));
    let failover = failover(&next);
    let (answer, outcomes) = push(&*failover, 1, &next).await;
    assert_eq!(answer, Err(Refusal::retry("sending queue is full")));
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    push(&*failover, 2, &next).await.0.unwrap();
    assert_eq!(next.accepted("profiles/a"), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_no_level_can_take_fails_none() {
    let bad = || Sink::refusing([Refusal::permanent("no such type")]);
    let next = pipelines(bad(), Sink::default(), bad(), bad());
    let failover = failover(&next);
    let (answer, outcomes) = push(&*failover, 1, &next).await;
    assert_eq!(answer, Err(Refusal::permanent("no such type")));
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
    push(&*failover, 2, &next).await.0.unwrap();
    assert_eq!(next.accepted("profiles/a"), [2]);
    assert_eq!(next.sink("profiles/c").offered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_counts_if_another_level_accepts() {
    let unauthorized = Sink::refusing([Refusal::permanent("unauthenticated")]);
    let ok = Sink::default;
    let next = pipelines(unauthorized, ok(), ok(), ok());
    let failover = failover(&next);
    push(&*failover, 1, &next).await.0.unwrap();
    push(&*failover, 2, &next).await.0.unwrap();
    assert_eq!(next.accepted("profiles/c"), [1, 2]);
    assert_eq!(next.sink("profiles/a").offered(), 1);
}

#[test]
fn checks_its_options() {
    let refused = |text: &str, expected: &str| {
        assert_eq!(load::<FailoverConfig>(text).unwrap_err(), expected);
    };
    refused("{}", "priority_levels: must have at least one level");
    refused(
        "{priority_levels: [[profiles], []], retry_interval: 0s}",
        "priority_levels::1: must have at least one pipeline\nretry_interval: must be positive",
    );
}
