//! Random schedules of reloads on the paused clock: receivers, processors, connectors and exporters come, go and are replaced, some
//! fail to start, while sources send. Each accepted sample is delivered once by each exporter that stays in the
//! configuration; with deadlines too short for that, each has one outcome.
//!
//! A failing schedule names its seed, which `PROFCOL_RELOAD_SEED` repeats.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use async_trait::async_trait;
use fastrand::Rng;
use parking_lot::Mutex;
use profcol_component::testkit::batch;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Connector, Consumer, Delivered, Delivery,
    DeliverySettings, Exporter, Factory, Pipelines, Processor, Refusal, Registry, RetrySettings,
    SelfTelemetry, entry,
};
use profcol_config::{Config, PipelineId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::tests::{factory, read};
use super::*;
use crate::simulation::{Seeds, named, samples_of, up_to};

const SEEDS: Seeds = Seeds {
    one: "PROFCOL_RELOAD_SEED",
    count: "PROFCOL_RELOAD_SCHEDULES",
};
const SCHEDULES: u64 = 200;

/// The exporter that is in each configuration.
const ALWAYS: &str = "sink/always";

/// What the components of a schedule share.
#[derive(Clone, Default)]
struct SharedState(Arc<Mutex<State>>);

struct State {
    random: Rng,
    /// The number of the configuration in use.
    configuration: usize,
    sent: Vec<Sent>,
    /// Samples by exporter and batch.
    taken: BTreeMap<(String, u64), usize>,
    /// Samples that processors are sending; in the end those whose processor was ended meanwhile.
    passing: usize,
}

/// The batch of this number.
#[derive(Debug)]
struct Sent {
    samples: usize,
    /// The configuration in use when it was sent.
    configuration: usize,
    /// None while the source waits for it.
    answer: Option<Answer>,
}

/// The configuration of each component.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct Settings {
    /// Another one replaces the component.
    version: u32,
    fails_to_start: bool,
    queued: bool,
}

impl Config for Settings {}

struct Node {
    id: String,
    world: SharedState,
    settings: Settings,
    pipelines: Arc<[PipelineId]>,
    /// Batches held by a processor that sends them later.
    held: Mutex<VecDeque<Batch>>,
    has_more: Notify,
}

/// A configuration, and what it has.
struct Configuration {
    yaml: String,
    exporters: BTreeSet<String>,
    fails: bool,
}

#[test]
fn a_reload_neither_loses_nor_repeats_a_sample() {
    let (mut refused, mut reloaded) = (0, 0);
    SEEDS.each(SCHEDULES, async |seed| {
        let run = Run::of(seed, Timeouts::Ample).await;
        let Run {
            report,
            world,
            configurations,
            ..
        } = &run;
        let what = format!("seed {seed}: {:?}", report.balance);
        assert!(report.failures.is_empty(), "{what}: {:?}", report.failures);
        let state = world.0.lock();
        for (id, sent) in state.sent.iter().enumerate() {
            assert_eq!(sent.answer, Some(Ok(())), "{what}: batch {id}");
            let since = &configurations[sent.configuration..];
            let mut staying = since[0].exporters.clone();
            staying.retain(|id| since.iter().all(|it| it.exporters.contains(id)));
            for exporter in staying {
                let taken = state.taken.get(&(exporter.clone(), id as u64));
                let taken = taken.copied().unwrap_or_default();
                assert_eq!(
                    taken, sent.samples,
                    "{what}: {exporter}, batch {id}: {sent:?}"
                );
            }
        }
        for ((exporter, id), taken) in &state.taken {
            let samples = state.sent[*id as usize].samples;
            assert!(
                *taken <= samples,
                "{what}: {exporter}, batch {id}: {taken} of {samples}"
            );
        }
        assert_eq!(report.balance.lost(), 0, "{what}");
        reloaded += configurations.len() - 1;
        refused += run.refused;
    });
    assert!(
        SEEDS.are_chosen() || refused > 0 && reloaded > refused,
        "{refused} and {reloaded}"
    );
}

