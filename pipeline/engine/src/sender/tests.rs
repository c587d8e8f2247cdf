//! A scripted exporter on the paused clock: when attempts are made, who waits for a full queue, and what is counted.

use bytes::Bytes;
use profcol_component::testkit::{Outcomes, Sink, batch, batch_with_outcomes, wait_until};
use profcol_component::{
    DeliverySettings, PartitionSettings, QueueBatchSettings, QueueSettings, RetrySettings, Sizer,
    Status, StatusBoard,
};
use profcol_config::Duration as ConfigDuration;
use profcol_profile::{CompressedWire, Profiles, Validation};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::{Backlog, MAX_BACKLOG_WAIT, MAX_STALLED_WAIT};
use super::*;

pub(super) fn closing(timeout: Duration) -> Closing {
    Closing {
        deadline: Instant::now() + timeout,
        reason: DropReason::Shutdown,
        hands_over: false,
    }
}

/// A status that nobody reads.
pub(super) fn unread_status() -> ComponentStatus {
    StatusBoard::default().component("exporter sink".to_owned())
}

/// The error that a component shows.
pub(super) fn error_on(board: &StatusBoard) -> Option<String> {
    board.snapshot().values().find_map(|status| match status {
        Status::RecoverableError(reason) => Some(reason.to_string()),
        _ => None,
    })
}

/// Whether a look at the progress waits for what is held, so that the watchdog notices a deadlock.
pub(super) fn progress_waits_for<T>(held: T, sender: &Arc<Sender>) -> bool {
    let reading = Arc::clone(sender);
    let reader = std::thread::spawn(move || drop(reading.progress()));
    // Time to end if nothing is in its way.
    std::thread::sleep(Duration::from_millis(100));
    let waits = !reader.is_finished();
    drop(held);
    reader.join().unwrap();
    waits
}

/// A running sender for `sink`.
struct Fixture {
    sink: Arc<Sink>,
    sender: Arc<Sender>,
    meter: Meter,
    board: StatusBoard,
    tasks: JoinSet<()>,
}

impl Fixture {
    fn new(sink: Sink) -> Self {
        let (sink, meter) = (Arc::new(sink), Meter::default());
        let board = StatusBoard::default();
        let status = board.component("exporter sink".to_owned());
        status.started();
        let sender = Sender::new(
            Arc::clone(&sink) as Arc<dyn Exporter>,
            "sink",
            &meter,
            &status,
            None,
            &Taps::default(),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&sender).run());
        Self {
            sink,
            sender,
            meter,
            board,
            tasks,
        }
    }

    async fn finish(mut self) -> (Arc<Sink>, Counted) {
        self.sender.close(closing(SHUTDOWN));
        while self.tasks.join_next().await.is_some() {}
        let count = |name: &str| self.meter.counter(name, "", &[("exporter", "sink")]).get();
        let counted = Counted {
            sent: count("otelcol_exporter_sent_profile_samples"),
            send_failed: count("otelcol_exporter_send_failed_profile_samples"),
            enqueue_failed: count("otelcol_exporter_enqueue_failed_profile_samples"),
        };
        (self.sink, counted)
    }
}

/// Shutdown timeout of a rig.
const SHUTDOWN: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq, Eq)]
struct Counted {
    sent: u64,
    send_failed: u64,
    enqueue_failed: u64,
}

fn queued(change: impl FnOnce(&mut QueueSettings)) -> Delivery {
    let mut settings = DeliverySettings::default();
    settings.retry_on_failure.randomization_factor = 0.0;
    change(&mut settings.sending_queue);
    settings.delivery()
}

fn unqueued(retry: RetrySettings) -> Delivery {
    Delivery {
        timeout: Some(Duration::from_secs(5)),
        retry,
        queue: None,
        passthrough_encoding: None,
    }
}

