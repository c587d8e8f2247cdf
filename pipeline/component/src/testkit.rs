//! Test helpers for components and the engine: batches, recording consumers, scripted exporters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_admission::Admission;
use profcol_config::{ComponentId, Config, PipelineId, Problems, Sources, yaml};
use profcol_profile::{
    Dictionary, Line, Location, LocationIdx, LocationRef, Model, Profile, Profiles, Resource,
    ResourceProfiles, SampleRef, Samples, Scope, ScopeProfiles, ValueType,
};

use crate::{
    Answer, Batch, BatchId, BuildContext, CodeAddress, Consumer, DeferredSymbols, Delivered,
    Delivery, ExecutableAddress, Exporter, Extensions, Finalizer, InstanceId, Meter, Outcome,
    Pipelines, Refusal, Shared, StatusBoard, SymbolFrame, SymbolLookup, SymbolSource,
};

/// Far longer than a test waits for anything.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Polls until `condition` holds; `what` describes it.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    wait_for(what, async || condition().await.then_some(())).await;
}

/// Polls until there is a value; `what` describes it.
pub async fn wait_for<T>(what: &str, mut value: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = value().await {
            return value;
        }
        assert!(Instant::now() < give_up, "waited for {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Valid profiles with `samples` samples, one stack each.
pub fn profiles(samples: usize) -> Profiles {
    let mut dictionary = Dictionary::default();
    let kind = dictionary.strings.push("samples");
    let unit = dictionary.strings.push("count");
    let mut columns = Samples::default();
    for number in 0..samples {
        let name = dictionary.strings.push(&format!("function_{number}"));
        let function = dictionary.functions.push(profcol_profile::Function {
            name,
            ..profcol_profile::Function::default()
        });
        let location = dictionary.locations.push(LocationRef {
            location: Location {
                address: 0x1000 + number as u64,
                ..Location::default()
            },
            lines: &[Line {
                function,
                line: 1,
                column: 0,
            }],
            attributes: &[],
        });
        let stack = dictionary.stacks.push(&[location]);
        columns.push(SampleRef {
            stack,
            values: &[1],
            ..SampleRef::default()
        });
    }
    let profile = Profile {
        sample_type: Some(ValueType { kind, unit }),
        period_type: Some(ValueType { kind, unit }),
        period: 1,
        samples: columns,
        time_unix_nano: 1_700_000_000_000_000_000,
        duration_nano: 1_000_000_000,
        ..Profile::default()
    };
    let scope = ScopeProfiles {
        scope: Some(Arc::new(Scope {
            name: "test".into(),
            ..Scope::default()
        })),
        profiles: vec![Arc::new(profile)],
        ..ScopeProfiles::default()
    };
    let resource = ResourceProfiles {
        resource: Some(Arc::new(Resource::default())),
        scopes: vec![scope],
        ..ResourceProfiles::default()
    };
    Profiles::from_model(Model {
        dictionary: Arc::new(dictionary),
        resources: vec![resource],
    })
}

/// A batch of `samples` samples without finalizers.
pub fn batch(samples: usize) -> Batch {
    Batch::new(profiles(samples))
}

/// A batch and its recorded outcomes.
pub fn batch_with_outcomes(samples: usize) -> (Batch, Outcomes) {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    let mut batch = batch(samples);
    batch
        .finalizers
        .add(Finalizer::new(move |outcome| seen.0.lock().push(outcome)));
    (batch, outcomes)
}

/// Resolves code without lines by file name, once [`finish`](Self::finish) is called.
pub struct FakeSymbolizer {
    /// The frames for a file, innermost first; empty if it has no symbols.
    names: fn(&str) -> &'static [&'static str],
    is_ready: AtomicBool,
}

impl FakeSymbolizer {
    pub fn new(names: fn(&str) -> &'static [&'static str]) -> Arc<Self> {
        Arc::new(Self {
            names,
            is_ready: AtomicBool::new(false),
        })
    }

    /// The deferred symbols for a batch.
    pub fn names(self: &Arc<Self>) -> DeferredSymbols {
        let mut names = DeferredSymbols::default();
        names.add(Arc::clone(self) as Arc<dyn SymbolSource>);
        names
    }

    pub fn finish(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }
}

impl SymbolSource for FakeSymbolizer {
    fn code_location(
        &self,
        dictionary: &Dictionary,
        location: LocationIdx,
    ) -> Option<ExecutableAddress> {
        let row = dictionary.locations.get(location);
        let mapping = dictionary.mappings.get(row.location.mapping).mapping;
        row.lines.is_empty().then(|| ExecutableAddress {
            build_id: dictionary.strings.get(mapping.filename).into(),
            address: CodeAddress::Virtual(row.location.address),
        })
    }

    fn lookup(&self, code: &ExecutableAddress) -> SymbolLookup {
        if !self.is_ready.load(Ordering::Relaxed) {
            return SymbolLookup::Pending;
        }
        let names = (self.names)(&code.build_id);
        let frames = names.iter().map(|&name| SymbolFrame {
            name: name.into(),
            ..SymbolFrame::default()
        });
        match names {
            [] => SymbolLookup::NotFound,
            _ => SymbolLookup::Resolved(frames.collect()),
        }
    }
}

