//! Rules for every component.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use profcol::REGISTRY;
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Delivered, Delivery, Entry, Exporter, Factory,
    ForeignComponent, Kind, Meter, Output, Receiver, Refusal, Registry, RunError, SelfTelemetry,
    Stop, entry, testkit,
};
use profcol_config::schema::options;
use profcol_config::{
    ComponentId, Config, Input, Node, Problems, Resolved, Sources, SystemProviders, print, resolve,
    yaml,
};
use profcol_engine::{Document, Graph, Service};
use profcol_test_harness::support::{is_root, path, root, run};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Overrides of options in examples that a test must not use, applied if the component exists.
const OVERRIDES: &[(&str, &str, &str)] = &[
    ("receivers", "otlp", "protocols.grpc.endpoint=127.0.0.1:0"),
    ("receivers", "otlp", "protocols.http.endpoint=127.0.0.1:0"),
    ("receivers", "otlp_file", "include=[DIRECTORY/*.jsonl]"),
    ("receivers", "padata", "storage_path=DIRECTORY"),
    ("receivers", "parca", "endpoint=127.0.0.1:0"),
    ("processors", "k8s_attributes", "passthrough=true"),
    (
        "processors",
        "probabilistic_sampler",
        "sampling_percentage=100",
    ),
    ("exporters", "file", "path=DIRECTORY/profiles.jsonl"),
    ("exporters", "live_view", "endpoint=127.0.0.1:0"),
    (
        "exporters",
        "load_balancing",
        "resolver.dns.hostname=127.0.0.1",
    ),
    ("exporters", "load_balancing", "resolver.dns.port=GRPC"),
    ("exporters", "otlp_grpc", "endpoint=http://127.0.0.1:GRPC"),
    ("exporters", "otlp_http", "endpoint=http://127.0.0.1:HTTP"),
    ("exporters", "padata", "storage_path=DIRECTORY"),
    ("exporters", "parca", "endpoint=127.0.0.1:PARCA"),
    ("exporters", "pprof_file", "directory=DIRECTORY"),
    ("exporters", "profile_file", "path=DIRECTORY/profile.html"),
    ("extensions", "basicauth", "htpasswd.file=DIRECTORY/secrets"),
    (
        "extensions",
        "bearertokenauth",
        "filename=DIRECTORY/secrets",
    ),
    ("extensions", "file_storage", "directory=DIRECTORY/storage"),
    ("extensions", "health_check", "endpoint=127.0.0.1:0"),
];

/// Components that only root can start, with their error for other users.
const FOR_ROOT: &[(Kind, &str, &str)] = &[(
    Kind::Receiver,
    "ebpf_cpu",
    "failed to start receiver ebpf_cpu: ",
)];

/// Long enough for any working shutdown; still detects one that hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// One component, without its type.
struct Component {
    kind: Kind,
    name: &'static str,
    names: Vec<&'static str>,
    schema: Value,
    load: Load,
}

/// Loads a configuration and returns it with all defaults.
type Load = Box<dyn Fn(&Node, &mut Problems) -> Option<Value>>;

fn components() -> Vec<Component> {
    let mut all = of(Kind::Receiver, REGISTRY.receivers);
    all.extend(of(Kind::Processor, REGISTRY.processors));
    all.extend(of(Kind::Exporter, REGISTRY.exporters));
    all.extend(of(Kind::Connector, REGISTRY.connectors));
    all.extend(of(Kind::Extension, REGISTRY.extensions));
    all
}

fn of<C: ?Sized>(kind: Kind, entries: &'static [Entry<C>]) -> Vec<Component> {
    let component = |entry: &'static Entry<C>| Component {
        kind,
        name: entry.name,
        names: [&[entry.name], entry.aliases].concat(),
        schema: (entry.schema)(),
        load: Box::new(|node, problems| {
            let config = (entry.load)(node, problems)?;
            Some(config.resolved().expect("configurations can be printed"))
        }),
    };
    entries.iter().map(component).collect()
}

impl Component {
    fn folder(&self) -> PathBuf {
        root().join(format!("components/{}s/{}", self.kind, self.name))
    }