#[test]
fn each_sample_has_one_outcome_when_reloads_have_too_little_time() {
    let mut dropped_by_reloads = 0;
    SEEDS.each(SCHEDULES, async |seed| {
        let Run { report, world, .. } = Run::of(seed, Timeouts::Short).await;
        let Balance {
            receivers,
            processors,
            exporters,
        } = &report.balance;
        let what = format!("seed {seed}: {:?}", report.balance);
        let state = world.0.lock();
        for exporter in exporters {
            let own = state
                .taken
                .iter()
                .filter(|((id, _), _)| *id == exporter.exporter);
            let taken: usize = own.map(|(_, taken)| taken).sum();
            assert_eq!(
                taken as u64, exporter.delivered,
                "{what}: {}",
                exporter.exporter
            );
        }
        for ((exporter, id), taken) in &state.taken {
            let samples = state.sent[*id as usize].samples;
            assert!(
                *taken <= samples,
                "{what}: {exporter}, batch {id}: {taken} of {samples}"
            );
        }
        let passed_on: u64 = receivers.iter().map(|it| it.passed_on).sum();
        let accepted = state.sent.iter().filter(|sent| sent.answer == Some(Ok(())));
        let accepted: usize = accepted.map(|sent| sent.samples).sum();
        assert_eq!(passed_on, accepted as u64, "{what}");
        let always = exporters.iter().find(|it| it.exporter == ALWAYS);
        let always = always.expect("it is in each configuration");
        let dropped: u64 = always.dropped.iter().map(|(_, samples)| samples).sum();
        let by_processors: u64 = processors.iter().map(|it| it.removed + it.lost).sum();
        // Those whose source was ended while it waited, and those that count in a processor and in an exporter.
        let unknown = state.sent.iter().filter(|sent| sent.answer.is_none());
        let unknown = unknown.map(|sent| sent.samples).sum::<usize>() + state.passing;
        let found = always.delivered + dropped + by_processors;
        let possible = passed_on..=passed_on + unknown as u64;
        assert!(possible.contains(&found), "{what}: {found} of {possible:?}");
        let by_reload = |it: &&(&str, u64)| it.0 == DropReason::Reload.name();
        dropped_by_reloads += always.dropped.iter().filter(by_reload).count();
    });
    assert!(SEEDS.are_chosen() || dropped_by_reloads > 0);
}

/// The timeouts of reloads and of the shutdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeouts {
    Ample,
    Short,
}

struct Run {
    report: StopReport,
    world: SharedState,
    /// The configurations that were in use.
    configurations: Vec<Configuration>,
    refused: usize,
}

impl Run {
    async fn of(seed: u64, timeouts: Timeouts) -> Self {
        let mut random = Rng::with_seed(seed);
        let first = Configuration::any(&mut random, timeouts, false);
        let telemetry = SelfTelemetry::default();
        let graph = Graph::build(&read(&first.yaml, &REGISTRY), &telemetry).unwrap();
        let world: SharedState = graph.context.shared.get();
        world.0.lock().random = random.fork();
        let mut service = Service::start(graph, &telemetry.meter).await.unwrap();
        let mut configurations = vec![first];
        let mut refused = 0;
        for _ in 0..random.u8(1..8) {
            sleep(up_to(&mut random, 2_000)).await;
            let fails = random.u8(..100) < 20;
            let next = Configuration::any(&mut random, timeouts, fails);
            let reloaded = service
                .reload(&read(&next.yaml, &REGISTRY), &Stop::new())
                .await;
            assert_eq!(
                reloaded.is_err(),
                next.fails,
                "seed {seed}: {reloaded:?}, {}",
                next.yaml
            );
            match reloaded {
                Ok(_) => configurations.push(next),
                Err(_) => refused += 1,
            }
            world.0.lock().configuration = configurations.len() - 1;
        }
        sleep(up_to(&mut random, 2_000)).await;
        let timeout = timeouts.any(&mut random);
        Self {
            report: service.stop(timeout).await,
            world,
            configurations,
            refused,
        }
    }
}

impl Timeouts {
    fn any(self, random: &mut Rng) -> Duration {
        match self {
            Self::Ample => Duration::from_secs(120),
            Self::Short => up_to(random, 1_000),
        }
    }
}

impl Configuration {
    fn any(random: &mut Rng, timeouts: Timeouts, fails: bool) -> Self {
        let mut exporters = vec![ALWAYS];
        if timeouts == Timeouts::Ample {
            // A batch that one has and another one has not when it is cut off would count twice.
            exporters.extend(
                ["sink/sometimes", "alone"]
                    .into_iter()
                    .filter(|_| random.bool()),
            );
        }
        let receivers = &["feed/1", "feed/2"][..random.usize(1..3)];
        let [before, after] = [(), ()].map(|()| {
            let mut processors = vec!["pass", "hold/1", "hold/2"];
            random.shuffle(&mut processors);
            processors.truncate(random.usize(..4));
            processors
        });
        let is_joined = random.bool();
        // It must be one that is in use, and with a configuration that no running one has.
        let failing = fails.then(|| *random.choice(&exporters).unwrap_or(&ALWAYS));
        let mut components = |ids: &[&str]| {
            let each = ids.iter().map(|id| {
                let version = random.u32(..3);
                let queued = random.bool();
                let fails_to_start = failing == Some(id);
                format!("{id}: {{version: {version}, queued: {queued}, fails_to_start: {fails_to_start}}}")
            });
            each.collect::<Vec<_>>().join(", ")
        };
        let declared = [
            ("receivers", components(receivers)),
            ("processors", components(&["pass", "hold/1", "hold/2"])),
            ("exporters", components(&exporters)),
            ("connectors", components(&["joint"])),
        ];
        let declared = declared.map(|(kind, components)| format!("{kind}: {{{components}}}"));
        let pipeline = |id: &str, from: &[&str], by: &[&str], to: &[&str]| {
            let [from, by, to] = [from, by, to].map(|ids| ids.join(", "));
            format!("profiles/{id}: {{receivers: [{from}], processors: [{by}], exporters: [{to}]}}")
        };
        let pipelines = match is_joined {
            true => [
                pipeline("in", receivers, &before, &["joint"]),
                pipeline("out", &["joint"], &after, &exporters),
            ]
            .join(", "),
            false => pipeline("in", receivers, &before, &exporters),
        };
        let drain_timeout = timeouts.any(random).as_millis();
        Self {
            yaml: format!(
                "{{{}, service: {{reload: {{drain_timeout: {drain_timeout}ms}}, pipelines: {{{pipelines}}}}}}}",
                declared.join(", ")
            ),
            exporters: exporters.into_iter().map(str::to_owned).collect(),
            fails,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            random: Rng::with_seed(0),
            configuration: 0,
            sent: Vec::new(),
            taken: BTreeMap::new(),
            passing: 0,
        }
    }
}

