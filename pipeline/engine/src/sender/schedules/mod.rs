//! Random schedules on the paused clock: sources that come, wait and give up, a destination that answers, refuses,
//! hangs or takes a part, a shutdown at any time, and with a stored queue the next start. Whatever happens, each sample
//! has one outcome, and no sample arrives twice, unless its batch was cut off by the stop of a stored queue.
//!
//! A failing schedule names its seed, which `PROFCOL_QUEUE_SEED` repeats.

mod divided;
mod power_loss;

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use profcol_component::testkit::{Outcomes, batch_with_outcomes};
use profcol_component::{DeliverySettings, QueueBatchSettings, RetrySettings, Sizer};
use profcol_profile::Profiles;
use profcol_storage::{FsyncPolicy, StorageOptions, WhenFull};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::tests::unread_status;
use super::*;
use crate::simulation::{Seeds, named, samples_of, up_to};

const SEEDS: Seeds = Seeds {
    one: "PROFCOL_QUEUE_SEED",
    count: "PROFCOL_QUEUE_SCHEDULES",
};
const SCHEDULES: u64 = 3_000;
const STORED_SCHEDULES: u64 = 200;

/// Time that the tasks of a sender may take beyond its deadline: they end at it.
const SLACK: Duration = Duration::from_millis(1);

/// A destination that does anything that a real one may do.
struct Destination {
    random: Mutex<Rng>,
    delivery: Delivery,
    faults: Faults,
    /// Samples by the batch that they belong to.
    taken: Mutex<BTreeMap<u64, usize>>,
}

/// Shares of the answers, in percent.
#[derive(Clone, Copy, Default)]
struct Faults {
    retryable: u8,
    permanent: u8,
    too_large: u8,
    partial: u8,
    hanging: u8,
}

/// A batch of a source, and what became of it.
struct Sent {
    id: u64,
    samples: usize,
    is_live: bool,
    answer: Option<Answer>,
    outcomes: Outcomes,
}

#[test]
fn each_sample_has_one_outcome_in_any_schedule() {
    let mut totals = Totals::default();
    SEEDS.each(SCHEDULES, async |seed| {
        let mut random = Rng::with_seed(seed);
        let destination = Arc::new(Destination::any(&mut random));
        let run = run(&mut random, &destination, None, 0).await;
        check(seed, slice::from_ref(&run), &destination.taken.lock());
        check_reasons(seed, &destination.delivery, &run.balance);
        totals.add(&run.balance);
    });
    totals.check();
}