    fn read(&self, file: &str) -> String {
        let path = self.folder().join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

fn parse(text: &str) -> Node {
    let mut sources = Sources::default();
    let id = sources.add("test", text, None).expect("small");
    yaml::parse(&sources, id).unwrap_or_else(|problem| panic!("{problem}:\n{text}"))
}

/// A test environment: a directory, and ports with and without listeners.
struct Environment {
    folder: tempfile::TempDir,
    grpc: u16,
    http: u16,
    parca: u16,
}

impl Environment {
    fn new() -> Self {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = |free: &std::net::TcpListener| free.local_addr().expect("bound").port();
        let (grpc, http, parca) = (free(), free(), free());
        let folder = tempfile::tempdir().expect("can create a temporary directory");
        std::fs::write(folder.path().join("secrets"), "user:password\n").expect("written");
        Self {
            folder,
            grpc: port(&grpc),
            http: port(&http),
            parca: port(&parca),
        }
    }

    /// Resolves `configs`, changed so that they use nothing outside this environment.
    fn resolve(&self, configs: &[&str]) -> Resolved {
        let mut input = Input {
            configs: configs.iter().map(ToString::to_string).collect(),
            sets: Vec::new(),
        };
        let read = |input: &Input| {
            resolve(input, &SystemProviders::default()).unwrap_or_else(|error| panic!("{error}"))
        };
        let written = read(&input).root;
        for (section, component, set) in OVERRIDES {
            let option = set.split('=').next().unwrap_or_default();
            let protocol = option
                .strip_suffix(".endpoint")
                .and_then(|o| o.strip_prefix("protocols."));
            let component_there = written.get(section).and_then(|s| s.get(component));
            let there = component_there.is_some_and(|component| {
                let protocols = || component.get("protocols")?.as_map();
                protocol
                    .is_none_or(|protocol| protocols().is_some_and(|p| p.contains_key(protocol)))
            });
            if there {
                let set = set.replace("DIRECTORY", path(self.folder.path()));
                let set = set.replace("GRPC", &self.grpc.to_string());
                let set = set.replace("HTTP", &self.http.to_string());
                let set = set.replace("PARCA", &self.parca.to_string());
                input.sets.push(format!("{section}.{component}.{set}"));
            }
        }
        read(&input)
    }
}

fn document(resolved: &Resolved, registry: &Registry) -> Document {
    Document::read(&resolved.root, registry)
        .unwrap_or_else(|problems| panic!("{}", problems.report(&resolved.sources)))
}

#[test]
fn names_are_unique_and_valid() {
    let mut seen = BTreeSet::new();
    for Component { kind, names, .. } in components() {
        for name in names {
            assert!(seen.insert((kind, name)), "two {kind}s are called {name}");
            // A pipeline names it among its receivers and exporters.
            let is_end = |kind: &Kind| matches!(kind, Kind::Receiver | Kind::Exporter);
            let clash = match kind {
                Kind::Connector => seen.iter().any(|(other, it)| is_end(other) && *it == name),
                _ => false,
            };
            assert!(!clash, "a receiver or exporter is called {name}, too");
            let id = name.parse::<ComponentId>().expect(name);
            assert_eq!((id.kind(), id.name()), (name, None));
        }
    }
}

#[test]
fn unknown_keys_are_rejected_with_a_suggestion() {
    for Component {
        kind,
        name,
        schema,
        load,
        ..
    } in components()
    {
        let known = schema.get("properties").and_then(Value::as_object);
        let key = known.and_then(|known| known.keys().find(|key| key.len() > 3));
        let (text, help) = match key {
            Some(key) => (format!("{key}s: "), format!("did you mean \"{key}\"?")),
            None => (
                "nobody_knows: ".to_owned(),
                "this section has no keys".to_owned(),
            ),
        };
        let mut problems = Problems::default();
        assert_eq!(
            load(&parse(&text), &mut problems),
            None,
            "{kind} {name} takes {text}"
        );
        let refused = problems.iter().any(|problem| {
            problem.message.starts_with("has invalid keys:") && problem.help.as_ref() == Some(&help)
        });
        assert!(refused, "{kind} {name} and {text}: {problems}");
    }
}

#[test]
fn empty_endpoints_are_rejected() {
    let mut checked = 0;
    for Component {
        kind,
        name,
        schema,
        load,
        ..
    } in components()
    {
        let options = options(&schema);
        let endpoints = options.iter().map(|option| option.path.as_str());
        // That of `load_balancing` comes from its resolver.
        let endpoints = endpoints.filter(|path| *path != "protocol::otlp::endpoint");
        for endpoint in endpoints.filter(|path| path.split("::").last() == Some("endpoint")) {
            let sections: Vec<&str> = endpoint.split("::").collect();
            let written = format!(
                "{{{}: \"\"{}",
                sections.join(": {"),
                "}".repeat(sections.len())
            );
            let written = match endpoint {
                "kubelet::endpoint" => written.replacen('{', "{source: kubelet, ", 1),
                _ => written,
            };
            let mut problems = Problems::default();
            let loaded = load(&parse(&written), &mut problems);
            let is_named = problems.iter().any(|problem| problem.path == sections);
            assert!(
                loaded.is_none() && is_named,
                "{kind} {name} takes {written}: {problems}"
            );
            checked += 1;
        }
    }
    assert!(checked >= 8, "{checked}");
}

#[test]
fn foreign_components_are_named_once_and_are_not_ours() {
    let mut seen = BTreeSet::new();
    for ForeignComponent {
        kind,
        names,
        instead,
    } in REGISTRY.foreign
    {
        for name in *names {
            assert!(seen.insert((*kind, name)), "duplicate {kind} {name}");
            let id = name.parse::<ComponentId>().expect(name);
            assert_eq!((id.kind(), id.name()), (*name, None));
            let ours = components();
            let mut ours = ours.iter().filter(|it| it.kind == *kind);
            assert!(!ours.any(|it| it.names.contains(name)), "{kind} {name}");
        }
        let words = instead.split([' ', ';', ',']);
        for file in words.filter(|word| word.starts_with("config-examples/")) {
            assert!(root().join(file).is_file(), "{file}");
        }
    }
}

/// Disabled options print as `null`, like in the Collector; in a configuration, some of those keys mean
/// "enabled with defaults".
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let there = map.iter().filter(|(_, value)| !value.is_null());
            there
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        leaf => leaf.clone(),
    }
}