impl SharedState {
    async fn sleep_up_to(&self, milliseconds: u64) {
        let time = up_to(&mut self.0.lock().random, milliseconds);
        sleep(time).await;
    }

    /// A new batch and its number.
    fn batch(&self) -> (usize, Batch) {
        let mut state = self.0.lock();
        let samples = state.random.usize(1..30);
        let configuration = state.configuration;
        state.sent.push(Sent {
            samples,
            configuration,
            answer: None,
        });
        let id = state.sent.len() - 1;
        let mut batch = batch(samples);
        batch.profiles = named(batch.profiles, id as u64);
        (id, batch)
    }

    fn take(&self, exporter: &str, batch: &Batch) {
        let mut state = self.0.lock();
        for (id, samples) in samples_of(&batch.profiles) {
            *state.taken.entry((exporter.to_owned(), id)).or_default() += samples;
        }
    }
}

impl Node {
    fn new(settings: &Settings, context: &BuildContext) -> Self {
        Self {
            id: context.id.to_string(),
            world: context.shared.get(),
            settings: settings.clone(),
            pipelines: Arc::clone(&context.pipelines),
            held: Mutex::default(),
            has_more: Notify::new(),
        }
    }
}

factory!(Feed, "feed", dyn Receiver, Node(Settings));
factory!(Pass, "pass", dyn Processor, Node(Settings));
factory!(Hold, "hold", dyn Processor, Node(Settings));
factory!(Sink, "sink", dyn Exporter, Node(Settings));
factory!(Alone, "alone", dyn Exporter, Node(Settings));
factory!(Joint, "joint", dyn Connector, Node(Settings));

const REGISTRY: Registry = Registry {
    receivers: &[entry::<Feed>()],
    processors: &[entry::<Pass>(), entry::<Hold>()],
    exporters: &[entry::<Sink>(), entry::<Alone>()],
    connectors: &[entry::<Joint>()],
    extensions: &[],
    foreign: &[],
};

#[async_trait]
impl Receiver for Node {
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.world.sleep_up_to(300) => {}
                () = stop.cancelled() => break,
            }
            let (id, batch) = self.world.batch();
            let answer = output.push(batch).await;
            self.world.0.lock().sent[id].answer = Some(answer);
        }
        Ok(())
    }
}

#[async_trait]
impl Processor for Node {
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> Answer {
        if !self.id.starts_with("hold") {
            return next.consume(batch).await;
        }
        self.held.lock().push_back(batch);
        self.has_more.notify_one();
        Ok(())
    }

    async fn run(self: Arc<Self>, next: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        loop {
            let batch = self.held.lock().pop_front();
            match batch {
                // The exporters count what they drop.
                Some(batch) => {
                    let samples = batch.profiles.sample_count();
                    self.world.0.lock().passing += samples;
                    // What is refused counts as removed.
                    let _ = next.consume(batch).await;
                    self.world.0.lock().passing -= samples;
                }
                None if stop.is_cancelled() => return Ok(()),
                None => tokio::select! {
                    () = self.has_more.notified() => self.world.sleep_up_to(500).await,
                    () = stop.cancelled() => {}
                },
            }
        }
    }
}

#[async_trait]
impl Connector for Node {
    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> Answer {
        next.push(batch, &self.pipelines).await
    }
}

#[async_trait]
impl Exporter for Node {
    fn delivery(&self) -> Delivery {
        if !self.settings.queued {
            return Delivery::inline();
        }
        let mut settings = DeliverySettings {
            retry_on_failure: RetrySettings {
                initial_interval: Duration::from_millis(100).into(),
                max_elapsed_time: Duration::ZERO.into(),
                ..RetrySettings::default()
            },
            ..DeliverySettings::default()
        };
        settings.sending_queue.block_on_overflow = true;
        settings.sending_queue.queue_size = 3;
        settings.delivery()
    }

    async fn start(&self) -> Result<(), StartError> {
        match self.settings.fails_to_start {
            true => Err(StartError::new("no")),
            false => Ok(()),
        }
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        self.world.sleep_up_to(400).await;
        let is_busy = self.settings.queued && self.world.0.lock().random.u8(..100) < 10;
        if is_busy {
            return Err(Refusal::retry("busy"));
        }
        self.world.take(&self.id, batch);
        Ok(Delivered::default())
    }
}