fn steady_retry() -> RetrySettings {
    RetrySettings {
        randomization_factor: 0.0,
        ..RetrySettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn delivers_queued_batches_and_reports_it() {
    let rig = Fixture::new(Sink::default().with_delivery(queued(|_| {})));
    let (first, outcomes) = batch_with_outcomes(3);
    rig.sender.consume(first).await.unwrap();
    rig.sender.consume(batch(4)).await.unwrap();
    let (sink, counted) = rig.finish().await;
    let mut accepted = sink.accepted();
    accepted.sort_unstable();
    assert_eq!(accepted, [3, 4]);
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    assert_eq!(
        counted,
        Counted {
            sent: 7,
            send_failed: 0,
            enqueue_failed: 0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_why_attempts_fail_until_one_succeeds() {
    let rig = Fixture::new(down(3).with_delivery(queued(|_| {})));
    assert_eq!(error_on(&rig.board), None);
    rig.sender.consume(batch(1)).await.unwrap();
    wait_until("an error", async || error_on(&rig.board).is_some()).await;
    assert_eq!(error_on(&rig.board).as_deref(), Some("down"));
    wait_until("its end", async || error_on(&rig.board).is_none()).await;
    assert_eq!(rig.finish().await.0.accepted(), [1]);
}

/// Decompressing is the one step whose failure a test can cause.
#[tokio::test(start_paused = true)]
async fn samples_that_fail_to_decode_count_as_dropped() {
    let rig = Fixture::new(Sink::default().with_delivery(queued(|_| {})));
    let wire = batch(3).profiles.to_wire();
    let received = Profiles::from_wire(wire, Validation::Reject).unwrap();
    let mut profiles = received.profiles.with_compressed(CompressedWire {
        encoding: "gzip",
        bytes: Bytes::from_static(b"damaged"),
        decompress: |_, _, _| None,
    });
    profiles.keep_for(Some("gzip"));
    rig.sender.consume(Batch::new(profiles)).await.unwrap();
    rig.sender.consume(batch(4)).await.unwrap();
    let sender = Arc::clone(&rig.sender);
    let (_, counted) = rig.finish().await;
    assert_eq!(
        counted,
        Counted {
            sent: 4,
            send_failed: 3,
            enqueue_failed: 0
        }
    );
    assert_eq!(
        sender.balance().to_string(),
        "sink: delivered=4 decode_failed=3"
    );
}

#[tokio::test(start_paused = true)]
async fn waits_at_least_retry_after_between_attempts() {
    let refusals = [
        Refusal::retry("busy"),
        Refusal::retry_after("busy", Duration::from_secs(60)),
        Refusal::retry("busy"),
    ];
    let rig = Fixture::new(Sink::refusing(refusals).with_delivery(unqueued(steady_retry())));
    let began = Instant::now();
    rig.sender.consume(batch(1)).await.unwrap();
    // 5 s, then what the server asked for instead of 7.5 s, then 11.25 s.
    assert_eq!(
        began.elapsed(),
        Duration::from_millis(5_000 + 60_000 + 11_250)
    );
    assert_eq!(rig.finish().await.0.offered(), 4);
}

#[tokio::test(start_paused = true)]
async fn gives_up_after_max_elapsed_time_with_a_retryable_refusal() {
    let sink = Sink::refusing((0..1000).map(|_| Refusal::retry("down")));
    let rig = Fixture::new(sink.with_delivery(unqueued(steady_retry())));
    let (batch, outcomes) = batch_with_outcomes(2);
    let refusal = rig.sender.consume(batch).await.unwrap_err();
    assert_eq!(refusal, Refusal::retry("no more retries left: down"));
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    let (_, counted) = rig.finish().await;
    assert_eq!(
        counted,
        Counted {
            sent: 0,
            send_failed: 2,
            enqueue_failed: 0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_permanent_refusals() {
    let rig = Fixture::new(
        Sink::refusing([Refusal::permanent("bad")]).with_delivery(unqueued(steady_retry())),
    );
    let (batch, outcomes) = batch_with_outcomes(2);
    assert_eq!(
        rig.sender.consume(batch).await,
        Err(Refusal::permanent("bad"))
    );
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
    assert_eq!(rig.finish().await.0.offered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_attempt_is_retried() {
    let sink = Sink::default().taking(Duration::from_secs(3600));
    let retry = RetrySettings {
        max_elapsed_time: ConfigDuration::from_secs(20),
        max_interval: ConfigDuration::from_secs(10),
        ..steady_retry()
    };
    let rig = Fixture::new(sink.with_delivery(unqueued(retry)));
    let refusal = rig.sender.consume(batch(1)).await.unwrap_err();
    assert!(
        refusal
            .to_string()
            .contains("no response within the timeout of 5s"),
        "{refusal}"
    );
    assert_eq!(rig.finish().await.0.offered(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once_and_counts() {
    let delivery = queued(|queue| {
        queue.queue_size = 2;
        queue.num_consumers = 1;
    });
    let rig = Fixture::new(
        Sink::default()
            .taking(Duration::from_secs(1))
            .with_delivery(delivery),
    );
    for _ in 0..2 {
        rig.sender.consume(batch(1)).await.unwrap();
    }
    let (third, outcomes) = batch_with_outcomes(5);
    assert_eq!(
        rig.sender.consume(third).await,
        Err(Refusal::retry("sending queue is full"))
    );
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    let (sink, counted) = rig.finish().await;
    assert_eq!(sink.accepted(), [1, 1]);
    assert_eq!(
        counted,
        Counted {
            sent: 2,
            send_failed: 0,
            enqueue_failed: 5
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_blocks_with_block_on_overflow() {
    let delivery = queued(|queue| {
        queue.queue_size = 1;
        queue.num_consumers = 1;
        queue.block_on_overflow = true;
    });
    let rig = Fixture::new(
        Sink::default()
            .taking(Duration::from_secs(1))
            .with_delivery(delivery),
    );
    let began = Instant::now();
    for _ in 0..4 {
        rig.sender.consume(batch(1)).await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    assert_eq!(rig.finish().await.0.accepted(), [1, 1, 1, 1]);
}

/// The longest wait of twelve concurrent senders to a queue whose only consumer takes this long per batch.
async fn longest_wait(taking: Duration) -> Duration {
    let sink = Sink::default().taking(taking);
    let rig = Fixture::new(sink.with_delivery(queued(|queue| queue.num_consumers = 1)));
    let mut senders = JoinSet::new();
    for _ in 0..12 {
        let sender = Arc::clone(&rig.sender);
        senders.spawn(async move {
            let began = Instant::now();
            sender.consume(batch(1)).await.unwrap();
            began.elapsed()
        });
    }
    let waits = senders.join_all().await;
    assert_eq!(rig.finish().await.0.accepted(), [1; 12]);
    waits.into_iter().max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn senders_wait_for_their_turn_while_exports_lag() {
    let export = Duration::from_millis(80);
    // One batch is exported, one is next, and two may wait.
    assert_eq!(longest_wait(export).await, 8 * export);
    // Bounded, and no wait without lag.
    assert_eq!(longest_wait(Duration::from_secs(3)).await, MAX_BACKLOG_WAIT);
    assert_eq!(longest_wait(Duration::ZERO).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn no_sender_waits_for_a_queue_without_a_backlog() {
    let wait_of = |end: fn(&Backlog)| async move {
        let backlog = Arc::new(Backlog::holding(0));
        // Batches are stored as a group, and most of them leave before their senders run.
        (0..10).for_each(|_| backlog.add());
        (0..7).for_each(|_| backlog.take());
        let mut senders = JoinSet::new();
        for _ in 0..10 {
            let backlog = Arc::clone(&backlog);
            senders.spawn(async move {
                let began = Instant::now();
                backlog.pace_while_it_moves().await;
                began.elapsed()
            });
        }
        let step = Duration::from_millis(1);
        tokio::time::sleep(step).await;
        end(&backlog);
        let waits = senders.join_all().await;
        assert!(waits.iter().all(|wait| *wait <= step), "{waits:?}");
        assert_eq!(waits.into_iter().max(), Some(step));
    };
    wait_of(Backlog::take).await;
    wait_of(|backlog| backlog.lose(2)).await;
}

#[tokio::test(start_paused = true)]
async fn two_batches_are_no_backlog_and_one_that_stands_still_delays_nobody() {
    let began = Instant::now();
    Backlog::holding(2).pace_while_it_moves().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let backlog = Backlog::holding(3);
    backlog.pace_while_it_moves().await;
    assert_eq!(began.elapsed(), MAX_BACKLOG_WAIT);
    backlog.pace_while_it_moves().await;
    assert_eq!(began.elapsed(), MAX_BACKLOG_WAIT);
}

#[tokio::test(start_paused = true)]
async fn senders_barely_wait_if_nothing_leaves_the_queue() {
    let sink = Sink::default().taking(Duration::from_secs(3600));
    let mut delivery = queued(|queue| queue.num_consumers = 1);
    delivery.timeout = None;
    let rig = Fixture::new(sink.with_delivery(delivery));
    for _ in 0..6 {
        rig.sender.consume(batch(1)).await.unwrap();
    }
    let began = Instant::now();
    rig.sender.consume(batch(1)).await.unwrap();
    assert_eq!(began.elapsed(), MAX_STALLED_WAIT);
}

#[tokio::test]
async fn the_watchdog_notices_a_deadlock() {
    let rig = Fixture::new(Sink::default().with_delivery(queued(|_| {})));
    let held = rig.sender.queue.hold_entrance();
    assert!(progress_waits_for(held, &rig.sender));
    rig.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_the_queue_is_permanently_refused() {
    let delivery = queued(|queue| {
        queue.queue_size = 10;
        queue.sizer = Sizer::Items;
    });
    let rig = Fixture::new(Sink::default().with_delivery(delivery));
    let refusal = rig.sender.consume(batch(11)).await.unwrap_err();
    assert!(!refusal.is_retryable(), "{refusal}");
    rig.sender.consume(batch(10)).await.unwrap();
    assert_eq!(rig.finish().await.0.accepted(), [10]);
}

#[tokio::test(start_paused = true)]
async fn wait_for_result_returns_the_outcome() {
    let delivery = queued(|queue| queue.wait_for_result = true);
    let rig = Fixture::new(Sink::refusing([Refusal::permanent("bad")]).with_delivery(delivery));
    assert!(matches!(
        rig.sender.consume(batch(1)).await,
        Err(Refusal::Permanent { .. })
    ));
    assert_eq!(rig.sender.consume(batch(1)).await, Ok(()));
    let sender = Arc::clone(&rig.sender);
    rig.finish().await;
    // The caller still has the first.
    assert_eq!(sender.balance().dropped, []);
}

fn down(times: usize) -> Sink {
    Sink::refusing((0..times).map(|_| Refusal::retry("down")))
}

#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_waits_and_retries_until_the_deadline() {
    let rig = Fixture::new(down(4).with_delivery(queued(|queue| queue.num_consumers = 1)));
    let (first, outcomes) = batch_with_outcomes(1);
    rig.sender.consume(first).await.unwrap();
    rig.sender.consume(batch(2)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (began, sender) = (Instant::now(), Arc::clone(&rig.sender));
    let (sink, counted) = rig.finish().await;
    // Immediately, then every second.
    assert_eq!(began.elapsed(), 3 * MAX_SHUTDOWN_INTERVAL);
    assert_eq!(sink.accepted(), [1, 2]);
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    assert_eq!((counted.sent, counted.send_failed), (3, 0));
    assert_eq!(sender.balance().dropped, []);
}

#[tokio::test(start_paused = true)]
async fn undelivered_batches_at_shutdown_are_counted_once() {
    let rig = Fixture::new(down(1000).with_delivery(queued(|queue| queue.num_consumers = 1)));
    let (first, outcomes) = batch_with_outcomes(1);
    rig.sender.consume(first).await.unwrap();
    rig.sender.consume(batch(2)).await.unwrap();
    let (began, sender) = (Instant::now(), Arc::clone(&rig.sender));
    let (_, counted) = rig.finish().await;
    assert!(began.elapsed() <= SHUTDOWN, "{:?}", began.elapsed());
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    let balance = sender.balance();
    assert_eq!(
        (balance.delivered, balance.dropped),
        (0, vec![("shutdown", 3)])
    );
    assert_eq!((counted.sent, counted.send_failed), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn batches_of_a_recording_are_not_counted_as_dropped() {
    let refusing = Sink::refusing([Refusal::permanent("no"), Refusal::permanent("no")]);
    let rig = Fixture::new(refusing.with_delivery(queued(|queue| queue.num_consumers = 1)));
    let (recorded, outcomes) = batch_with_outcomes(3);
    let source = Source::Recorded;
    rig.sender
        .consume(Batch { source, ..recorded })
        .await
        .unwrap();
    rig.sender.consume(batch(2)).await.unwrap();
    let sender = Arc::clone(&rig.sender);
    let (_, counted) = rig.finish().await;
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
    let balance = sender.balance();
    assert_eq!(
        (balance.delivered, balance.dropped),
        (0, vec![("rejected", 2)])
    );
    assert_eq!((counted.sent, counted.send_failed), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_the_deadline_gets_one_last_attempt() {
    let busy = Refusal::retry_after("busy", Duration::from_secs(60));
    let busy = [busy.clone(), busy];
    let rig = Fixture::new(Sink::refusing(busy).with_delivery(queued(|_| {})));
    rig.sender.consume(batch(1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.finish().await.0.accepted(), [1]);
}

fn live(samples: usize) -> (Batch, Outcomes) {
    let (batch, outcomes) = batch_with_outcomes(samples);
    let source = Source::Live;
    (Batch { source, ..batch }, outcomes)
}

/// A slow exporter, and a queue with room for two batches.
fn with_two_places(block_on_overflow: bool) -> Fixture {
    let delivery = queued(|queue| {
        queue.queue_size = 2;
        queue.num_consumers = 1;
        queue.block_on_overflow = block_on_overflow;
    });
    let slow = Sink::default().taking(Duration::from_secs(1));
    Fixture::new(slow.with_delivery(delivery))
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts_live_batches() {
    for block_on_overflow in [false, true] {
        let rig = with_two_places(block_on_overflow);
        let began = Instant::now();
        for _ in 0..2 {
            rig.sender.consume(live(1).0).await.unwrap();
        }
        let (third, outcomes) = live(5);
        assert_eq!(rig.sender.consume(third).await, Ok(()));
        assert_eq!(began.elapsed(), Duration::ZERO, "the source was blocked");
        assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
        let sender = Arc::clone(&rig.sender);
        let (sink, counted) = rig.finish().await;
        assert_eq!(sink.accepted(), [1, 1]);
        assert_eq!((counted.sent, counted.enqueue_failed), (2, 5));
        let balance = sender.balance();
        assert_eq!(
            (balance.delivered, balance.dropped),
            (2, vec![("queue_full", 5)])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn live_batches_after_the_stop_count_as_dropped_by_it() {
    for reason in [DropReason::Shutdown, DropReason::Reload] {
        let rig = Fixture::new(Sink::default().with_delivery(queued(|_| {})));
        rig.sender.close(Closing {
            reason,
            ..closing(SHUTDOWN)
        });
        rig.sender.consume(live(5).0).await.unwrap();
        assert_eq!(rig.sender.balance().dropped, [(reason.name(), 5)]);
    }
}

/// As in a thread beside the one that stops.
#[tokio::test(start_paused = true)]
async fn a_batch_that_got_its_place_before_the_stop_has_an_outcome() {
    let rig = Fixture::new(Sink::default().with_delivery(queued(|_| {})));
    let (batch, outcomes) = batch_with_outcomes(3);
    let slot = rig.sender.reserve(&batch).await.unwrap();
    rig.sender.close(closing(SHUTDOWN));
    rig.sender.enqueue(batch, slot).await;
    assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    let sender = Arc::clone(&rig.sender);
    rig.finish().await;
    assert_eq!(sender.balance().dropped, [("shutdown", 3)]);
}

#[tokio::test(start_paused = true)]
async fn the_panic_of_an_export_is_propagated() {
    struct Panicking;
    #[async_trait]
    impl Exporter for Panicking {
        fn delivery(&self) -> Delivery {
            queued(|_| {})
        }

        async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
            panic!("requested by the test")
        }
    }
    let (meter, status, taps) = (Meter::default(), unread_status(), Taps::default());
    let sender = Sender::new(
        Arc::new(Panicking),
        "panicking",
        &meter,
        &status,
        None,
        &taps,
    );
    let mut running = JoinSet::new();
    running.spawn(Arc::clone(&sender).run());
    sender.consume(batch(1)).await.unwrap();
    sender.close(closing(SHUTDOWN));
    let ended = running.join_next().await.unwrap();
    assert!(ended.is_err_and(|error| error.is_panic()));
}

fn with_alternative(samples: usize) -> (Batch, Outcomes) {
    let (batch, outcomes) = live(samples);
    let has_alternative = true;
    (
        Batch {
            has_alternative,
            ..batch
        },
        outcomes,
    )
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_live_batches_that_have_an_alternative() {
    for block_on_overflow in [false, true] {
        let rig = with_two_places(block_on_overflow);
        let began = Instant::now();
        for _ in 0..2 {
            rig.sender.consume(with_alternative(1).0).await.unwrap();
        }
        let (third, outcomes) = with_alternative(5);
        let refused = rig.sender.consume(third).await;
        assert_eq!(refused, Err(Refusal::retry("sending queue is full")));
        assert_eq!(began.elapsed(), Duration::ZERO, "the source was blocked");
        assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
        let sender = Arc::clone(&rig.sender);
        let (sink, counted) = rig.finish().await;
        assert_eq!(sink.accepted(), [1, 1]);
        assert_eq!((counted.sent, counted.enqueue_failed), (2, 5));
        let balance = sender.balance();
        assert_eq!((balance.delivered, balance.dropped), (2, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_a_live_batch_that_has_an_alternative_gets_its_answer() {
    let rig = Fixture::new(down(1).with_delivery(Delivery::inline()));
    let refused = rig.sender.consume(with_alternative(5).0).await;
    assert_eq!(refused, Err(Refusal::retry("down")));
    rig.sender.consume(with_alternative(6).0).await.unwrap();
    let sender = Arc::clone(&rig.sender);
    assert_eq!(rig.finish().await.0.accepted(), [6]);
    let balance = sender.balance();
    assert_eq!((balance.delivered, balance.dropped), (6, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_exporter_without_a_queue_does_not_block_live_sources() {
    let sink = down(2).taking(Duration::from_secs(10));
    let rig = Fixture::new(sink.with_delivery(Delivery::inline()));
    let began = Instant::now();
    for samples in 1..=3 {
        rig.sender.consume(live(samples).0).await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "the source was blocked");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.finish().await.0.accepted(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn rejected_profiles_of_a_batch_are_not_counted_as_sent() {
    struct Partial;
    #[async_trait]
    impl Exporter for Partial {
        fn delivery(&self) -> Delivery {
            queued(|_| {})
        }

        async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
            Ok(Delivered {
                rejected_profiles: 1,
                message: "too old".to_owned(),
                undelivered: Vec::new(),
            })
        }
    }
    let meter = Meter::default();
    let (status, taps) = (unread_status(), Taps::default());
    let sender = Sender::new(Arc::new(Partial), "partial", &meter, &status, None, &taps);
    sender.consume(batch(4)).await.unwrap();
    sender.close(closing(SHUTDOWN));
    Arc::clone(&sender).run().await;
    let count = |name: &str| meter.counter(name, "", &[("exporter", "partial")]).get();
    assert_eq!(count("otelcol_exporter_sent_profile_samples"), 0);
    assert_eq!(count("otelcol_exporter_send_failed_profile_samples"), 4);
    assert_eq!(sender.balance().dropped, [("partial_success", 4)]);
}

#[tokio::test(start_paused = true)]
async fn mentions_retries_only_if_there_were_any() {
    let retry = RetrySettings {
        enabled: false,
        ..steady_retry()
    };
    let rig = Fixture::new(down(1).with_delivery(unqueued(retry)));
    let refusal = rig.sender.consume(batch(1)).await.unwrap_err();
    assert_eq!(refusal, Refusal::retry("down"));
}

#[tokio::test(start_paused = true)]
async fn small_batches_are_merged_in_the_queue_and_large_ones_split() {
    let delivery = queued(|queue| {
        queue.batch = QueueBatchSettings {
            min_size: 10,
            max_size: 12,
            flush_timeout: ConfigDuration::from_millis(200),
            sizer: Sizer::Items,
            partition: PartitionSettings::default(),
        }
        .into();
    });
    let rig = Fixture::new(Sink::default().with_delivery(delivery));
    let (first, outcomes) = batch_with_outcomes(4);
    rig.sender.consume(first).await.unwrap();
    rig.sender.consume(batch(3)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.sink.accepted(), [0; 0]);
    rig.sender.consume(batch(9)).await.unwrap();
    rig.sender.consume(batch(2)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(outcomes.seen(), [Outcome::Delivered]);
    let (sink, counted) = rig.finish().await;
    let accepted = sink.accepted();
    assert_eq!(accepted.len(), 3, "{accepted:?}");
    assert!(
        accepted.iter().all(|samples| *samples <= 12),
        "{accepted:?}"
    );
    assert_eq!(counted.sent, 18);
}

#[tokio::test(start_paused = true)]
async fn large_batches_are_split_by_their_bytes() {
    let whole = batch(200);
    let bytes = whole.profiles.encoded_len();
    let delivery = queued(|queue| {
        queue.batch = QueueBatchSettings {
            min_size: 0,
            max_size: bytes as i64 / 2,
            sizer: Sizer::Bytes,
            ..QueueBatchSettings::default()
        }
        .into();
    });
    let rig = Fixture::new(Sink::default().with_delivery(delivery));
    rig.sender.consume(whole).await.unwrap();
    let (sink, _) = rig.finish().await;
    let accepted = sink.accepted();
    assert!((2..5).contains(&accepted.len()), "{accepted:?}");
    assert_eq!(accepted.iter().sum::<usize>(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_backend_with_a_limit_gets_the_batch_in_pieces() {
    let whole = batch(200);
    let limit_bytes = whole.profiles.encoded_len() / 3;
    let too_large = Refusal::TooLarge {
        reason: "too large".into(),
        limit_bytes,
    };
    let rig = Fixture::new(Sink::refusing([too_large]).with_delivery(unqueued(steady_retry())));
    rig.sender.consume(whole).await.unwrap();
    let (sink, counted) = rig.finish().await;
    assert!(sink.accepted().len() >= 3, "{:?}", sink.accepted());
    assert_eq!(sink.accepted().iter().sum::<usize>(), 200);
    assert_eq!(
        counted,
        Counted {
            sent: 200,
            send_failed: 0,
            enqueue_failed: 0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn permanent_refusals_are_not_shutdown_losses() {
    let sink = Sink::refusing([Refusal::retry("down"), Refusal::permanent("bad")]);
    let rig = Fixture::new(sink.with_delivery(queued(|_| {})));
    rig.sender.consume(batch(3)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let sender = Arc::clone(&rig.sender);
    assert_eq!(rig.finish().await.1.send_failed, 3);
    assert_eq!(sender.balance().dropped, [("rejected", 3)]);
}

/// As with JSON messages, which are larger than the batch.
#[tokio::test(start_paused = true)]
async fn a_batch_within_the_limit_is_still_split() {
    let whole = batch(200);
    for factor in [1, 2] {
        let too_large = || Refusal::TooLarge {
            reason: "too large".into(),
            limit_bytes: whole.profiles.encoded_len() * factor,
        };
        let sink = Sink::refusing([too_large(), too_large()]);
        let rig = Fixture::new(sink.with_delivery(unqueued(steady_retry())));
        rig.sender.consume(whole.clone()).await.unwrap();
        let (sink, counted) = rig.finish().await;
        assert!(sink.accepted().len() >= 3, "{:?}", sink.accepted());
        assert_eq!(sink.accepted().iter().sum::<usize>(), 200);
        assert_eq!(counted.sent, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_always_wants_a_little_less_is_given_up_on() {
    #[derive(Default)]
    struct Dissatisfied(parking_lot::Mutex<Vec<usize>>);
    #[async_trait]
    impl Exporter for Dissatisfied {
        fn delivery(&self) -> Delivery {
            queued(|_| {})
        }

        async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
            self.0.lock().push(batch.profiles.sample_count());
            Err(Refusal::TooLarge {
                reason: "too large".into(),
                limit_bytes: batch.profiles.encoded_len() - 1,
            })
        }
    }
    let exporter = Arc::new(Dissatisfied::default());
    let exporting = Arc::clone(&exporter) as Arc<dyn Exporter>;
    let (meter, status, taps) = (Meter::default(), unread_status(), Taps::default());
    let sender = Sender::new(exporting, "dissatisfied", &meter, &status, None, &taps);
    sender.consume(batch(200)).await.unwrap();
    sender.close(closing(SHUTDOWN));
    Arc::clone(&sender).run().await;
    let exported = exporter.0.lock().clone();
    let large = exported.iter().filter(|samples| **samples > 100);
    assert_eq!(large.count(), 1 + MAX_SPLITS as usize, "{exported:?}");
    assert_eq!(sender.balance().dropped, [("too_large", 200)]);
}

#[tokio::test(start_paused = true)]
async fn an_oversized_sample_is_counted_and_the_rest_delivered() {
    let too_large = Refusal::TooLarge {
        reason: "too large".into(),
        limit_bytes: 1,
    };
    let rig = Fixture::new(Sink::refusing([too_large]).with_delivery(unqueued(steady_retry())));
    let refusal = rig.sender.consume(batch(3)).await.unwrap_err();
    assert!(!refusal.is_retryable(), "{refusal}");
    let (_, counted) = rig.finish().await;
    assert_eq!(
        counted,
        Counted {
            sent: 0,
            send_failed: 3,
            enqueue_failed: 0
        }
    );
}

/// Delivers the first sample of a batch; the first time it refuses the others, each differently.
#[derive(Default)]
struct Piecewise {
    /// With which the others were sent.
    ids: [Option<BatchId>; 4],
    exported: parking_lot::Mutex<Vec<(BatchId, usize)>>,
}

#[async_trait]
impl Exporter for Piecewise {
    fn delivery(&self) -> Delivery {
        unqueued(steady_retry())
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let is_first = self.exported.lock().is_empty();
        let samples = batch.profiles.sample_count();
        self.exported.lock().push((batch.id, samples));
        if !is_first {
            return Ok(Delivered::default());
        }
        let refusals = [
            Refusal::retry("down"),
            Refusal::permanent("no"),
            Refusal::TooLarge {
                reason: "too large".into(),
                limit_bytes: 1,
            },
            Refusal::retry("down"),
        ];
        let pieces = batch.profiles.split(Bound::Samples(1)).pieces;
        let refused = refusals.into_iter().zip(self.ids);
        let undelivered = pieces.into_iter().skip(1).zip(refused);
        let undelivered = undelivered.map(|(profiles, (refusal, id))| Undelivered {
            id,
            profiles,
            refusal,
        });
        Ok(Delivered {
            undelivered: undelivered.collect(),
            ..Delivered::default()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_partly_delivered_batch_only_the_rest_is_resent() {
    let (exporter, meter) = (Arc::new(Piecewise::default()), Meter::default());
    let exporting = Arc::clone(&exporter) as Arc<dyn Exporter>;
    let (status, taps) = (unread_status(), Taps::default());
    let sender = Sender::new(exporting, "pieces", &meter, &status, None, &taps);
    let (whole, outcomes) = batch_with_outcomes(5);
    let began = Instant::now();
    let refusal = sender.consume(whole).await.unwrap_err();
    assert!(!refusal.is_retryable(), "{refusal}");
    assert!(
        began.elapsed() > Duration::ZERO,
        "there is a wait before the retry"
    );
    let samples: Vec<_> = exporter.exported.lock().iter().map(|it| it.1).collect();
    assert_eq!(samples, [5, 2]);
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
    let count = |name: &str| meter.counter(name, "", &[("exporter", "pieces")]).get();
    assert_eq!(count("otelcol_exporter_sent_profile_samples"), 3);
    assert_eq!(count("otelcol_exporter_send_failed_profile_samples"), 2);
}

/// Merged with others, its destination could not recognize it.
#[tokio::test(start_paused = true)]
async fn what_may_have_arrived_is_resent_alone_with_the_same_id() {
    let sent = BatchId::unique();
    let exporter = Arc::new(Piecewise {
        ids: [Some(sent), None, None, None],
        ..Piecewise::default()
    });
    let exporting = Arc::clone(&exporter) as Arc<dyn Exporter>;
    let (status, taps) = (unread_status(), Taps::default());
    let sender = Sender::new(exporting, "pieces", &Meter::default(), &status, None, &taps);
    let (whole, outcomes) = batch_with_outcomes(5);
    let id = whole.id;
    assert!(sender.consume(whole).await.is_err());
    let exported = exporter.exported.lock().clone();
    let [first, second, third] = exported[..] else {
        panic!("{exported:?}");
    };
    assert_eq!((first, second), ((id, 5), (sent, 1)));
    assert_eq!(third.1, 1);
    assert!(![id, sent].contains(&third.0));
    assert_eq!(outcomes.seen(), [Outcome::Rejected]);
}
