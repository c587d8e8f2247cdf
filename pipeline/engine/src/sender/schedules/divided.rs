//! The same with several destinations that come and go. Batches have parts for some of them, and their sources send a refused
//! batch again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use profcol_component::{BatchId, Destinations};
use profcol_profile::{KeyValue, Resource};
use tokio::sync::watch;
use tokio::time::sleep_until;

use super::super::balancer::tests::Divided;
use super::*;

const DIVIDED_SCHEDULES: u64 = 800;
const STORED_DIVIDED_SCHEDULES: u64 = 80;

/// The number of destinations. The exporter has only some of them at a time.
const NAMES: usize = 4;
/// Maximum number of parts in a batch.
const PARTS: usize = 4;
const ATTEMPTS: usize = 5;

/// A destination, and whether the exporter has it.
struct Place {
    destination: Destination,
    /// None while it is there.
    away_since: Mutex<Option<Instant>>,
    /// Exports that began when it was away, and the exporter knew.
    late: AtomicUsize,
}

/// A batch of a source.
struct SentParts {
    id: u64,
    /// The samples of each.
    parts: Vec<usize>,
    is_live: bool,
    attempts: Vec<Tried>,
}

/// An attempt of the source; without an answer it gave up waiting.
struct Tried {
    answer: Option<Answer>,
    outcomes: Outcomes,
}

#[test]
fn each_part_arrives_once_wherever_the_destinations_go() {
    let mut totals = Totals::default();
    SEEDS.each(DIVIDED_SCHEDULES, async |seed| {
        let mut random = Rng::with_seed(seed);
        let delivery = any_delivery(&mut random);
        let pool = pool(&mut random, &delivery);
        let run = run(&mut random, delivery.clone(), &pool, None, 0).await;
        check(seed, slice::from_ref(&run), &taken(&pool));
        check_removals(seed, &pool);
        check_reasons(seed, &delivery, &run.balance);
        totals.add(&run.balance);
    });
    totals.check();
}

