//! A fan-out to scripted consumers: a slow one delays no other, the worst answer counts, a resend skips what arrived.

use std::time::Duration;

use profcol_component::testkit::{Sink, batch, batch_with_outcomes, profiles};
use profcol_component::{Answer, Batch, BatchId, Connector, Meter, Outcome, Pipelines, Refusal};
use tokio::time::Instant;

use super::fan_out::{Part, UnknownPipeline};
use super::*;

fn consumers<const N: usize>(sinks: [Sink; N]) -> ([Arc<Sink>; N], Arc<FanOut>) {
    let sinks = sinks.map(Arc::new);
    let fan_out = FanOut::new("test", &Meter::default(), None);
    let branch = |(number, sink): (usize, &Arc<Sink>)| Branch {
        name: number.to_string().into(),
        target: Target::new(Arc::clone(sink) as Arc<dyn Consumer>, &Calls::default()),
    };
    fan_out.set(sinks.iter().enumerate().map(branch).collect());
    (sinks, fan_out)
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_does_not_delay_others() {
    let slow = Sink::default().taking(Duration::from_secs(3));
    let ([slow, fast], fan_out) = consumers([slow, Sink::default()]);
    let pushing = fan_out.consume(batch(2));
    let watching = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(fast.accepted(), [2]);
        assert_eq!(slow.accepted(), [0; 0]);
    };
    let began = Instant::now();
    let (answer, ()) = tokio::join!(pushing, watching);
    answer.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test]
async fn the_worst_answer_wins_and_retry_precedes_permanent() {
    let ([bad, good, busy], fan_out) = consumers([
        Sink::refusing([Refusal::permanent("bad")]),
        Sink::default(),
        Sink::refusing([Refusal::retry("busy")]),
    ]);
    let (batch, outcomes) = batch_with_outcomes(2);
    assert_eq!(fan_out.consume(batch).await, Err(Refusal::retry("busy")));
    assert_eq!(
        (bad.offered(), good.accepted(), busy.offered()),
        (1, vec![2], 1)
    );
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
}

#[tokio::test]
async fn all_copies_share_the_content() {
    let (_, fan_out) = consumers([Sink::default(), Sink::default()]);
    let (batch, outcomes) = batch_with_outcomes(1);
    fan_out.consume(batch).await.unwrap();
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
}

fn parts<const N: usize>(parts: [(&str, usize); N]) -> Vec<Part> {
    let part = |(name, samples): (&str, usize)| Part {
        name: name.to_owned(),
        profiles: profiles(samples),
    };
    parts.into_iter().map(part).collect()
}

#[tokio::test]
async fn a_resent_batch_repeats_only_the_refused_part() {
    let busy = Sink::refusing([Refusal::retry("busy")]);
    let ([a, b, unnamed], fan_out) = consumers([Sink::default(), busy, Sink::default()]);
    let id = BatchId::unique();
    for expected in [false, true] {
        let pushed =
            fan_out.consume_parts(batch(5).with_resend_id(id), parts([("0", 2), ("1", 3)]));
        let answer = pushed.await.map_err(|(_, unknown)| unknown).unwrap();
        assert_eq!(answer.is_ok(), expected);
    }
    assert_eq!((a.accepted(), b.accepted()), (vec![2], vec![3]));
    let (batch, outcomes) = batch_with_outcomes(2);
    let pushed = fan_out.consume_parts(batch, parts([("0", 1), ("gone", 1)]));
    let (batch, unknown) = pushed.await.unwrap_err();
    assert_eq!(unknown, UnknownPipeline("gone".to_owned()));
    assert_eq!(a.offered(), 1, "no part is sent");
    batch.finalizers.settle(Outcome::Undelivered);
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    assert_eq!(unnamed.offered(), 0);
}

/// Passes everything to one pipeline.
struct Pass(PipelineId);

#[async_trait::async_trait]
impl Connector for Pass {
    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> Answer {
        next.push(batch, std::slice::from_ref(&self.0)).await
    }
}

/// Two paths lead to a fan-out of two exporters. The second exporter refuses the first copy.
#[tokio::test]
async fn copies_of_a_batch_on_two_ways_to_a_connector_are_both_delivered() {
    let busy = Sink::refusing([Refusal::retry("busy")]);
    let ([good, busy], exit) = consumers([Sink::default(), busy]);
    let end: PipelineId = "profiles/end".parse().unwrap();
    let fan_out = FanOut::new("test", &Meter::default(), None);
    fan_out.set(vec![Branch {
        name: end.to_string().into(),
        target: Target::new(exit, &Calls::default()),
    }]);
    let node = ConnectorNode::new(Arc::new(Pass(end)), "pass", &Meter::default(), fan_out);
    let way = |id: &str| node.input(&id.parse().unwrap());
    let (first, second) = (way("profiles/1"), way("profiles/2"));
    let batch = batch(3).with_resend_id(BatchId::unique());
    assert!(first.consume(batch.clone()).await.is_err());
    second.consume(batch.clone()).await.unwrap();
    first.consume(batch).await.unwrap();
    assert_eq!((good.accepted(), busy.accepted()), (vec![3, 3], vec![3, 3]));
}