/// The destination changes its ways with each start, and in the end takes everything.
#[test]
fn a_stored_queue_keeps_each_sample_over_any_restarts() {
    let mut recovered = 0;
    SEEDS.each(STORED_SCHEDULES, async |seed| {
        let mut random = Rng::with_seed(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut runs = Vec::new();
        let mut taken = BTreeMap::new();
        for restarts_left in (0..random.u8(1..5)).rev() {
            let mut destination = Destination::any(&mut random);
            destination.taken = Mutex::new(taken);
            if restarts_left == 0 {
                destination.faults = Faults::default();
            }
            let destination = Arc::new(destination);
            let first_id = runs
                .iter()
                .map(|run: &Run<Sent>| run.sent.len() as u64)
                .sum();
            let storage = storage(folder.path());
            runs.push(run(&mut random, &destination, Some(storage), first_id).await);
            taken = std::mem::take(&mut *destination.taken.lock());
        }
        recovered += runs.iter().map(|run| run.balance.recovered).sum::<u64>();
        check(seed, &runs, &taken);
    });
    assert!(SEEDS.are_chosen() || recovered > 0);
}

fn storage(folder: &Path) -> Arc<Storage> {
    let storage = Storage::new(StorageOptions {
        directory: folder.to_owned(),
        create_directory: true,
        fsync: FsyncPolicy::Never,
        max_bytes: 16 << 20,
        when_full: WhenFull::Block,
    });
    storage.lock().unwrap();
    Arc::new(storage)
}

/// The outcomes that schedules reached, with their samples.
#[derive(Default)]
struct Totals(BTreeMap<&'static str, u64>);

impl Totals {
    fn add(&mut self, balance: &ExporterBalance) {
        *self.0.entry("delivered").or_default() += balance.delivered;
        for (reason, samples) in &balance.dropped {
            *self.0.entry(reason).or_default() += samples;
        }
    }

    /// Together, all schedules reach each outcome.
    fn check(&self) {
        let expected = [
            "delivered",
            "partial_success",
            "queue_full",
            "rejected",
            "retries_exhausted",
            "shutdown",
            "too_large",
        ];
        let reached: Vec<&str> = self.0.keys().copied().collect();
        assert!(SEEDS.are_chosen() || reached == expected, "{:?}", self.0);
    }
}

/// What happened between a start and a stop, to batches of a kind.
struct Run<S> {
    sent: Vec<S>,
    /// At the deadline.
    was_aborted: bool,
    balance: ExporterBalance,
}

impl<S: Send + 'static> Run<S> {
    /// Each source calls `send` with the number of its batch; the sender is closed after `meanwhile`.
    async fn of<F: Future<Output = S> + Send + 'static>(
        random: &mut Rng,
        exporter: Arc<dyn Exporter>,
        storage: Option<Arc<Storage>>,
        first_id: u64,
        send: impl Fn(u64, Arc<Sender>, Rng) -> F,
        meanwhile: impl AsyncFnOnce(&mut Rng),
    ) -> Self {
        let sender = Sender::new(
            exporter,
            "destination",
            &Meter::default(),
            &unread_status(),
            storage,
            &Taps::default(),
        );
        sender.open().await.unwrap();
        let mut running = JoinSet::new();
        running.spawn(Arc::clone(&sender).run());
        let mut sources = JoinSet::new();
        for id in first_id..first_id + random.u64(1..40) {
            let random = Rng::with_seed(random.u64(..));
            sources.spawn(send(id, Arc::clone(&sender), random));
        }
        meanwhile(random).await;
        let deadline = Instant::now() + up_to(random, 5_000);
        sender.close(Closing {
            deadline,
            reason: DropReason::Shutdown,
            hands_over: false,
        });
        let sent = sources.join_all().await;
        let ended = timeout_at(deadline + SLACK, running.join_next()).await;
        running.shutdown().await;
        Self {
            sent,
            was_aborted: ended.is_err(),
            balance: sender.balance(),
        }
    }

    /// What is cut off at a deadline, or stays for the next start, has no outcome.
    fn is_cut_off(&self) -> bool {
        self.was_aborted || self.balance.stored > 0
    }
}

/// Samples that were sent again: a batch that is cut off when a part of it has arrived is sent again as a whole.
fn resent<S>(runs: &[Run<S>]) -> u64 {
    let starts = runs.iter().zip(runs.iter().skip(1));
    starts
        .map(|(last, next)| next.balance.recovered - last.balance.stored)
        .sum()
}

/// Whether a destination accepted a batch without some of its samples.
fn takes_back<S>(runs: &[Run<S>]) -> bool {
    let partial = DropReason::PartialSuccess.name();
    let mut dropped = runs.iter().flat_map(|run| &run.balance.dropped);
    dropped.any(|(reason, _)| *reason == partial)
}

/// Each accepted sample has one outcome; of `unknown` ones, the sources do not know whether they were accepted.
fn check_balances<S>(
    seed: u64,
    runs: &[Run<S>],
    taken: &BTreeMap<u64, usize>,
    accepted: u64,
    unknown: u64,
) {
    let resent = resent(runs);
    let (mut delivered, mut found) = (0, 0);
    for run in runs {
        let dropped: u64 = run.balance.dropped.iter().map(|(_, samples)| samples).sum();
        delivered += run.balance.delivered;
        found += run.balance.delivered + dropped;
    }
    found += runs.last().map_or(0, |run| run.balance.stored);
    let balances: Vec<_> = runs.iter().map(|run| &run.balance).collect();
    let arrived: usize = taken.values().sum();
    assert_eq!(arrived as u64, delivered, "seed {seed}: {balances:#?}");
    let possible = accepted + resent..=accepted + resent + unknown;
    assert!(
        possible.contains(&found),
        "seed {seed}: {found} of {possible:?} samples, {balances:#?}"
    );
}

