//! Tests of whole services with scripted components.

use parking_lot::Mutex;

use async_trait::async_trait;
use profcol_component::testkit::batch;
use profcol_component::{
    Batch, BuildContext, BuildError, Connector, Delivered, Delivery, DeliverySettings,
    DropFeedback, Entry, Exporter, Extension, Factory, Pipelines, Processor, Refusal, Registry,
    SelfTelemetry, Side, Taps, entry,
};
use profcol_config::{Config, ConfigProviders, Input, PipelineId, ProviderError, resolve};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::*;
use crate::Document;

/// The components' actions, in order.
static ACTIONS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// `ACTIONS` is shared, so these tests run serially.
static SERIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn note(entry: impl Into<String>) {
    ACTIONS.lock().push(entry.into());
}

/// The behaviour of a test component.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct Script {
    batches: usize,
    fails_to_start: bool,
    panics: bool,
    ends: bool,
    returns: bool,
    never_stops: bool,
    refuses: bool,
    queued: bool,
    /// As a processor, reports a dropped process when built; as a receiver, notes whether it can subscribe.
    uses_drop_feedback: bool,
}

impl Config for Script {}

struct Actor {
    name: String,
    pipelines: Arc<[PipelineId]>,
    script: Script,
}

impl Actor {
    fn new(script: &Script, context: &BuildContext) -> Self {
        let is_processor = context.id.to_string().starts_with(Pass::NAME);
        let pipeline = context.pipelines.first().filter(|_| is_processor);
        let pipeline = pipeline.map(|id| format!(" of {id}"));
        let name = format!("{}{}", context.id, pipeline.unwrap_or_default());
        if script.uses_drop_feedback {
            let feedback = DropFeedback::of(context);
            match is_processor {
                true => std::mem::forget(feedback.reporter()),
                false => note(match feedback.subscribe().is_active() {
                    true => format!("{name} gets drop feedback"),
                    false => format!("{name} gets none"),
                }),
            }
        }
        Self {
            name,
            pipelines: Arc::clone(&context.pipelines),
            script: script.clone(),
        }
    }

    fn begin(&self) -> Result<(), StartError> {
        if self.script.fails_to_start {
            return Err(StartError::new("no"));
        }
        note(format!("start {}", self.name));
        Ok(())
    }

    async fn work(&self, stop: Stop) -> Result<(), RunError> {
        if self.script.panics {
            panic!("boom");
        }
        if self.script.ends {
            return Err(RunError::new("gave up"));
        }
        if self.script.returns {
            return Ok(());
        }
        stop.cancelled().await;
        if self.script.never_stops {
            std::future::pending::<()>().await;
        }
        note(format!("stop {}", self.name));
        Ok(())
    }
}

/// A factory of `$node`, which has a `new` and implements `$kind`; `alone` cannot run at the same time as another instance.
macro_rules! factory {
    ($factory:ident, $name:literal, $kind:ty, $node:ident($config:ty)) => {
        struct $factory;
        impl Factory for $factory {
            const NAME: &'static str = $name;
            const IS_EXCLUSIVE: bool = matches!($name.as_bytes(), b"alone");
            type Config = $config;
            type Component = $kind;
            fn build(config: &$config, context: &BuildContext) -> Result<Box<$kind>, BuildError> {
                Ok(Box::new($node::new(config, context)))
            }
        }
    };
}
pub(super) use factory;

factory!(Source, "source", dyn Receiver, Actor(Script));
factory!(Pass, "pass", dyn Processor, Actor(Script));
factory!(Target, "target", dyn Exporter, Actor(Script));
factory!(Helper, "helper", dyn Extension, Actor(Script));
factory!(Alone, "alone", dyn Exporter, Actor(Script));
factory!(Joint, "joint", dyn Connector, Actor(Script));

#[async_trait]
impl Receiver for Actor {
    async fn start(&mut self) -> Result<(), StartError> {
        self.begin()
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        for _ in 0..self.script.batches {
            // The exporter reports refused batches.
            let _ = output.push(batch(1)).await;
        }
        self.work(stop).await
    }
}

