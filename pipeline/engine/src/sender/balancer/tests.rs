//! Scripted destinations that fail, leave and come, on the paused clock: each sample arrives once, delayed by no other.

mod stored;

use std::collections::HashMap;
use std::time::Duration;

use profcol_component::testkit::{Sink, profiles, wait_until};
use profcol_component::{
    BatchId, Delivered, DeliverySettings, Finalizer, QueueSettings, Refusal, RetrySettings,
    StatusBoard, Taps,
};
use profcol_config::Duration as ConfigDuration;
use profcol_profile::{KeyValue, Resource};
use profcol_storage::Storage;

use super::super::tests::{closing, error_on, progress_waits_for};
use super::*;

/// An exporter whose destinations a test changes. The attribute `to` of a resource names one; resources for others go to
/// the first.
pub(in crate::sender) struct Divided {
    pub(in crate::sender) delivery: Delivery,
    pub(in crate::sender) published: watch::Sender<Arc<Destinations>>,
}

#[async_trait]
impl Exporter for Divided {
    fn delivery(&self) -> Delivery {
        self.delivery.clone()
    }

    fn destinations(&self) -> Option<watch::Receiver<Arc<Destinations>>> {
        Some(self.published.subscribe())
    }

    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Err(Refusal::permanent("it has destinations"))
    }
}

/// A destination.
struct Target {
    name: &'static str,
    sink: Arc<Sink>,
}

impl Target {
    fn new(name: &'static str, sink: Sink) -> Self {
        let sink = Arc::new(sink);
        Self { name, sink }
    }

    fn good(name: &'static str) -> Self {
        Self::new(name, Sink::default())
    }

    /// Refuses everything for now.
    fn dead(name: &'static str) -> Self {
        Self::new(
            name,
            Sink::refusing((0..100_000).map(|_| Refusal::retry("down"))),
        )
    }

    fn samples(&self) -> usize {
        self.sink.accepted().iter().sum()
    }
}

fn destinations(targets: &[&Target]) -> Arc<Destinations> {
    let mut sinks = targets
        .iter()
        .map(|it| Arc::clone(&it.sink) as Arc<dyn Exporter>);
    let names: HashMap<_, _> = targets
        .iter()
        .enumerate()
        .map(|(at, it)| (it.name, at))
        .collect();
    let first = sinks.next().expect("a destination");
    Arc::new(Destinations::new(first, sinks, move |attributes| {
        let to = attributes.iter().find(|it| &*it.key == "to");
        let name = to.and_then(|it| it.value.as_str()).unwrap_or_default();
        names.get(name).copied().unwrap_or_default()
    }))
}

/// A batch with a resource for each of these destinations, with this many samples.
fn batch_to(parts: &[(&str, usize)]) -> Batch {
    let parts = parts.iter().map(|&(to, samples)| {
        let mut part = profiles(samples);
        part.update_resources(|resource| {
            *resource = Resource {
                attributes: vec![KeyValue::new("to", to)],
                ..Resource::default()
            };
            true
        });
        part
    });
    Batch::new(Profiles::merge(parts))
}

fn queued(change: impl FnOnce(&mut QueueSettings)) -> Delivery {
    let mut settings = DeliverySettings::default();
    settings.retry_on_failure.max_elapsed_time = ConfigDuration::from_secs(0);
    change(&mut settings.sending_queue);
    settings.delivery()
}

/// The caller gets the answer of the first attempt.
fn inline() -> Delivery {
    let retry = RetrySettings {
        enabled: false,
        ..RetrySettings::default()
    };
    Delivery {
        queue: None,
        retry,
        ..queued(|_| {})
    }
}

/// A running sender.
struct Rig {
    exporter: Arc<Divided>,
    sender: Arc<Sender>,
    meter: Meter,
    board: StatusBoard,
    running: JoinSet<()>,
}

