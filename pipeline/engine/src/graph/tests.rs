use std::time::Duration;

use profcol_component::testkit::{Sink, batch, batch_with_outcomes};
use profcol_component::{Meter, Outcome, Refusal};
use tokio::time::Instant;

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