#[async_trait]
impl Processor for Actor {
    async fn start(&self) -> Result<(), StartError> {
        self.begin()
    }

    async fn process(
        &self,
        batch: Batch,
        next: &dyn profcol_component::Consumer,
    ) -> profcol_component::Answer {
        next.consume(batch).await
    }

    async fn run(
        self: Arc<Self>,
        _: Arc<dyn profcol_component::Consumer>,
        stop: Stop,
    ) -> Result<(), RunError> {
        self.work(stop).await
    }
}

#[async_trait]
impl Connector for Actor {
    async fn start(&self) -> Result<(), StartError> {
        self.begin()
    }

    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> profcol_component::Answer {
        next.push(batch, &self.pipelines).await
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        self.work(stop).await
    }
}

#[async_trait]
impl Exporter for Actor {
    fn delivery(&self) -> Delivery {
        if self.script.queued {
            DeliverySettings::default().delivery()
        } else {
            Delivery::inline()
        }
    }

    async fn start(&self) -> Result<(), StartError> {
        self.begin()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        if self.script.refuses {
            std::future::pending::<()>().await;
        }
        note(format!(
            "{} got {}",
            self.name,
            batch.profiles.sample_count()
        ));
        Ok(Delivered::default())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        self.work(stop).await
    }
}

#[async_trait]
impl Extension for Actor {
    async fn start(&self) -> Result<(), StartError> {
        self.begin()
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        self.work(stop).await
    }
}

const REGISTRY: Registry = Registry {
    receivers: &[entry::<Source>()] as &[Entry<dyn Receiver>],
    processors: &[entry::<Pass>()],
    exporters: &[entry::<Target>(), entry::<Alone>()],
    connectors: &[entry::<Joint>()],
    extensions: &[entry::<Helper>()],
    foreign: &[],
};

struct NoProviders;

