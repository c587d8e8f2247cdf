//! Handmade configurations of fake components: what is accepted, each problem with its place and help, and the schema.

use profcol_component::{
    Batch, BuildContext, BuildError, Consumer, Delivered, Delivery, Factory, Output, Pipelines,
    Refusal, RunError, Stop, entry,
};
use profcol_config::{Input, Resolved, Secret, SystemProviders, resolve};

use super::*;

/// A component of any kind with one field of each type.
struct Fake;

/// A fake component.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct FakeConfig {
    /// Has a limit.
    size: u32,
    token: Secret,
}

impl Config for FakeConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.size > 9 {
            problems.add("size", "must be less than 10");
        }
    }
}

macro_rules! fake {
    ($name:ident, $written:literal, $aliases:expr, $kind:ty) => {
        struct $name;
        impl Factory for $name {
            const NAME: &'static str = $written;
            const ALIASES: &'static [&'static str] = $aliases;
            type Config = FakeConfig;
            type Component = $kind;
            fn build(_: &FakeConfig, _: &BuildContext) -> Result<Box<$kind>, BuildError> {
                Ok(Box::new(Fake))
            }
        }
    };
}

fake!(Source, "source", &["old_source"], dyn Receiver);
fake!(Middle, "middle", &[], dyn Processor);
fake!(Sink, "sink", &[], dyn Exporter);
fake!(Aside, "aside", &[], dyn Extension);

struct Joint;

/// Names the pipelines that it feeds.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct JointConfig {
    to: Vec<PipelineId>,
}

impl Config for JointConfig {}

impl Factory for Joint {
    const NAME: &'static str = "joint";
    type Config = JointConfig;
    type Component = dyn Connector;

    fn pipelines(config: &JointConfig) -> Vec<(String, PipelineId)> {
        let named = config.to.iter().cloned().enumerate();
        let named = named.map(|(position, id)| (format!("to::{position}"), id));
        named.collect()
    }

    fn build(_: &JointConfig, _: &BuildContext) -> Result<Box<dyn Connector>, BuildError> {
        Ok(Box::new(Fake))
    }
}

#[async_trait::async_trait]
impl Connector for Fake {
    async fn process(&self, batch: Batch, next: &dyn Pipelines) -> profcol_component::Answer {
        next.push(batch, &[]).await
    }
}

const REGISTRY: Registry = Registry {
    receivers: &[entry::<Source>()],
    processors: &[entry::<Middle>()],
    exporters: &[entry::<Sink>()],
    connectors: &[entry::<Joint>()],
    extensions: &[entry::<Aside>()],
    foreign: &[],
};

#[async_trait::async_trait]
impl Receiver for Fake {
    async fn run(self: Box<Self>, _: Output, _: Stop) -> Result<(), RunError> {
        Ok(())
    }
}

#[async_trait::async_trait]
impl Processor for Fake {
    async fn process(&self, batch: Batch, next: &dyn Consumer) -> profcol_component::Answer {
        next.consume(batch).await
    }
}

#[async_trait::async_trait]
impl Exporter for Fake {
    fn delivery(&self) -> Delivery {
        Delivery::inline()
    }

    async fn export(&self, _: &Batch) -> Result<Delivered, Refusal> {
        Ok(Delivered::default())
    }
}

impl Extension for Fake {}

