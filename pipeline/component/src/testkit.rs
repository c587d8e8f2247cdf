//! What tests of components and of the engine need: batches, consumers that remember, exporters
//! that follow a script.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use profcol_admission::Admission;
use profcol_config::{ComponentId, Config, Problems, Sources, yaml};
use profcol_profile::{
    Dictionary, Line, Location, LocationIdx, LocationRef, Model, Profile, Profiles, Resource,
    ResourceProfiles, SampleRef, Samples, Scope, ScopeProfiles, ValueType,
};

use crate::{
    Answer, Batch, BuildContext, Code, CodeAddress, Consumer, DeferredSymbols, Delivered, Delivery,
    DropFeedback, Executables, Exporter, Finalizer, Meter, Outcome, RecentLog, Refusal,
    StatusBoard, SymbolFrame, SymbolLookup, SymbolSource,
};

/// A valid batch of `samples` samples with a stack each.
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

/// A batch of `samples` samples that nobody waits for.
pub fn batch(samples: usize) -> Batch {
    Batch::new(profiles(samples))
}

/// A batch, and where its outcome will stand.
pub fn batch_with_outcomes(samples: usize) -> (Batch, Outcomes) {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    let mut batch = batch(samples);
    batch
        .finalizers
        .add(Finalizer::new(move |outcome| lock(&seen.0).push(outcome)));
    (batch, outcomes)
}

/// Names all code without lines, by its file, once it is told to.
pub struct FakeSymbolizer {
    /// The frames in a file, the innermost first; none where it has no names.
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

    /// For a batch.
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
    fn code_location(&self, dictionary: &Dictionary, location: LocationIdx) -> Option<Code> {
        let row = dictionary.locations.get(location);
        let mapping = dictionary.mappings.get(row.location.mapping).mapping;
        row.lines.is_empty().then(|| Code {
            build_id: dictionary.strings.get(mapping.filename).into(),
            place: CodeAddress::Virtual(row.location.address),
        })
    }

    fn lookup(&self, code: &Code) -> SymbolLookup {
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

/// Reads options as a configuration file does; `Err` has every problem, a line each.
pub fn load<C: Config>(text: &str) -> Result<C, String> {
    let mut sources = Sources::default();
    let source = sources
        .add("test", text, None)
        .expect("a test's options are short");
    let node = yaml::parse(&sources, source).expect("a test's options are YAML");
    let mut problems = Problems::default();
    profcol_config::load(&node, &mut problems).ok_or_else(|| problems.to_string())
}

/// The outcomes that were reported.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Arc<Mutex<Vec<Outcome>>>);

/// A context to build a component in, without extensions.
pub fn context(id: &str) -> BuildContext {
    let id: ComponentId = id.parse().expect("a test names a valid id");
    let board = StatusBoard::default();
    BuildContext {
        status: board.component(id.to_string()),
        id,
        pipeline: None,
        meter: Meter::default(),
        board,
        log: RecentLog::default(),
        service: Arc::default(),
        drop_feedback: DropFeedback::default(),
        executables: Executables::default(),
        admission: Admission::unlimited(),
        extensions: Arc::default(),
    }
}

/// Remembers what it is given and answers as told; accepts when it was told nothing.
#[derive(Debug, Default)]
pub struct Sink {
    state: Mutex<SinkState>,
    delivery: Option<Delivery>,
    delay: Duration,
}

#[derive(Debug, Default)]
struct SinkState {
    /// Samples of each batch that was accepted.
    accepted: Vec<usize>,
    offered: usize,
    answers: VecDeque<Refusal>,
}

// === impl Outcomes ===

impl Outcomes {
    pub fn seen(&self) -> Vec<Outcome> {
        lock(&self.0).clone()
    }
}

// === impl Sink ===

impl Sink {
    /// Refuses the next batches, one with each.
    pub fn refusing(refusals: impl IntoIterator<Item = Refusal>) -> Self {
        let sink = Self::default();
        lock(&sink.state).answers.extend(refusals);
        sink
    }

    /// As an exporter, wants to be queued like this.
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = Some(delivery);
        self
    }

    /// Takes this long for each batch.
    pub fn taking(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Samples of each batch that was accepted, in order.
    pub fn accepted(&self) -> Vec<usize> {
        lock(&self.state).accepted.clone()
    }

    /// How many batches were offered, accepted or not.
    pub fn offered(&self) -> usize {
        lock(&self.state).offered
    }

    async fn take(&self, profiles: &Profiles) -> Answer {
        lock(&self.state).offered += 1;
        tokio::time::sleep(self.delay).await;
        let mut state = lock(&self.state);
        if let Some(refusal) = state.answers.pop_front() {
            return Err(refusal);
        }
        state.accepted.push(profiles.sample_count());
        Ok(())
    }
}

#[async_trait]
impl Consumer for Sink {
    async fn consume(&self, batch: Batch) -> Answer {
        match self.take(&batch.profiles).await {
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
        self.take(&batch.profiles)
            .await
            .map(|()| Delivered::default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