impl ConfigProviders for NoProviders {
    fn env(&self, _: &str) -> Result<Option<String>, ProviderError> {
        Ok(None)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ProviderError> {
        Err(ProviderError::Open {
            path: path.to_owned(),
            error: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn fetch(&self, _: &str) -> Result<Vec<u8>, ProviderError> {
        Err(ProviderError::NoClient)
    }
}

fn document(yaml: &str) -> Document {
    read(yaml, &REGISTRY)
}

pub(super) fn read(yaml: &str, registry: &Registry) -> Document {
    let input = Input {
        configs: vec![format!("yaml:{yaml}")],
        sets: Vec::new(),
    };
    let resolved = resolve(&input, &NoProviders).unwrap_or_else(|error| panic!("{error}"));
    Document::read(&resolved.root, registry)
        .unwrap_or_else(|problems| panic!("{}", problems.report(&resolved.sources)))
}

fn graph(yaml: &str, meter: &Meter) -> Graph {
    let document = document(yaml);
    let telemetry = SelfTelemetry {
        meter: meter.clone(),
        ..SelfTelemetry::default()
    };
    Graph::build(&document, &telemetry).unwrap()
}

async fn start(yaml: &str) -> Result<Service, StartFailure> {
    ACTIONS.lock().clear();
    let meter = Meter::default();
    Service::start(graph(yaml, &meter), &meter).await
}

fn actions() -> Vec<String> {
    ACTIONS.lock().clone()
}

#[tokio::test]
async fn starts_against_the_flow_of_data_and_stops_with_it() {
    let _serial = SERIAL.lock().await;
    let service = start(
        "{receivers: {source: {batches: 2}}, processors: {pass/1: , pass/2: }, exporters: {target: }, extensions: {helper: },
          service: {extensions: [helper], pipelines: {profiles: {receivers: [source], processors: [pass/1, pass/2], exporters: [target]}}}}",
    )
    .await
    .unwrap();
    while actions().len() < 7 {
        tokio::task::yield_now().await;
    }
    let report = service.stop(Duration::from_secs(5)).await;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(
        actions(),
        [
            "start helper",
            "start target",
            "start pass/1 of profiles",
            "start pass/2 of profiles",
            "start source",
            "target got 1",
            "target got 1",
            "stop source",
            "stop pass/1 of profiles",
            "stop pass/2 of profiles",
            "stop target",
            "stop helper",
        ]
    );
}

#[tokio::test]
async fn joined_pipelines_start_from_the_end_and_stop_from_the_beginning() {
    let _serial = SERIAL.lock().await;
    let service = start(
        "{receivers: {source: {batches: 1}}, processors: {pass: }, exporters: {target: }, connectors: {joint/1: , joint/2: },
          service: {pipelines: {profiles/in: {receivers: [source], processors: [pass], exporters: [joint/1]},
                                profiles/end: {receivers: [joint/2, joint/1], processors: [pass], exporters: [target]},
                                profiles/way: {receivers: [joint/1], processors: [pass], exporters: [joint/2]}}}}",
    )
    .await
    .unwrap();
    while actions().len() < 9 {
        tokio::task::yield_now().await;
    }
    let report = service.stop(Duration::from_secs(5)).await;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(
        actions(),
        [
            "start target",
            "start pass of profiles/end",
            "start joint/2",
            "start pass of profiles/way",
            "start joint/1",
            "start pass of profiles/in",
            "start source",
            "target got 1",
            "target got 1",
            "stop source",
            "stop pass of profiles/in",
            "stop joint/1",
            "stop pass of profiles/way",
            "stop joint/2",
            "stop pass of profiles/end",
            "stop target",
        ]
    );
}

#[tokio::test]
async fn a_reload_keeps_a_connector_until_it_feeds_other_pipelines() {
    let _serial = SERIAL.lock().await;
    let config = |ins: &str, outs: &[&str]| {
        let outs = outs.iter().map(|id| {
            format!(
                "profiles/{id}: {{receivers: [joint], processors: [pass], exporters: [target]}}"
            )
        });
        let outs = outs.collect::<Vec<_>>().join(", ");
        format!(
            "{{receivers: {{source: }}, processors: {{pass: }}, exporters: {{target: }}, connectors: {{joint: }},
               service: {{pipelines: {{profiles/in: {{receivers: [source], processors: [{ins}], exporters: [joint]}}, {outs}}}}}}}"
        )
    };
    let mut service = start(&config("", &["a"])).await.unwrap();
    let reloaded = reload(&mut service, &config("pass", &["a"]))
        .await
        .0
        .unwrap();
    assert_eq!(reloaded.added, ["processor pass in pipeline profiles/in"]);
    assert_eq!(
        (reloaded.kept, reloaded.replaced.len()),
        (4, 0),
        "{reloaded:?}"
    );
    let reloaded = reload(&mut service, &config("pass", &["a", "b"]))
        .await
        .0
        .unwrap();
    assert_eq!(reloaded.added, ["processor pass in pipeline profiles/b"]);
    assert_eq!(reloaded.replaced, ["connector joint"]);
    assert_eq!(reloaded.kept, 4, "{reloaded:?}");
    let report = service.stop(Duration::from_secs(5)).await;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
}

#[tokio::test]
async fn one_instance_of_a_receiver_feeds_all_its_pipelines() {
    let _serial = SERIAL.lock().await;
    let service = start(
        "{receivers: {source: {batches: 1}}, processors: {pass: }, exporters: {target/a: , target/b: , target/unused: },
          service: {pipelines: {profiles: {receivers: [source], processors: [pass], exporters: [target/a]},
                                profiles/2: {receivers: [source], processors: [pass], exporters: [target/a, target/b]}}}}",
    )
    .await
    .unwrap();
    while actions().iter().filter(|line| line.contains("got")).count() < 3 {
        tokio::task::yield_now().await;
    }
    service.stop(Duration::from_secs(5)).await;
    let count = |text: &str| actions().iter().filter(|line| *line == text).count();
    assert_eq!((count("target/a got 1"), count("target/b got 1")), (2, 1));
    assert_eq!((count("start source"), count("start target/a")), (1, 1));
    assert_eq!(
        (
            count("start pass of profiles"),
            count("start pass of profiles/2")
        ),
        (1, 1)
    );
    assert_eq!(count("start target/unused"), 0);
}