impl Rig {
    async fn new(delivery: Delivery, targets: &[&Target]) -> Self {
        Self::with_storage(None, delivery, targets).await
    }

    async fn with_storage(
        storage: Option<Arc<Storage>>,
        delivery: Delivery,
        targets: &[&Target],
    ) -> Self {
        let published = watch::Sender::new(destinations(targets));
        let exporter = Arc::new(Divided {
            delivery,
            published,
        });
        let (meter, board) = (Meter::default(), StatusBoard::default());
        let exporting = Arc::clone(&exporter) as Arc<dyn Exporter>;
        let status = board.component("exporter divided".to_owned());
        status.started();
        let taps = Taps::default();
        let sender = Sender::new(exporting, "divided", &meter, &status, storage, &taps);
        sender.open().await.unwrap();
        let mut running = JoinSet::new();
        running.spawn(Arc::clone(&sender).run());
        Self {
            exporter,
            sender,
            meter,
            board,
            running,
        }
    }

    /// Changes the destinations, and waits until they are in use.
    async fn change(&self, targets: &[&Target]) {
        let new = destinations(targets);
        self.exporter.published.send_replace(Arc::clone(&new));
        let balancer = self.sender.balancer.as_ref().unwrap();
        wait_until("the destinations to change", async || {
            Arc::ptr_eq(&balancer.table().destinations, &new)
        })
        .await;
    }

    async fn send(&self, parts: &[(&str, usize)]) -> Answer {
        self.sender.consume(batch_to(parts)).await
    }

    /// Until nothing waits.
    async fn settle(&self) {
        wait_until("everything to be delivered", async || {
            self.sender.progress().waiting == 0
        })
        .await;
    }

    async fn stop(mut self) -> String {
        self.sender.close(closing(Duration::from_secs(20)));
        while self.running.join_next().await.is_some() {}
        self.sender.balance().to_string()
    }

    fn queue_size(&self) -> f64 {
        let size = "otelcol_exporter_queue_size";
        self.meter.gauge(size, "", &[("exporter", "divided")]).get()
    }
}

#[tokio::test(start_paused = true)]
async fn each_resource_reaches_its_destination() {
    let (a, b) = (Target::good("a"), Target::good("b"));
    let rig = Rig::new(queued(|_| {}), &[&a, &b]).await;
    rig.send(&[("a", 1), ("b", 2), ("a", 4)]).await.unwrap();
    rig.send(&[("b", 8)]).await.unwrap();
    rig.sender
        .consume(Batch::live(batch_to(&[("a", 16), ("b", 32)]).profiles))
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!((a.samples(), b.samples()), (21, 42));
    assert_eq!(rig.queue_size(), 0.0);
    assert_eq!(rig.stop().await, "divided: delivered=63");
}