/// A source that may give up waiting for the answer, as a client does that disconnects.
async fn answer_to(batch: Batch, sender: &Sender, random: &mut Rng) -> Option<Answer> {
    let answering = sender.consume(batch);
    match random.u8(..100) < 20 {
        true => timeout(up_to(random, 2_000), answering).await.ok(),
        false => Some(answering.await),
    }
}

async fn run(
    random: &mut Rng,
    destination: &Arc<Destination>,
    storage: Option<Arc<Storage>>,
    first_id: u64,
) -> Run<Sent> {
    let exporter = Arc::clone(destination) as Arc<dyn Exporter>;
    let meanwhile = async |random: &mut Rng| sleep(up_to(random, 20_000)).await;
    Run::of(random, exporter, storage, first_id, send, meanwhile).await
}

async fn send(id: u64, sender: Arc<Sender>, mut random: Rng) -> Sent {
    sleep(up_to(&mut random, 22_000)).await;
    let samples = random.usize(1..30);
    let (mut batch, outcomes) = batch_with_outcomes(samples);
    batch.profiles = named(batch.profiles, id);
    let is_live = random.u8(..100) < 30;
    if is_live {
        batch.source = Source::Live;
    }
    let answer = answer_to(batch, &sender, &mut random).await;
    Sent {
        id,
        samples,
        is_live,
        answer,
        outcomes,
    }
}

/// Without a limit, no retries are exhausted.
fn check_reasons(seed: u64, delivery: &Delivery, balance: &ExporterBalance) {
    let retry = &delivery.retry;
    let is_endless = retry.enabled && Duration::from(retry.max_elapsed_time).is_zero();
    let exhausted = DropReason::RetriesExhausted.name();
    let mut dropped = balance.dropped.iter();
    assert!(
        !is_endless || dropped.all(|(reason, _)| *reason != exhausted),
        "seed {seed}: {balance:#?}"
    );
}

fn check(seed: u64, runs: &[Run<Sent>], taken: &BTreeMap<u64, usize>) {
    // Samples that were accepted, and those of sources that gave up and do not know.
    let (mut accepted, mut unknown) = (0, 0);
    let (resent, takes_back) = (resent(runs), takes_back(runs));
    let some_are_cut_off = runs.iter().any(Run::is_cut_off);
    for Sent {
        id,
        samples,
        is_live,
        answer,
        outcomes,
    } in runs.iter().flat_map(|run| &run.sent)
    {
        let what = format!("seed {seed}, batch {id} of {samples} samples, answer {answer:?}");
        let arrived = taken.get(id).copied().unwrap_or_default();
        assert!(
            arrived <= *samples || resent > 0,
            "{what}: {arrived} arrived"
        );
        let [outcome] = outcomes.seen()[..] else {
            panic!("{what}: outcomes {:?}", outcomes.seen());
        };
        if outcome == Outcome::Delivered && !takes_back {
            assert!(arrived >= *samples, "{what}: only {arrived} arrived");
        }
        let samples = *samples as u64;
        match (answer, outcome) {
            (
                Some(Ok(())) | None,
                Outcome::Delivered | Outcome::Undelivered | Outcome::Rejected,
            ) => {
                accepted += samples;
            }
            (Some(Ok(())), Outcome::Lost) => {
                assert!(some_are_cut_off, "{what}: lost");
                accepted += samples;
            }
            (None, Outcome::Lost) => unknown += samples,
            (Some(Err(_)), _) => {
                assert!(!is_live, "{what}: a live batch is refused");
                assert_eq!(arrived, 0, "{what}: a refused batch arrived");
            }
        }
    }
    check_balances(seed, runs, taken, accepted, unknown);
}