#[tokio::test]
async fn no_drop_feedback_if_one_pipeline_keeps_everything() {
    let _serial = SERIAL.lock().await;
    let service = start(
        "{receivers: {source/one: {uses_drop_feedback: true}, source/two: {uses_drop_feedback: true}},
          processors: {pass: {uses_drop_feedback: true}}, exporters: {target: },
          service: {pipelines: {profiles: {receivers: [source/one, source/two], processors: [pass], exporters: [target]},
                                profiles/2: {receivers: [source/two], exporters: [target]}}}}",
    )
    .await
    .unwrap();
    service.stop(Duration::from_secs(5)).await;
    let entries = actions();
    assert_eq!(
        entries[..2],
        ["source/one gets drop feedback", "source/two gets none"]
    );
}

#[tokio::test]
async fn running_components_are_stopped_if_one_fails_to_start() {
    let _serial = SERIAL.lock().await;
    let failure = start(
        "{receivers: {source: {fails_to_start: true}}, exporters: {target: },
          service: {pipelines: {profiles: {receivers: [source], exporters: [target]}}}}",
    )
    .await
    .err()
    .unwrap();
    assert_eq!(failure.to_string(), "failed to start receiver source: no");
    assert_eq!(actions(), ["start target", "stop target"]);
}

#[tokio::test]
async fn a_component_that_panics_or_ends_is_named() {
    let _serial = SERIAL.lock().await;
    let cases = [
        (
            "{receivers: {source: {panics: true}}, exporters: {target: }",
            "receiver source: panicked: boom",
        ),
        (
            "{receivers: {source: {ends: true}}, exporters: {target: }",
            "receiver source: gave up",
        ),
        (
            "{receivers: {source: }, exporters: {target: {panics: true}}",
            "exporter target: panicked: boom",
        ),
    ];
    for (components, expected) in cases {
        let pipeline =
            "service: {pipelines: {profiles: {receivers: [source], exporters: [target]}}}}";
        let mut service = start(&format!("{components}, {pipeline}")).await.unwrap();
        assert_eq!(service.ended().await.unwrap().to_string(), expected);
        service.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn ends_when_all_receivers_have() {
    let _serial = SERIAL.lock().await;
    let pipelines = "exporters: {target: }, service: {pipelines: {profiles: {receivers: [source, source/2], exporters: [target]}}}}";
    for (receivers, expected) in [
        ("{source: {returns: true}, source/2: {returns: true}}", None),
        (
            "{source: {returns: true}, source/2: {ends: true}}",
            Some("receiver source/2: gave up".to_owned()),
        ),
    ] {
        let yaml = format!("{{receivers: {receivers}, {pipelines}");
        let mut service = start(&yaml).await.unwrap();
        let ended = service.ended().await;
        assert_eq!(ended.map(|failure| failure.to_string()), expected);
        service.stop(Duration::from_secs(5)).await;
    }
    let one_goes_on = "{source: {returns: true}, source/2: }";
    let yaml = format!("{{receivers: {one_goes_on}, {pipelines}");
    let mut service = start(&yaml).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(20), service.ended());
    assert!(waiting.await.is_err());
    service.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn all_stages_of_a_stop_share_one_deadline() {
    let _serial = SERIAL.lock().await;
    let service = start(
        "{receivers: {source: {never_stops: true}}, processors: {pass: {never_stops: true}}, exporters: {target: },
          service: {pipelines: {profiles: {receivers: [source], processors: [pass], exporters: [target]}}}}",
    )
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    let report = service.stop(Duration::from_secs(5)).await;
    assert!(
        began.elapsed() <= Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let late: Vec<&str> = report
        .failures
        .iter()
        .map(|failure| failure.task.as_str())
        .collect();
    assert!(
        late.starts_with(&["receiver source", "processor pass in pipeline profiles"]),
        "{late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn undelivered_samples_at_the_deadline_are_counted() {
    let _serial = SERIAL.lock().await;
    let service = start(
        "{receivers: {source: {batches: 3}}, exporters: {target: {queued: true, refuses: true}},
          service: {pipelines: {profiles: {receivers: [source], exporters: [target]}}}}",
    )
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let report = service.stop(Duration::from_secs(1)).await;
    assert_eq!(report.balance.cut_off(), 3);
    assert_eq!(report.balance.exporters(), "target: delivered=0 shutdown=3");
    assert_eq!(report.balance.receivers(), "source: passed_on=3");
}

/// Reloads and returns what the components did meanwhile.
async fn reload(
    service: &mut Service,
    yaml: &str,
) -> (Result<Reloaded, ReloadFailure>, Vec<String>) {
    ACTIONS.lock().clear();
    let reloaded = service.reload(&document(yaml), &Stop::new()).await;
    while let Some(ended) = service.draining.join_next().await {
        assert!(ended.unwrap().is_empty());
    }
    let mut entries = actions();
    entries.retain(|entry| !entry.contains(" got "));
    (reloaded, entries)
}

fn with(processors: &str, exporters: &str, settings: &str) -> String {
    format!(
        "{{receivers: {{source: {{batches: 1}}}}, processors: {{pass/a: , pass/b: , pass/c: }},
           exporters: {{target: , target/2: {settings}}},
           service: {{pipelines: {{profiles: {{receivers: [source], processors: [{processors}], exporters: [{exporters}]}}}}}}}}"
    )
}