#[tokio::test]
async fn the_watchdog_notices_a_deadlock() {
    let (a, b) = (Target::good("a"), Target::good("b"));
    let rig = Rig::new(queued(|_| {}), &[&a, &b]).await;
    let table = rig.sender.balancer.as_ref().unwrap().table();
    let held = table.senders[1].queue.hold_entrance();
    assert!(progress_waits_for(held, &rig.sender));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_part_has_the_same_id_whoever_gets_it() {
    let id = BatchId::unique();
    let mut seen = Vec::new();
    for is_reversed in [false, true] {
        let (a, b) = (Target::good("a"), Target::good("b"));
        let targets = match is_reversed {
            true => [&b, &a],
            false => [&a, &b],
        };
        let rig = Rig::new(queued(|_| {}), &targets).await;
        let divided = batch_to(&[("a", 1), ("b", 1)]).with_id(id);
        rig.sender.consume(divided).await.unwrap();
        let whole = batch_to(&[("b", 1)]).with_id(id);
        rig.sender.consume(whole).await.unwrap();
        rig.settle().await;
        seen.push((a.sink.offered_ids(), b.sink.offered_ids()));
        rig.stop().await;
    }
    let [(a, b), others] = &seen[..] else {
        unreachable!("two runs")
    };
    assert_eq!((a, b), (&others.0, &others.1));
    assert_eq!((a.len(), b.len()), (1, 2));
    assert_eq!(b.iter().filter(|it| **it == id).count(), 1);
    assert!(!a.contains(&id) && !b.contains(&a[0]), "{a:?} {b:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_destination_does_not_delay_the_others() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let delivery = queued(|queue| queue.queue_size = 4);
    let rig = Rig::new(delivery, &[&a, &dead]).await;
    let mut refused = 0;
    for _ in 0..20 {
        let batch = batch_to(&[("a", 1), ("dead", 1)]).with_resend_id(BatchId::unique());
        refused += usize::from(rig.sender.consume(batch).await.is_err());
    }
    // Its queue is full; the part of the other was accepted.
    assert_eq!(refused, 16);
    wait_until("the other to get all", async || a.samples() == 20).await;
    let live = Batch::live(batch_to(&[("a", 1), ("dead", 1)]).profiles);
    rig.sender.consume(live).await.unwrap();
    wait_until("the other to get it", async || a.samples() == 21).await;
    let balance = rig.stop().await;
    assert_eq!(balance, "divided: delivered=21 queue_full=1 shutdown=4");
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_a_failing_destination_until_it_is_gone() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let rig = Rig::new(queued(|_| {}), &[&a, &dead]).await;
    rig.send(&[("a", 1), ("dead", 2)]).await.unwrap();
    wait_until("an error", async || error_on(&rig.board).is_some()).await;
    rig.send(&[("a", 4)]).await.unwrap();
    wait_until("the other to get all", async || a.samples() == 5).await;
    assert_eq!(error_on(&rig.board).as_deref(), Some("down"));
    rig.change(&[&a]).await;
    wait_until("its end", async || error_on(&rig.board).is_none()).await;
    assert_eq!(rig.stop().await, "divided: delivered=7");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_removed_destination_goes_to_others() {
    let (a, b, dead) = (Target::good("a"), Target::good("b"), Target::dead("dead"));
    let delivery = queued(|queue| queue.num_consumers = 2);
    let rig = Rig::new(delivery, &[&a, &b, &dead]).await;
    let mut outcomes = Vec::new();
    for _ in 0..10 {
        let mut batch = batch_to(&[("dead", 1), ("b", 1)]);
        let outcome = Arc::new(Mutex::new(None));
        outcomes.push(Arc::clone(&outcome));
        let report = move |it| *outcome.lock() = Some(it);
        batch.finalizers.add(Finalizer::new(report));
        rig.sender.consume(batch).await.unwrap();
    }
    wait_until("attempts to fail", async || dead.sink.offered() >= 2).await;
    rig.change(&[&a, &b]).await;
    rig.settle().await;
    assert_eq!((a.samples(), b.samples()), (10, 10));
    let delivered = |it: &Arc<Mutex<_>>| *it.lock() == Some(Outcome::Delivered);
    assert!(outcomes.iter().all(delivered));
    assert_eq!(rig.queue_size(), 0.0);
    assert_eq!(rig.stop().await, "divided: delivered=20");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_for_its_next_attempt_moves_without_one() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let rig = Rig::new(queued(|_| {}), &[&a, &dead]).await;
    rig.send(&[("dead", 1)]).await.unwrap();
    wait_until("an attempt to fail", async || dead.sink.offered() == 1).await;
    rig.change(&[&a]).await;
    rig.settle().await;
    assert_eq!((a.samples(), dead.sink.offered()), (1, 1));
    assert_eq!(rig.stop().await, "divided: delivered=1");
}

#[tokio::test(start_paused = true)]
async fn an_export_in_flight_is_not_repeated() {
    let slow = Sink::default().taking(Duration::from_secs(3));
    let (a, slow) = (Target::good("a"), Target::new("slow", slow));
    let rig = Rig::new(queued(|queue| queue.num_consumers = 1), &[&a, &slow]).await;
    rig.send(&[("slow", 1)]).await.unwrap();
    rig.send(&[("slow", 2)]).await.unwrap();
    wait_until("an export to begin", async || slow.sink.offered() == 1).await;
    rig.change(&[&a]).await;
    // The second does not wait for the first.
    wait_until("the next to move", async || a.samples() == 2).await;
    assert_eq!(slow.samples(), 0);
    rig.settle().await;
    assert_eq!((a.samples(), slow.samples()), (2, 1));
    assert_eq!(rig.stop().await, "divided: delivered=3");
}

#[tokio::test(start_paused = true)]
async fn a_resend_brings_nothing_twice_though_destinations_have_changed() {
    let (a, b, dead) = (Target::good("a"), Target::good("b"), Target::dead("dead"));
    let rig = Rig::new(inline(), &[&a, &b, &dead]).await;
    let batch = || {
        let id = BatchId::of_content(b"the same");
        batch_to(&[("dead", 1), ("b", 2), ("a", 4)]).with_resend_id(id)
    };
    let refusal = rig.sender.consume(batch()).await.unwrap_err();
    assert_eq!(refusal, Refusal::retry("down"));
    assert_eq!((a.samples(), b.samples()), (4, 2));
    // What `b` has accepted would now go to the first.
    rig.change(&[&a]).await;
    rig.sender.consume(batch()).await.unwrap();
    assert_eq!((a.samples(), b.samples()), (5, 2));
    rig.sender.consume(batch()).await.unwrap();
    assert_eq!(a.samples(), 12, "another batch with the same content");
    rig.stop().await;
}

/// A processor may drop a resource, or learn more about it, between two attempts.
#[tokio::test(start_paused = true)]
async fn a_resent_batch_with_other_resources_is_sent_whole() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let rig = Rig::new(inline(), &[&a, &dead]).await;
    let id = BatchId::of_content(b"the same");
    let first = batch_to(&[("a", 1), ("dead", 2)]).with_resend_id(id);
    rig.sender.consume(first).await.unwrap_err();
    rig.change(&[&a]).await;
    let second = batch_to(&[("dead", 2)]).with_resend_id(id);
    rig.sender.consume(second).await.unwrap();
    assert_eq!(a.sink.accepted(), [1, 2]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn moved_batches_do_not_let_queues_grow() {
    let targets = ["a", "b", "c", "d"].map(Target::dead);
    let rig = Rig::new(queued(|queue| queue.queue_size = 3), &[&targets[0]]).await;
    let mut accepted = 0;
    for target in &targets {
        rig.change(&[target]).await;
        for _ in 0..5 {
            accepted += usize::from(rig.send(&[("any", 1)]).await.is_ok());
        }
    }
    assert_eq!(accepted, 3);
    assert_eq!(rig.queue_size(), 3.0);
    let good = Target::good("good");
    rig.change(&[&good]).await;
    rig.settle().await;
    assert_eq!(good.samples(), 3);
    rig.send(&[("any", 1)]).await.unwrap();
    assert_eq!(rig.stop().await, "divided: delivered=4");
}

/// A batch may have been divided, and have its place, before its destination goes.
#[tokio::test(start_paused = true)]
async fn a_batch_on_its_way_to_a_removed_destination_moves_too() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let rig = Rig::new(queued(|_| {}), &[&a, &dead]).await;
    let balancer = rig.sender.balancer.as_ref().unwrap();
    let sender = Arc::clone(&balancer.table().senders[1]);
    let batch = batch_to(&[("dead", 1)]);
    let slot = sender.reserve(&batch).await.unwrap();
    rig.change(&[&a]).await;
    sender.enqueue(batch, slot).await;
    sender.consume(batch_to(&[("dead", 2)])).await.unwrap();
    let live = Batch::live(batch_to(&[("dead", 4)]).profiles);
    sender.consume(live).await.unwrap();
    rig.settle().await;
    assert_eq!((a.samples(), dead.sink.offered()), (7, 0));
    assert_eq!(rig.queue_size(), 0.0);
    assert_eq!(rig.stop().await, "divided: delivered=7");
}

#[tokio::test(start_paused = true)]
async fn removed_destinations_are_forgotten() {
    let (a, b) = (Target::good("a"), Target::good("b"));
    let rig = Rig::new(queued(|_| {}), &[&a]).await;
    for targets in [[&b], [&a]].iter().cycle().take(100) {
        rig.change(targets).await;
        rig.send(&[("any", 1)]).await.unwrap();
        rig.settle().await;
    }
    let balancer = rig.sender.balancer.as_ref().unwrap();
    assert!(balancer.shutdown.lock().removed.len() < 5);
    assert_eq!(rig.stop().await, "divided: delivered=100");
}

#[tokio::test(start_paused = true)]
async fn pieces_of_a_batch_move_too() {
    let too_large = || Refusal::TooLarge {
        reason: "too large".into(),
        limit_bytes: usize::MAX,
    };
    let down = (0..1000).map(|_| Refusal::retry("down"));
    let picky = Sink::refusing(std::iter::once(too_large()).chain(down));
    let (a, picky) = (Target::good("a"), Target::new("picky", picky));
    let rig = Rig::new(queued(|_| {}), &[&a, &picky]).await;
    let whole = batch_to(&[("picky", 40)]);
    rig.sender.consume(whole).await.unwrap();
    wait_until("a piece to fail", async || picky.sink.offered() >= 2).await;
    rig.change(&[&a]).await;
    rig.settle().await;
    assert_eq!(a.samples(), 40);
    assert_eq!(rig.stop().await, "divided: delivered=40");
}

#[tokio::test(start_paused = true)]
async fn what_moves_during_the_shutdown_is_delivered() {
    let failing = Sink::refusing([Refusal::retry("down")]).taking(Duration::from_secs(2));
    let (a, failing) = (Target::good("a"), Target::new("failing", failing));
    let rig = Rig::new(queued(|_| {}), &[&a, &failing]).await;
    rig.send(&[("failing", 7)]).await.unwrap();
    wait_until("an export to begin", async || failing.sink.offered() == 1).await;
    rig.change(&[&a]).await;
    assert_eq!(rig.stop().await, "divided: delivered=7");
    assert_eq!(a.samples(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_the_outcome_of_a_moved_batch() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let rig = Rig::new(queued(|queue| queue.wait_for_result = true), &[&a, &dead]).await;
    let sender = Arc::clone(&rig.sender);
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { sender.consume(batch_to(&[("dead", 3)])).await });
    wait_until("an attempt to fail", async || dead.sink.offered() > 0).await;
    rig.change(&[&a]).await;
    assert_eq!(waiting.join_all().await, [Ok(())]);
    assert_eq!(a.samples(), 3);
    rig.stop().await;
}

/// As connections end, the caller of an unqueued batch learns it, and sends it again.
#[tokio::test(start_paused = true)]
async fn without_a_queue_the_source_of_a_removed_destination_sends_again() {
    let (a, dead) = (Target::good("a"), Target::dead("dead"));
    let delivery = Delivery {
        queue: None,
        ..queued(|_| {})
    };
    let rig = Rig::new(delivery, &[&a, &dead]).await;
    let sender = Arc::clone(&rig.sender);
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { sender.consume(batch_to(&[("dead", 3)])).await });
    wait_until("an attempt to fail", async || dead.sink.offered() > 0).await;
    rig.change(&[&a]).await;
    let refusal = waiting.join_all().await.remove(0).unwrap_err();
    assert!(refusal.is_retryable(), "{refusal}");
    rig.send(&[("dead", 3)]).await.unwrap();
    assert_eq!(a.samples(), 3);
    rig.stop().await;
}