#[test]
fn printed_configurations_can_be_read_again() {
    for Component {
        kind, name, load, ..
    } in components()
    {
        let example = root().join(format!("components/{kind}s/{name}/example.yaml"));
        let example = parse(&std::fs::read_to_string(example).unwrap_or_default());
        let section = example.get(&format!("{kind}s"));
        let written = section.and_then(|section| {
            section
                .as_map()?
                .iter()
                .find(|(id, _)| id.split('/').next() == Some(name))
        });
        let (_, written) = written.unwrap_or_else(|| panic!("{kind} {name}: not in its example"));
        let mut problems = Problems::default();
        for start in [&written.node, &parse("{}")] {
            // Some components have no working default configuration.
            let Some(first) = load(start, &mut problems) else {
                assert!(
                    start.as_map().is_some_and(profcol_config::Map::is_empty),
                    "{problems}"
                );
                continue;
            };
            let mut problems = Problems::default();
            let again = parse(&print::to_yaml(&without_nulls(&first)));
            assert_eq!(
                load(&again, &mut problems),
                Some(first),
                "{kind} {name}: {problems}"
            );
        }
    }
}

#[test]
fn every_readme_has_its_sections() {
    for component in components() {
        let text = component.read("README.md");
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with('#')).collect();
        let title = format!("# {}", component.name);
        let expected = [
            title.as_str(),
            "## Configuration",
            "## Example",
            "## Telemetry",
            "## Limits",
        ];
        assert_eq!(headings, expected, "{} {}", component.kind, component.name);
    }
}

#[test]
fn every_example_is_valid() {
    let examples = components();
    let examples = examples.iter().map(|c| c.folder().join("example.yaml"));
    all_are_valid(examples.collect());
}

#[test]
fn every_whole_configuration_is_valid() {
    let files = std::fs::read_dir(root().join("config-examples")).expect("the directory exists");
    let files = files.map(|entry| entry.expect("readable").path());
    let configs: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    assert!(configs.len() >= 4, "{configs:?}");
    all_are_valid(configs);
}

