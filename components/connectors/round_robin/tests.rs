//! Three pipelines take turns, also after one of them refuses a batch.

use profcol_component::testkit::{Sink, SinkPipelines, batch, context};
use profcol_component::{BuildContext, Refusal};

use super::*;

#[tokio::test]
async fn pipelines_take_turns_whatever_they_answer() {
    let full = Sink::refusing([Refusal::retry("sending queue is full")]);
    let next = SinkPipelines::new([
        ("profiles/a", Sink::default()),
        ("profiles/b", full),
        ("profiles/c", Sink::default()),
    ]);
    let context = BuildContext {
        pipelines: next.ids(),
        ..context("round_robin")
    };
    let connector = RoundRobin::build(&RoundRobinConfig::default(), &context).unwrap();
    for samples in 1..=6 {
        let answer = connector.process(batch(samples), &next).await;
        assert_eq!(answer.is_ok(), samples != 2, "{samples}");
    }
    assert_eq!(next.accepted("profiles/a"), [1, 4]);
    assert_eq!(next.accepted("profiles/b"), [5]);
    assert_eq!(next.accepted("profiles/c"), [3, 6]);
}