fn resolved(text: &str) -> Resolved {
    let input = Input {
        configs: vec![format!("yaml:{text}")],
        sets: Vec::new(),
    };
    resolve(&input, &SystemProviders::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn accepted(text: &str) -> Document {
    let resolved = resolved(text);
    Document::read(&resolved.root, &REGISTRY)
        .unwrap_or_else(|problems| panic!("{}", problems.report(&resolved.sources)))
}

/// `expected` has a line per problem: its message, `@line:column`, and its help in brackets.
#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let resolved = resolved(text);
    let problems = Document::read(&resolved.root, &REGISTRY).expect_err(text);
    let line = |problem: &Problem| {
        let at = problem.at.expect("every problem has a location");
        let help = problem.help.iter().map(|help| format!(" [{help}]"));
        let help = help.collect::<String>();
        format!("{problem} @{}:{}{help}", at.line, at.column)
    };
    let found: Vec<String> = problems.iter().map(line).collect();
    assert_eq!(found, expected, "{text}");
}

const PIPELINE: &str = "service: {pipelines: {profiles: {receivers: [source], exporters: [sink]}}}";

#[test]
fn reads_declarations_and_connections() {
    let document = accepted(
        "
receivers: {source: , source/b: {size: 3}}
processors: {middle: {}}
exporters: {sink: }
connectors:
extensions: {aside: }
service:
  extensions: [aside]
  shutdown_timeout: 5s
  pipelines:
    profiles: {receivers: [source, source/b], processors: [middle], exporters: [sink]}
    profiles/b: {receivers: source, exporters: sink}",
    );
    let ids: Vec<_> = document
        .receivers
        .iter()
        .map(|receiver| receiver.id.to_string())
        .collect();
    assert_eq!(ids, ["source", "source/b"]);
    assert_eq!(document.service.shutdown_timeout, Duration::from_secs(5));
    assert_eq!(document.service.extensions.len(), 1);
    let [first, second] = &document.service.pipelines[..] else {
        panic!("{:?}", document.service.pipelines);
    };
    assert_eq!((first.receivers.len(), first.processors.len()), (2, 1));
    assert_eq!(
        (second.id.to_string().as_str(), second.receivers.len()),
        ("profiles/b", 1)
    );
}

#[test]
fn unused_components_are_checked() {
    accepted(&format!(
        "receivers: {{source: , source/unused: }}\nexporters: {{sink: }}\n{PIPELINE}"
    ));
    refused(
        &format!(
            "receivers: {{source: , source/unused: {{size: 10}}}}\nexporters: {{sink: }}\n{PIPELINE}"
        ),
        &["receivers::source/unused::size: must be less than 10 @1:45"],
    );
}

#[test]
fn reports_all_problems() {
    refused(
        "
receivers: {source: {sizee: 1}}
exporters: {sink: {size: 10}, sunk: }
extension: {}
service:
  extensions: [aside]
  telemetry: {logs: {level: loud}}
  pipelines:
    profiles: {receivers: [source], processors: [middle, middle], exporters: []}",
        &[
            "the configuration has invalid keys: extension @4:1 [did you mean \"extensions\"?]",
            "receivers::source: has invalid keys: sizee @2:22 [did you mean \"size\"?]",
            "exporters::sink::size: must be less than 10 @3:26",
            "exporters: unknown type: \"sunk\" for id: \"sunk\" (valid values: [sink]) @3:31 [did you mean \"sink\"?]",
            "service::telemetry::logs::level: unrecognized level: \"loud\" @7:29 [expected one of debug, info, warn, error]",
            "service::pipelines::profiles: must have at least one exporter @9:5",
            "service::pipelines::profiles: references processor \"middle\" multiple times @9:58",
        ],
    );
}

/// A misspelled name is reported at its declaration only, not at each use.
#[test]
fn each_mistake_is_reported_once() {
    refused(
        &format!("receivers: {{suorce: }}\nexporters: {{sink: }}\n{PIPELINE}"),
        &[
            "receivers: unknown type: \"suorce\" for id: \"suorce\" (valid values: [source]) @1:13 [did you mean \"source\"?]",
        ],
    );
    refused(
        &format!("receivers: {{source/: }}\nexporters: {{sink: }}\n{PIPELINE}"),
        &[
            "receivers: in \"source/\" id: the part after / should not be empty @1:13 [an id is `type` or `type/name`]",
        ],
    );
    refused(
        &format!("reciever: {{source: }}\nexporters: {{sink: }}\n{PIPELINE}"),
        &["the configuration has invalid keys: reciever @1:1 [did you mean \"receivers\"?]"],
    );
    refused(
        &format!("receivers: [source]\nexporters: {{sink: }}\n{PIPELINE}"),
        &["receivers: expected a map of receivers, got a list @1:12"],
    );
}

#[test]
fn missing_sections_are_rejected() {
    let pipelines = "service::pipelines: service must have at least one pipeline @1:1 [such as `profiles: {receivers: [otlp], exporters: [otlp_grpc]}`]";
    refused(
        "{}",
        &["empty configuration file @1:1 [it must have `receivers`, `exporters` and `service`]"],
    );
    refused(
        "processors:",
        &[
            "no receiver configuration specified in config @1:1",
            "no exporter configuration specified in config @1:1",
            pipelines,
        ],
    );
    refused("receivers: {source: }\nexporters: {sink: }", &[pipelines]);
}

#[test]
fn ids_are_compared_after_trimming() {
    refused(
        &format!("receivers: {{source: , ' source ': }}\nexporters: {{sink: }}\n{PIPELINE}"),
        &["receivers: duplicate name \"source\" after unmarshaling @1:23"],
    );
    refused(
        "receivers: {source: }\nexporters: {sink: }\nservice: {pipelines: {profiles: {receivers: [source], exporters: [sink]}, ' profiles': {receivers: [source], exporters: [sink]}}}",
        &["service::pipelines: duplicate name \"profiles\" after unmarshaling @3:75"],
    );
}

/// A configuration with these connectors and pipelines, each on its line.
fn joined(connectors: &str, pipelines: &[&str]) -> String {
    let pipelines: String = pipelines.iter().map(|it| format!("\n    {it}")).collect();
    format!(
        "receivers: {{source: }}\nexporters: {{sink: }}\nconnectors: {{{connectors}}}\nservice:\n  pipelines:{pipelines}"
    )
}

#[test]
fn connectors_join_pipelines() {
    let document = accepted(&joined(
        "joint: {to: [profiles/c]}, joint/b: , joint/unused: {to: [profiles/none]}",
        &[
            "profiles/c: {receivers: [joint, joint/b], exporters: [sink]}",
            "profiles/a: {receivers: [source], exporters: [joint, sink]}",
            "profiles/b: {receivers: [source, joint], exporters: [joint/b, sink]}",
        ],
    ));
    let depths = document.depths();
    let depths: Vec<String> = depths
        .iter()
        .map(|(id, depth)| format!("{id}={depth}"))
        .collect();
    assert_eq!(depths, ["profiles/a=0", "profiles/b=1", "profiles/c=2"]);
    let paths = |id: &str| document.count_exporter_paths([&id.parse().expect("valid")]);
    assert_eq!(
        ["a", "b", "c"].map(|it| paths(&format!("profiles/{it}"))),
        [4, 2, 1]
    );
    let printed = document.resolved(true).expect("plain");
    assert_eq!(printed["connectors"]["joint"]["to"][0], "profiles/c");
}

#[test]
fn half_used_connectors_are_refused() {
    let refused_with = |connectors: &str, pipelines: &[&str], expected: &str| {
        refused(&joined(connectors, pipelines), &[expected]);
    };
    refused_with(
        "joint: ",
        &["profiles: {receivers: [source], exporters: [joint]}"],
        "connectors::joint: is an exporter of [profiles] but a receiver of no pipeline @3:14 [add \"joint\" to `receivers` of another pipeline]",
    );
    refused_with(
        "joint: ",
        &["profiles: {receivers: [joint], exporters: [sink]}"],
        "connectors::joint: is a receiver of [profiles] but an exporter of no pipeline @3:14 [add \"joint\" to `exporters` of another pipeline]",
    );
    refused_with(
        "joint: , joint/b: ",
        &[
            "profiles: {receivers: [source], exporters: [jiont]}",
            "profiles/b: {receivers: [source], exporters: [joint/b]}",
            "profiles/c: {receivers: [joint/b], exporters: [sink]}",
        ],
        "service::pipelines::profiles: references exporter \"jiont\" which is not configured @6:49 [did you mean \"joint\"?]",
    );
}

#[test]
fn connectors_name_pipelines_that_they_feed() {
    let pipelines = [
        "profiles: {receivers: [source], exporters: [joint]}",
        "profiles/out: {receivers: [joint], exporters: [sink]}",
        "profiles/other: {receivers: [source], exporters: [sink]}",
    ];
    refused(
        &joined(
            "joint: {to: [profiles/out, profiles/other, profiles/ot]}",
            &pipelines,
        ),
        &[
            "connectors::joint::to::1: the pipeline \"profiles/other\" does not receive from this connector @3:41 [add \"joint\" to its `receivers`]",
            "connectors::joint::to::2: references pipeline \"profiles/ot\" which is not configured @3:57 [did you mean \"profiles/out\"?]",
        ],
    );
}

#[test]
fn cycles_are_refused() {
    refused(
        &joined(
            "joint/x: , joint/y: ",
            &[
                "profiles/in: {receivers: [source], exporters: [joint/x]}",
                "profiles/a: {receivers: [joint/x, joint/y], exporters: [sink, joint/y]}",
                "profiles/b: {receivers: [joint/y], exporters: [joint/x]}",
                "profiles/out: {receivers: [joint/y], exporters: [sink]}",
            ],
        ),
        &[
            "service::pipelines: cycle detected: pipeline \"profiles/a\" -> connector \"joint/y\" -> pipeline \"profiles/a\" @7:67 [remove one of these connectors from one of these pipelines]",
        ],
    );
    refused(
        &joined(
            "joint/x: , joint/y: ",
            &[
                "profiles/in: {receivers: [source], exporters: [joint/x]}",
                "profiles/a: {receivers: [joint/x], exporters: [sink, joint/y]}",
                "profiles/b: {receivers: [joint/y], exporters: [joint/x]}",
            ],
        ),
        &[
            "service::pipelines: cycle detected: pipeline \"profiles/a\" -> connector \"joint/y\" -> pipeline \"profiles/b\" -> connector \"joint/x\" -> pipeline \"profiles/a\" @7:58 [remove one of these connectors from one of these pipelines]",
        ],
    );
}

#[test]
fn other_signals_are_refused() {
    refused(
        "receivers: {source: }\nexporters: {sink: }\nservice: {pipelines: {logs/a: {receivers: [source], exporters: [sink]}}}",
        &[
            "service::pipelines: in \"logs/a\" id: unsupported pipeline signal: \"logs\": profcol supports only profiles @3:23 [remove this pipeline and its components; use a Collector for logs]",
        ],
    );
}

#[test]
fn deprecated_names_work_and_are_reported() {
    let document = accepted(
        "receivers: {old_source/a: }\nexporters: {sink: }\nservice: {pipelines: {profiles: {receivers: [old_source/a], exporters: [sink]}}}",
    );
    assert_eq!(
        document.deprecations(),
        ["\"old_source\" alias is deprecated; use \"source\" instead (receiver \"old_source/a\")"]
    );
    assert!(
        accepted(&format!(
            "receivers: {{source: }}\nexporters: {{sink: }}\n{PIPELINE}"
        ))
        .deprecations()
        .is_empty()
    );
}

#[test]
fn prints_defaults_and_redacts_secrets() {
    let document = accepted(&format!(
        "receivers: {{source: {{token: hunter2}}}}\nexporters: {{sink: }}\n{PIPELINE}"
    ));
    let printed = |redacted| document.resolved(redacted).expect("plain");
    assert_eq!(printed(false)["receivers"]["source"]["token"], "hunter2");
    assert_eq!(printed(true)["receivers"]["source"]["token"], "[REDACTED]");
    assert_eq!(printed(true)["receivers"]["source"]["size"], 0);
    assert_eq!(printed(true)["service"]["shutdown_timeout"], "30s");
    assert_eq!(
        printed(true)["service"]["pipelines"]["profiles"]["exporters"][0],
        "sink"
    );
}

#[test]
fn the_schema_has_every_component_and_alias() {
    let schema = schema(&REGISTRY);
    let receivers = &schema["properties"]["receivers"]["patternProperties"];
    assert!(
        receivers.get("^(source|old_source)(/.+)?$").is_some(),
        "{receivers}"
    );
    assert_eq!(
        schema["$defs"]["receiver_source"]["additionalProperties"],
        false
    );
    let connectors = &schema["properties"]["connectors"]["patternProperties"];
    assert!(connectors.get("^(joint)(/.+)?$").is_some(), "{connectors}");
}

#[test]
fn schema_references_resolve() {
    fn references(schema: &serde_json::Value, found: &mut Vec<String>) {
        match schema {
            serde_json::Value::Object(map) => {
                found.extend(map.get("$ref").and_then(|r| r.as_str()).map(str::to_owned));
                map.values().for_each(|inner| references(inner, found));
            }
            serde_json::Value::Array(items) => {
                items.iter().for_each(|inner| references(inner, found));
            }
            _ => {}
        }
    }
    let schema = schema(&REGISTRY);
    let mut found = Vec::new();
    references(&schema, &mut found);
    assert!(found.contains(&"#/$defs/pipeline".to_owned()), "{found:?}");
    for reference in found {
        let target = reference
            .strip_prefix('#')
            .and_then(|path| schema.pointer(path));
        assert!(target.is_some(), "{reference}");
    }
}

#[test]
fn the_schema_suits_editors() {
    let schema = schema(&REGISTRY);
    let part = |path: &str| {
        schema
            .pointer(path)
            .unwrap_or_else(|| panic!("{path}: {schema:#}"))
    };
    let size = part("/$defs/receiver_source/properties/size");
    assert_eq!(size["type"], serde_json::json!(["integer", "string"]));
    assert_eq!(size["pattern"], "\\$\\{");
    let level = part("/$defs/service.MetricLevel/anyOf/0/enum");
    assert_eq!(level[3], "detailed");
    assert!(!schema.to_string().contains("\"x-"), "{schema:#}");
}