#[test]
fn a_stored_queue_keeps_each_part_over_any_restarts() {
    let mut recovered = 0;
    SEEDS.each(STORED_DIVIDED_SCHEDULES, async |seed| {
        let mut random = Rng::with_seed(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut runs = Vec::new();
        let mut arrived = BTreeMap::new();
        for restarts_left in (0..random.u8(1..5)).rev() {
            let delivery = any_delivery(&mut random);
            let mut pool = pool(&mut random, &delivery);
            if restarts_left == 0 {
                for place in &mut pool {
                    Arc::get_mut(place).unwrap().destination.faults = Faults::default();
                }
            }
            let first_id = runs
                .iter()
                .map(|run: &Run<SentParts>| run.sent.len() as u64)
                .sum();
            let storage = Some(storage(folder.path()));
            runs.push(run(&mut random, delivery, &pool, storage, first_id).await);
            check_removals(seed, &pool);
            for (part, samples) in taken(&pool) {
                *arrived.entry(part).or_default() += samples;
            }
        }
        recovered += runs.iter().map(|run| run.balance.recovered).sum::<u64>();
        check(seed, &runs, &arrived);
    });
    assert!(SEEDS.are_chosen() || recovered > 0);
}

fn pool(random: &mut Rng, delivery: &Delivery) -> Vec<Arc<Place>> {
    let one = |_| {
        Arc::new(Place {
            destination: Destination::with_delivery(random, delivery.clone()),
            away_since: Mutex::default(),
            late: AtomicUsize::new(0),
        })
    };
    (0..NAMES).map(one).collect()
}

/// The samples that arrived, by part.
fn taken(pool: &[Arc<Place>]) -> BTreeMap<u64, usize> {
    let mut all = BTreeMap::new();
    for place in pool {
        for (part, samples) in &*place.destination.taken.lock() {
            *all.entry(*part).or_default() += samples;
        }
    }
    all
}

/// Nothing is sent to a destination that is gone.
fn check_removals(seed: u64, pool: &[Arc<Place>]) {
    let late: usize = pool.iter().map(|it| it.late.load(Ordering::Relaxed)).sum();
    assert_eq!(
        late, 0,
        "seed {seed}: exports began at removed destinations"
    );
}

/// Some of these destinations. A part for one that is away goes to the first.
fn some_of(pool: &[Arc<Place>], random: &mut Rng) -> Arc<Destinations> {
    let mut present: Vec<usize> = (0..pool.len()).filter(|_| random.bool()).collect();
    if present.is_empty() {
        present.push(random.usize(..pool.len()));
    }
    for (position, place) in pool.iter().enumerate() {
        let mut away_since = place.away_since.lock();
        *away_since = match present.contains(&position) {
            true => None,
            false => away_since.or_else(|| Some(Instant::now())),
        };
    }
    let exporters = present
        .iter()
        .map(|&it| Arc::clone(&pool[it]) as Arc<dyn Exporter>);
    let mut exporters = exporters.collect::<Vec<_>>().into_iter();
    let first = exporters.next().unwrap();
    Arc::new(Destinations::new(first, exporters, move |attributes| {
        let to = attributes.iter().find(|it| &*it.key == "to");
        let to = to.and_then(|it| it.value.as_str()?.parse().ok());
        let place = present.iter().position(|&it| Some(it) == to);
        place.unwrap_or_default()
    }))
}

async fn run(
    random: &mut Rng,
    delivery: Delivery,
    pool: &[Arc<Place>],
    storage: Option<Arc<Storage>>,
    first_id: u64,
) -> Run<SentParts> {
    let published = watch::Sender::new(some_of(pool, random));
    let divided = Arc::new(Divided {
        delivery,
        published,
    });
    let exporter = Arc::clone(&divided) as Arc<dyn Exporter>;
    let meanwhile = async |random: &mut Rng| {
        let until = Instant::now() + up_to(random, 20_000);
        loop {
            let next = Instant::now() + up_to(random, 6_000);
            if next >= until {
                break;
            }
            sleep_until(next).await;
            divided.published.send_replace(some_of(pool, random));
        }
        sleep_until(until).await;
        // A closed exporter follows no changes.
        for place in pool {
            *place.away_since.lock() = None;
        }
    };
    Run::of(random, exporter, storage, first_id, send, meanwhile).await
}

/// A source that sends a refused batch again, and may give up waiting for an answer.
async fn send(id: u64, sender: Arc<Sender>, mut random: Rng) -> SentParts {
    sleep(up_to(&mut random, 22_000)).await;
    let parts: Vec<(usize, usize)> = (0..random.usize(1..=PARTS))
        .map(|_| (random.usize(..NAMES), random.usize(1..20)))
        .collect();
    let is_live = random.u8(..100) < 30;
    let mut attempts = Vec::new();
    for _ in 0..ATTEMPTS {
        let (mut batch, outcomes) = batch_with_outcomes(1);
        batch.profiles = divided(id, &parts);
        match is_live {
            true => batch.source = Source::Live,
            false => batch.resend_id = Some(BatchId::of_content(&id.to_le_bytes())),
        }
        let answer = answer_to(batch, &sender, &mut random).await;
        let is_done = !matches!(answer, None | Some(Err(Refusal::Retry { .. })));
        attempts.push(Tried { answer, outcomes });
        if is_done || is_live || random.u8(..100) < 20 {
            break;
        }
        sleep(up_to(&mut random, 3_000)).await;
    }
    SentParts {
        id,
        parts: parts.into_iter().map(|(_, samples)| samples).collect(),
        is_live,
        attempts,
    }
}

/// The name of a part.
fn part_id(batch: u64, part: usize) -> u64 {
    batch * PARTS as u64 + part as u64
}

fn divided(id: u64, parts: &[(usize, usize)]) -> Profiles {
    let parts = parts.iter().enumerate().map(|(part, &(to, samples))| {
        let (batch, _) = batch_with_outcomes(samples);
        let mut profiles = named(batch.profiles, part_id(id, part));
        profiles.update_resources(|resource| {
            *resource = Resource {
                // Else the parts of one destination would be one resource.
                attributes: vec![
                    KeyValue::new("to", &*to.to_string()),
                    KeyValue::new("part", &*part.to_string()),
                ],
                ..Resource::default()
            };
            true
        });
        profiles
    });
    Profiles::merge(parts)
}

fn check(seed: u64, runs: &[Run<SentParts>], taken: &BTreeMap<u64, usize>) {
    let (mut accepted, mut unknown) = (0, 0);
    let (resent, takes_back) = (resent(runs), takes_back(runs));
    let some_are_cut_off = runs.iter().any(Run::is_cut_off);
    for sent in runs.iter().flat_map(|run| &run.sent) {
        let samples: usize = sent.parts.iter().sum();
        let answers: Vec<_> = sent.attempts.iter().map(|it| &it.answer).collect();
        let what = format!(
            "seed {seed}, batch {} with parts of {:?} samples, answers {answers:?}",
            sent.id, sent.parts
        );
        let arrived = |part: usize| taken.get(&part_id(sent.id, part)).copied().unwrap_or(0);
        // Of a batch that it had accepted, the sender cannot know whether its source sends it again.
        let given_up = sent.attempts.iter().rev().skip(1);
        let given_up = given_up.filter(|it| it.answer.is_none()).count();
        unknown += (given_up * samples) as u64;
        for (part, &samples) in sent.parts.iter().enumerate() {
            let arrived = arrived(part);
            assert!(
                arrived <= samples * (1 + given_up) || resent > 0,
                "{what}: {arrived} of part {part} arrived"
            );
        }
        for attempt in &sent.attempts {
            let seen = attempt.outcomes.seen();
            let [outcome] = seen[..] else {
                panic!("{what}: outcomes {seen:?}");
            };
            let is_accepted = matches!(attempt.answer, Some(Ok(())));
            if is_accepted && outcome == Outcome::Delivered && !takes_back {
                let all = (0..sent.parts.len()).map(arrived).sum::<usize>();
                assert!(all >= samples, "{what}: only {all} arrived");
            }
            assert!(
                !is_accepted || outcome != Outcome::Lost || some_are_cut_off,
                "{what}: lost"
            );
        }
        match answers.last() {
            Some(Some(Ok(()))) => accepted += samples as u64,
            _ => {
                assert!(
                    !sent.is_live || matches!(answers[..], [None]),
                    "{what}: refused"
                );
                unknown += samples as u64;
            }
        }
    }
    check_balances(seed, runs, taken, accepted, unknown);
}

#[async_trait]
impl Exporter for Place {
    fn delivery(&self) -> Delivery {
        self.destination.delivery()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let away_since = *self.away_since.lock();
        if away_since.is_some_and(|since| since.elapsed() > SLACK) {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        self.destination.export(batch).await
    }
}