#[tokio::test]
async fn a_reload_touches_only_what_has_changed() {
    let _serial = SERIAL.lock().await;
    let mut service = start(&with("pass/a, pass/b", "target", "")).await.unwrap();
    let cases: [(&str, &str, &str, &[&str]); 6] = [
        ("pass/a, pass/b", "target", "", &[]),
        (
            "pass/a, pass/b",
            "target, target/2",
            "",
            &["start target/2"],
        ),
        (
            "pass/a, pass/b",
            "target, target/2",
            "{queued: true}",
            &["start target/2", "stop target/2"],
        ),
        (
            "pass/a, pass/c, pass/b",
            "target",
            "",
            &["start pass/c of profiles", "stop target/2"],
        ),
        (
            "pass/b",
            "target",
            "",
            &["stop pass/a of profiles", "stop pass/c of profiles"],
        ),
        (
            "pass/b, pass/a",
            "target",
            "",
            &["start pass/a of profiles"],
        ),
    ];
    for (processors, exporters, settings, expected) in cases {
        let yaml = with(processors, exporters, settings);
        let (reloaded, entries) = reload(&mut service, &yaml).await;
        reloaded.unwrap();
        assert_eq!(entries, expected, "{processors} to {exporters} {settings}");
    }
    // In another order none is kept: a batch on its way would pass one twice.
    let yaml = with("pass/a, pass/b", "target", "");
    let (_, entries) = reload(&mut service, &yaml).await;
    assert_eq!(entries.len(), 4, "{entries:?}");
    service.stop(Duration::from_secs(5)).await;
}

/// The components that a batch passes, as a subscriber to all of them sees it.
async fn passed(service: &Service, taps: &Taps) -> Vec<String> {
    let subscription = taps.subscribe(|_| true).unwrap();
    seen(service, &subscription).await
}

async fn seen(service: &Service, subscription: &profcol_component::TapSubscription) -> Vec<String> {
    let [feed] = &service.graph.receivers[..] else {
        panic!("one receiver");
    };
    profcol_component::Consumer::consume(&*feed.next, batch(7))
        .await
        .unwrap();
    let mut seen = Vec::new();
    loop {
        let passed = subscription.next().await;
        let side = match passed.point.side {
            Side::Input => "into",
            Side::Output => "out of",
        };
        // Not the batch that the receiver sends at its start.
        if passed.batch.profiles.sample_count() == 7 {
            seen.push(format!("{side} {}", passed.point.id));
        }
        if passed.point.kind == profcol_component::Kind::Exporter && !seen.is_empty() {
            return seen;
        }
    }
}