fn any_delivery(random: &mut Rng) -> Delivery {
    let mut settings = DeliverySettings {
        timeout: up_to(random, 3_000).into(),
        retry_on_failure: RetrySettings {
            enabled: random.u8(..100) < 90,
            initial_interval: up_to(random, 500).into(),
            max_interval: up_to(random, 3_000).into(),
            // Zero is no limit.
            max_elapsed_time: match random.u8(..3) {
                0 => Duration::ZERO,
                _ => up_to(random, 10_000),
            }
            .into(),
            ..RetrySettings::default()
        },
        ..DeliverySettings::default()
    };
    let queue = &mut settings.sending_queue;
    queue.num_consumers = random.i64(1..5);
    queue.block_on_overflow = random.bool();
    (queue.sizer, queue.queue_size) = match random.bool() {
        true => (Sizer::Requests, random.i64(1..20)),
        false => (Sizer::Items, random.i64(20..200)),
    };
    if random.bool() {
        let min_size = random.i64(1..60);
        queue.batch = QueueBatchSettings {
            flush_timeout: up_to(random, 2_000).into(),
            min_size,
            max_size: match random.bool() {
                true => 0,
                false => min_size + random.i64(..40),
            },
            ..QueueBatchSettings::default()
        }
        .into();
    }
    settings.delivery()
}

impl Destination {
    fn any(random: &mut Rng) -> Self {
        let delivery = any_delivery(random);
        Self::with_delivery(random, delivery)
    }

    fn with_delivery(random: &mut Rng, delivery: Delivery) -> Self {
        let mut share = |up_to| match random.bool() {
            true => random.u8(..up_to),
            false => 0,
        };
        let faults = Faults {
            retryable: share(60),
            permanent: share(10),
            too_large: share(10),
            partial: share(10),
            hanging: share(10),
        };
        Self {
            random: Mutex::new(Rng::with_seed(random.u64(..))),
            delivery,
            faults,
            taken: Mutex::default(),
        }
    }

    fn take(&self, profiles: &Profiles) {
        let mut taken = self.taken.lock();
        for (id, samples) in samples_of(profiles) {
            *taken.entry(id).or_default() += samples;
        }
    }

    /// Takes the first half, and returns the rest with a refusal.
    fn take_a_part(&self, profiles: &Profiles) -> Delivered {
        let mut pieces = profiles.split(Bound::Samples(profiles.sample_count().div_ceil(2)));
        let rest = pieces.pieces.split_off(1);
        for piece in &pieces.pieces {
            self.take(piece);
        }
        let is_retryable = self.random.lock().bool();
        let refusal = match is_retryable {
            true => Refusal::retry("busy"),
            false => Refusal::permanent("bad part"),
        };
        let id = self.random.lock().bool().then(BatchId::unique);
        let undelivered = rest.into_iter().map(|profiles| Undelivered {
            id,
            profiles,
            refusal: refusal.clone(),
        });
        Delivered {
            undelivered: undelivered.collect(),
            ..Delivered::default()
        }
    }
}

#[async_trait]
impl Exporter for Destination {
    fn delivery(&self) -> Delivery {
        self.delivery.clone()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let (takes, roll) = {
            let mut random = self.random.lock();
            (up_to(&mut random, 1_500), random.u8(..100))
        };
        sleep(takes).await;
        let Faults {
            retryable,
            permanent,
            too_large,
            partial,
            hanging,
        } = self.faults;
        let mut end = 0;
        let mut is = |share: u8| {
            end += share;
            roll < end
        };
        if is(retryable) {
            let mut random = self.random.lock();
            let after = random.bool().then(|| up_to(&mut random, 4_000));
            return Err(Refusal::Retry {
                reason: "busy".into(),
                after,
            });
        }
        if is(permanent) {
            return Err(Refusal::permanent("bad"));
        }
        if is(too_large) {
            return Err(Refusal::TooLarge {
                reason: "too large".into(),
                limit_bytes: self.random.lock().usize(..2_000),
            });
        }
        if is(partial) {
            let rejects_all = self.random.lock().bool();
            return Ok(match rejects_all {
                true => Delivered {
                    rejected_profiles: batch.profiles.profile_count() as u64,
                    ..Delivered::default()
                },
                false => self.take_a_part(&batch.profiles),
            });
        }
        if is(hanging) {
            std::future::pending::<()>().await;
        }
        self.take(&batch.profiles);
        Ok(Delivered::default())
    }
}
