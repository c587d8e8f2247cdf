//! Of two pipelines one refuses once: both are offered every batch, and the refusal is the answer.

use profcol_component::testkit::{Sink, SinkPipelines, batch, context};
use profcol_component::{BuildContext, Refusal};

use super::*;

#[tokio::test]
async fn every_pipeline_gets_the_batch_and_the_worst_answer_counts() {
    let full = Sink::refusing([Refusal::retry("sending queue is full")]);
    let next = SinkPipelines::new([("profiles/a", Sink::default()), ("profiles/b", full)]);
    let context = BuildContext {
        pipelines: next.ids(),
        ..context("forward")
    };
    let forward = Forward::build(&ForwardConfig::default(), &context).unwrap();
    let answer = forward.process(batch(3), &next).await;
    assert_eq!(answer, Err(Refusal::retry("sending queue is full")));
    forward.process(batch(4), &next).await.unwrap();
    assert_eq!(next.accepted("profiles/a"), [3, 4]);
    assert_eq!(next.accepted("profiles/b"), [4]);
}