#[tokio::test]
async fn subscriptions_survive_a_reload() {
    let _serial = SERIAL.lock().await;
    let mut service = start(&with("pass/a", "target/2", "")).await.unwrap();
    let taps = service.graph.context.shared.get::<Taps>();
    let subscription = taps.subscribe(|_| true).unwrap();
    let before = [
        "out of source",
        "into pass/a",
        "out of pass/a",
        "into target/2",
    ];
    assert_eq!(seen(&service, &subscription).await, before);
    // A processor is added, and the exporter replaced.
    let (reloaded, _) = reload(
        &mut service,
        &with("pass/a, pass/b", "target/2", "{queued: true}"),
    )
    .await;
    assert_eq!(reloaded.unwrap().kept, 2);
    assert_eq!(seen(&service, &subscription).await, before);
    let after = [
        &before[..3],
        &["into pass/b", "out of pass/b"],
        &before[3..],
    ]
    .concat();
    assert_eq!(passed(&service, &taps).await, after);
    // The processor leaves again.
    let (reloaded, _) = reload(&mut service, &with("pass/a", "target/2", "{queued: true}")).await;
    assert_eq!(reloaded.unwrap().removed.len(), 1);
    assert!(taps.subscribe(|point| point.id == "pass/b").is_err());
    service.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_refused_reload_changes_nothing() {
    let _serial = SERIAL.lock().await;
    let yaml = with("pass/a", "target", "");
    let mut service = start(&yaml).await.unwrap();
    let broken = with(
        "pass/a, pass/b",
        "target, target/2",
        "{fails_to_start: true}",
    );
    let (refused, entries) = reload(&mut service, &broken).await;
    let expected = "failed to start exporter target/2: no";
    assert_eq!(refused.unwrap_err().to_string(), expected);
    assert_eq!(entries, [""; 0]);
    let mut telemetry = document(&yaml);
    telemetry.service.telemetry.logs.encoding = crate::telemetry::LogEncoding::Json;
    let refused = service.reload(&telemetry, &Stop::new()).await;
    assert!(matches!(
        refused,
        Err(ReloadFailure::NeedsRestart("service::telemetry"))
    ));
    let (reloaded, entries) = reload(&mut service, &yaml).await;
    assert_eq!((reloaded.unwrap().kept, entries.len()), (3, 0));
    let report = service.stop(Duration::from_secs(5)).await;
    assert_eq!(report.balance.exporters(), "target: delivered=1");
}

#[tokio::test(start_paused = true)]
async fn what_a_replaced_exporter_cannot_deliver_is_counted() {
    let _serial = SERIAL.lock().await;
    let hanging = with("", "target/2", "{queued: true, refuses: true}");
    let mut service = start(&hanging).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (reloaded, _) = reload(&mut service, &with("", "target/2", "")).await;
    assert_eq!(reloaded.unwrap().replaced, ["exporter target/2"]);
    let report = service.stop(Duration::from_secs(1)).await;
    assert_eq!(report.balance.exporters(), "target/2: delivered=0 reload=1");
    assert_eq!(report.balance.cut_off(), 0);
}

#[tokio::test]
async fn an_exclusive_component_stops_before_the_next_one_starts() {
    let _serial = SERIAL.lock().await;
    let yaml = |settings: &str| {
        format!(
            "{{receivers: {{source: }}, exporters: {{alone: {settings}}},
               service: {{pipelines: {{profiles: {{receivers: [source], exporters: [alone]}}}}}}}}"
        )
    };
    let mut service = start(&yaml("")).await.unwrap();
    let (reloaded, entries) = reload(&mut service, &yaml("{batches: 1}")).await;
    reloaded.unwrap();
    assert_eq!(entries, ["stop alone", "start alone"]);
    let (refused, entries) = reload(&mut service, &yaml("{fails_to_start: true}")).await;
    assert!(matches!(refused, Err(ReloadFailure::Start(_))));
    assert_eq!(
        entries,
        ["stop alone", "start alone"],
        "the old one is back"
    );
    service.stop(Duration::from_secs(5)).await;
}