/// Loads options as from a configuration file; `Err` has one problem per line.
pub fn load<C: Config>(text: &str) -> Result<C, String> {
    let mut sources = Sources::default();
    let source = sources
        .add("test", text, None)
        .expect("test options are short");
    let node = yaml::parse(&sources, source).expect("test options are YAML");
    let mut problems = Problems::default();
    profcol_config::load(&node, &mut problems).ok_or_else(|| problems.to_string())
}

/// Reported outcomes.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Arc<Mutex<Vec<Outcome>>>);

/// A context to build a component in, without extensions.
pub fn context(id: &str) -> BuildContext {
    let id: ComponentId = id.parse().expect("tests use valid ids");
    let shared = Shared::default();
    let status = shared.get::<StatusBoard>().component(id.to_string());
    BuildContext {
        id,
        pipelines: Arc::default(),
        meter: Meter::default(),
        status,
        shared,
        admission: Admission::unlimited(),
        extensions: Extensions::default(),
        instance: InstanceId::default(),
    }
}

/// Pipelines of one sink each.
pub struct SinkPipelines(Vec<(PipelineId, Sink)>);

/// Records batches and answers with the scripted refusals, then accepts.
#[derive(Debug, Default)]
pub struct Sink {
    state: Mutex<SinkState>,
    delivery: Option<Delivery>,
    delay: Duration,
}

#[derive(Debug, Default)]
struct SinkState {
    /// Samples per accepted batch.
    accepted: Vec<usize>,
    offered: Vec<BatchId>,
    answers: VecDeque<Refusal>,
}

// === impl Outcomes ===

impl Outcomes {
    pub fn seen(&self) -> Vec<Outcome> {
        self.0.lock().clone()
    }
}

// === impl SinkPipelines ===

impl SinkPipelines {
    pub fn new<const N: usize>(sinks: [(&str, Sink); N]) -> Self {
        let sink = |(id, sink): (&str, Sink)| (id.parse().expect("tests use valid ids"), sink);
        Self(sinks.into_iter().map(sink).collect())
    }

    pub fn ids(&self) -> Arc<[PipelineId]> {
        self.0.iter().map(|(id, _)| id.clone()).collect()
    }

    pub fn sink(&self, id: &str) -> &Sink {
        let mut pipelines = self.0.iter();
        let found = pipelines.find(|(known, _)| known.to_string() == id);
        &found.expect("tests name their pipelines").1
    }

    /// Samples per batch that the pipeline has accepted, in order.
    pub fn accepted(&self, id: &str) -> Vec<usize> {
        self.sink(id).accepted()
    }
}

#[async_trait]
impl Pipelines for SinkPipelines {
    async fn push_parts(&self, batch: Batch, parts: Vec<(PipelineId, Profiles)>) -> Answer {
        let mut worst = Ok(());
        for (id, profiles) in parts {
            let part = batch.clone().with_profiles(profiles);
            let answer = self.sink(&id.to_string()).consume(part).await;
            worst = match (worst, answer) {
                (Err(a), Err(b)) => Err(Refusal::prevailing(a, b)),
                (worst, answer) => worst.and(answer),
            };
        }
        batch.finalizers.settle(Outcome::Delivered);
        worst
    }
}

// === impl Sink ===

impl Sink {
    /// Refuses the next batches with one refusal each.
    pub fn refusing(refusals: impl IntoIterator<Item = Refusal>) -> Self {
        let sink = Self::default();
        sink.state.lock().answers.extend(refusals);
        sink
    }

    /// Sets its delivery settings as an exporter.
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// Delays each batch.
    pub fn taking(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Samples per accepted batch, in order.
    pub fn accepted(&self) -> Vec<usize> {
        self.state.lock().accepted.clone()
    }

    /// Number of offered batches, accepted or not.
    pub fn offered(&self) -> usize {
        self.state.lock().offered.len()
    }

    /// Ids of the offered batches, in order.
    pub fn offered_ids(&self) -> Vec<BatchId> {
        self.state.lock().offered.clone()
    }

    async fn take(&self, batch: &Batch) -> Answer {
        self.state.lock().offered.push(batch.id);
        tokio::time::sleep(self.delay).await;
        let mut state = self.state.lock();
        if let Some(refusal) = state.answers.pop_front() {
            return Err(refusal);
        }
        state.accepted.push(batch.profiles.sample_count());
        Ok(())
    }
}

#[async_trait]
impl Consumer for Sink {
    async fn consume(&self, batch: Batch) -> Answer {
        match self.take(&batch).await {
            Ok(()) => {
                batch.finalizers.settle(Outcome::Delivered);
                Ok(())
            }
            Err(refusal) => batch.refuse(refusal),
        }
    }
}

#[async_trait]
impl Exporter for Sink {
    fn delivery(&self) -> Delivery {
        self.delivery.clone().unwrap_or_else(Delivery::inline)
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        self.take(batch).await.map(|()| Delivered::default())
    }
}