fn all_are_valid(files: Vec<PathBuf>) {
    let answers = files
        .iter()
        .map(|file| run(&["validate", "--config", path(file)]));
    let wrong: Vec<_> = answers
        .filter(|answer| answer.code != Some(0))
        .map(|a| a.stderr)
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_starts_and_stops() {
    for component in components() {
        let environment = Environment::new();
        let example = environment.resolve(&[path(&component.folder().join("example.yaml"))]);
        let what = format!("{} {}", component.kind, component.name);
        let document = document(&example, &REGISTRY);
        for directory in document.writes() {
            assert!(
                directory.starts_with(environment.folder.path()),
                "{what} would write to {}: add an entry to OVERRIDES in this file",
                directory.display()
            );
        }
        assert!(
            document.writes().is_empty()
                || document.capabilities().contains(Capabilities::DAC_OVERRIDE),
            "{what} writes files: root must be able to write to the directories of other users"
        );
        let for_root = FOR_ROOT
            .iter()
            .find(|(kind, name, _)| (*kind, *name) == (component.kind, component.name));
        if let Some((.., refusal)) = for_root
            && !is_root()
        {
            let error = try_start(&document, &Meter::default()).await.map(drop);
            let error = error.expect_err("only root can start it").to_string();
            assert!(error.starts_with(refusal), "{what}: {error}");
            continue;
        }
        let service = start(&document, &Meter::default(), &what).await;
        let stopped = tokio::time::timeout(DEADLINE, service.stop(DEADLINE / 2)).await;
        let report = stopped.unwrap_or_else(|_| panic!("{what} does not stop"));
        assert!(report.failures.is_empty(), "{what}: {:?}", report.failures);
    }
}

async fn start(document: &Document, meter: &Meter, what: &str) -> Service {
    let started = try_start(document, meter).await;
    started.unwrap_or_else(|error| panic!("{what}: {error}"))
}

async fn try_start(
    document: &Document,
    meter: &Meter,
) -> Result<Service, Box<dyn std::error::Error>> {
    let telemetry = SelfTelemetry {
        meter: meter.clone(),
        ..SelfTelemetry::default()
    };
    let graph = Graph::build(document, &telemetry)?;
    Ok(Service::start(graph, meter).await?)
}

/// The number of samples of [`Source`].
const SAMPLES: usize = 4 * 25;

/// Pushes [`SAMPLES`] samples in four batches, retrying each until accepted, then waits for shutdown.
struct Source;

/// Accepts everything.
struct Sink;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct Nothing {}

impl Config for Nothing {}

impl Factory for Source {
    const NAME: &'static str = "source";
    type Config = Nothing;
    type Component = dyn Receiver;

    fn build(_: &Nothing, _: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Source))
    }
}

#[async_trait]
impl Receiver for Source {
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        for _ in 0..4 {
            while let Err(refusal) = output.push(testkit::batch(SAMPLES / 4)).await {
                if !refusal.is_retryable() {
                    return Err(RunError::new(refusal.to_string()));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        stop.cancelled().await;
        Ok(())
    }
}

impl Factory for Sink {
    const NAME: &'static str = "sink";
    type Config = Nothing;
    type Component = dyn Exporter;

    fn build(_: &Nothing, _: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Sink))
    }
}

#[async_trait]
impl Exporter for Sink {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Ok(Delivered::default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_loses_nothing() {
    const SOURCES: &[Entry<dyn Receiver>] = &[entry::<Source>()];
    const SINKS: &[Entry<dyn Exporter>] = &[entry::<Sink>()];
    let environment = Environment::new();
    let backend = backend(&environment).await;
    for component in components() {
        let Component { kind, name, .. } = component;
        if (kind, name) == (Kind::Exporter, "kafka") {
            // `tests/kafka` has a broker.
            continue;
        }
        let (registry, cleared, ends) = match kind {
            Kind::Processor => (
                Registry {
                    receivers: SOURCES,
                    exporters: SINKS,
                    ..REGISTRY
                },
                "{receivers: , exporters: , service: }",
                format!(
                    "exporters: {{sink: }}, service: {{pipelines: {{profiles: {{receivers: [source], processors: [{name}], exporters: [sink]}}}}}}"
                ),
            ),
            Kind::Exporter => (
                Registry {
                    receivers: SOURCES,
                    ..REGISTRY
                },
                "{receivers: , processors: , service: }",
                format!(
                    "service: {{pipelines: {{profiles: {{receivers: [source], exporters: [{name}]}}}}}}"
                ),
            ),
            Kind::Connector => {
                let example =
                    environment.resolve(&[path(&component.folder().join("example.yaml"))]);
                (
                    Registry {
                        receivers: SOURCES,
                        exporters: SINKS,
                        ..REGISTRY
                    },
                    "{receivers: , processors: , exporters: }",
                    between_source_and_sink(&document(&example, &REGISTRY)),
                )
            }
            Kind::Receiver | Kind::Extension => continue,
        };
        let resolved = environment.resolve(&[
            path(&component.folder().join("example.yaml")),
            &format!("yaml:{cleared}"),
            &format!("yaml:{{receivers: {{source: }}, {ends}}}"),
        ]);
        let meter = Meter::default();
        let what = format!("{kind} {name}");
        let service = start(&document(&resolved, &registry), &meter, &what).await;
        let report = service.stop(DEADLINE).await;
        assert!(report.failures.is_empty(), "{what}: {:?}", report.failures);
        assert_eq!(report.balance.lost(), 0, "{what}");
        let expected = match kind {
            // It may pass on copies.
            Kind::Connector => {
                let consumed = total(&meter, "otelcol_connector_consumed_items");
                assert_eq!(consumed, SAMPLES, "{what}:\n{}", text(&meter));
                total(&meter, "otelcol_connector_produced_items")
            }
            _ => SAMPLES,
        };
        let sent = total(&meter, "otelcol_exporter_sent_profile_samples");
        assert_eq!(sent, expected, "{what}:\n{}", text(&meter));
        assert!(sent >= SAMPLES, "{what}:\n{}", text(&meter));
    }
    backend.stop(DEADLINE).await;
}

/// The pipelines of a configuration with [`Source`] and [`Sink`] at their ends.
fn between_source_and_sink(document: &Document) -> String {
    let end = |ids: &[ComponentId], end: &str| {
        let is_connector = |id: &&ComponentId| document.connectors.iter().any(|it| it.id == **id);
        let connectors: Vec<String> = (ids.iter().filter(is_connector))
            .map(ToString::to_string)
            .collect();
        match connectors.is_empty() {
            true => end.to_owned(),
            false => connectors.join(", "),
        }
    };
    let pipelines = document.service.pipelines.iter().map(|pipeline| {
        let (id, receivers) = (&pipeline.id, end(&pipeline.receivers, "source"));
        let exporters = end(&pipeline.exporters, "sink");
        format!("{id}: {{receivers: [{receivers}], processors: [], exporters: [{exporters}]}}")
    });
    let pipelines = pipelines.collect::<Vec<_>>().join(", ");
    format!("exporters: {{sink: }}, service: {{pipelines: {{{pipelines}}}}}")
}

/// The destination of network exporters.
async fn backend(environment: &Environment) -> Service {
    let config = format!(
        "yaml:{{receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:{}'}}, http: {{endpoint: '127.0.0.1:{}'}}}}}}, parca: {{endpoint: '127.0.0.1:{}'}}}}, exporters: {{nop: }}, service: {{pipelines: {{profiles: {{receivers: [otlp, parca], exporters: [nop]}}}}}}}}",
        environment.grpc, environment.http, environment.parca
    );
    let input = Input {
        configs: vec![config],
        sets: Vec::new(),
    };
    let resolved = resolve(&input, &SystemProviders::default()).expect("valid");
    start(
        &document(&resolved, &REGISTRY),
        &Meter::default(),
        "backend",
    )
    .await
}

fn text(meter: &Meter) -> String {
    String::from_utf8(meter.render().expect("rendered")).expect("UTF-8")
}

/// The sum of a counter's series.
fn total(meter: &Meter, name: &str) -> usize {
    let text = text(meter);
    let counts = text.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|it| it.starts_with('{'))
    });
    counts
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum()
}
