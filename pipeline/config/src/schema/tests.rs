//! A configuration type with every kind of field: what it accepts, each message with its place, its schema and options.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{options, redact, schema_of};
use crate::{
    ComponentId, Config, Duration, Headers, Node, Present, Problems, Secret, Sources, Url, load,
    yaml,
};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-ignore-case" = true, "x-unknown" = "unknown metrics level"))]
#[serde(rename_all = "lowercase")]
enum Verbosity {
    #[default]
    Basic,
    /// One line each.
    Normal,
    Detailed,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Server {
    endpoint: String,
    max_recv_msg_size_mib: u16,
    #[serde(flatten)]
    common: Common,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Common {
    include_metadata: bool,
    tls: Option<Tls>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-aliases" = {"ca": "ca_file"}))]
struct Tls {
    ca_file: String,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            endpoint: "localhost:4317".to_owned(),
            max_recv_msg_size_mib: 4,
            common: Common::default(),
        }
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Protocols {
    grpc: Present<Server>,
    http: Present<Server>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Everything {
    protocols: Protocols,
    verbosity: Verbosity,
    maybe: Option<Verbosity>,
    timeout: Duration,
    factor: f64,
    count: i64,
    names: Vec<String>,
    ids: Vec<ComponentId>,
    labels: BTreeMap<String, String>,
    servers: BTreeMap<String, Server>,
    headers: Headers,
    token: Secret,
    proxy: Url,
    anything: serde_json::Value,
}

impl Config for Everything {
    fn validate(&self, problems: &mut Problems) {
        if self.timeout.is_negative() {
            problems.add("timeout", "must be non-negative");
        }
        if self.count > 5000 {
            problems.nested("protocols", |p| p.add("", "too many for these protocols"));
        }
    }
}

fn parse(text: &str) -> (Node, Sources) {
    let mut sources = Sources::default();
    let id = sources.add("t.yaml", text, None).expect("small");
    let node = yaml::parse(&sources, id).unwrap_or_else(|p| panic!("{p}"));
    (node, sources)
}

#[track_caller]
fn accepted(text: &str) -> Everything {
    let (node, sources) = parse(text);
    let mut problems = Problems::default();
    load(&node, &mut problems).unwrap_or_else(|| panic!("{}", problems.report(&sources)))
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let (node, _) = parse(text);
    let mut problems = Problems::default();
    let loaded = problems.nested("exporters::x", |p| load::<Everything>(&node, p));
    assert_eq!(loaded, None);
    let with_help = |p: &crate::Problem| match &p.help {
        Some(help) => format!("{p} ({help})"),
        None => p.to_string(),
    };
    let all: Vec<String> = problems.iter().map(with_help).collect();
    assert_eq!(all.join("\n"), expected, "{text}");
    assert!(problems.iter().all(|p| p.at.is_some()));
}

#[test]
fn an_empty_document_is_all_defaults() {
    assert_eq!(accepted(""), Everything::default());
    assert_eq!(
        accepted("protocols:\nverbosity: ~\ncount:\nmaybe:\nheaders:\nnames:"),
        Everything::default()
    );
}

#[test]
fn an_empty_key_turns_on_a_present_section_only() {
    let on = accepted("protocols: {grpc: }").protocols;
    assert_eq!(
        (on.grpc, on.http),
        (Present(Some(Server::default())), Present(None))
    );
    let on = accepted("protocols: {http: {}}").protocols;
    assert_eq!(
        (on.grpc, on.http),
        (Present(None), Present(Some(Server::default())))
    );
}

#[test]
fn reads_every_kind_of_field() {
    let all = accepted(
        "protocols: {grpc: {endpoint: 'x:1', include_metadata: true, tls: {ca: /ca.pem}}}\n\
         verbosity: DETAILED\nmaybe: normal\ntimeout: 1m30s\nfactor: 2\ncount: 1e3\nnames: a,b\nids: [otlp, otlp/2]\n\
         labels: {a: b, c: }\nservers: {one: , two: {max_recv_msg_size_mib: 08}}\ntoken: t\nanything: {x: [1]}\nheaders: {k: v}",
    );
    let server = all.protocols.grpc.0.expect("on");
    assert_eq!(
        (server.endpoint.as_str(), server.common.include_metadata),
        ("x:1", true)
    );
    assert_eq!(
        server.common.tls.map(|tls| tls.ca_file).as_deref(),
        Some("/ca.pem")
    );
    assert_eq!(
        (all.verbosity, all.maybe),
        (Verbosity::Detailed, Some(Verbosity::Normal))
    );
    assert_eq!(
        (all.timeout, all.factor, all.count),
        (Duration::from_secs(90), 2.0, 1000)
    );
    assert_eq!(all.names, ["a", "b"]);
    assert_eq!(
        all.ids.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["otlp", "otlp/2"]
    );
    assert_eq!(all.labels.get("c").map(String::as_str), Some(""));
    assert_eq!(all.servers.get("one"), Some(&Server::default()));
    assert_eq!(
        all.servers.get("two").map(|s| s.max_recv_msg_size_mib),
        Some(8)
    );
    assert_eq!(
        all.headers,
        Headers(vec![("k".to_owned(), Secret::new("v"))])
    );
    assert_eq!(all.anything, serde_json::json!({"x": [1]}));
    assert_eq!(
        accepted("headers: [{name: k, value: v}]").headers,
        all.headers
    );
    assert_eq!(
        accepted("timeout: 1000").timeout,
        Duration::from_nanos(1000)
    );
}

#[test]
fn reports_all_problems_at_once() {
    refused(
        "protocols: {grpc: {endpiont: 'x:1', max_recv_msg_size_mib: big}, htttp: {}}\nverbosity: loud\nmaybe: 3\n\
         timeout: 5parsecs\ncount: '1'\nids: [x/]",
        "exporters::x::protocols::grpc: has invalid keys: endpiont (did you mean \"endpoint\"?)\n\
         exporters::x::protocols::grpc::max_recv_msg_size_mib: expected type 'int', got unconvertible type 'string'\n\
         exporters::x::protocols: has invalid keys: htttp (did you mean \"http\"?)\n\
         exporters::x::verbosity: unknown metrics level \"loud\" (expected one of basic, detailed, normal)\n\
         exporters::x::maybe: expected type 'string', got unconvertible type 'int' (quote it to make it a string)\n\
         exporters::x::timeout: time: unknown unit \"parsecs\" in duration \"5parsecs\" (write a number with a unit, such \
         as \"300ms\", \"1.5s\", \"2m\" or \"1h30m\")\n\
         exporters::x::count: expected type 'int', got unconvertible type 'string' (remove the quotes)\n\
         exporters::x::ids::0: in \"x/\" id: the part after / should not be empty (an id is `type` or `type/name`)",
    );
}

#[test]
fn a_problem_from_validate_is_located() {
    let (node, sources) = parse("count: 9999\ntimeout: -1s\nprotocols:\n  grpc: {}\n");
    let mut problems = Problems::default();
    assert_eq!(load::<Everything>(&node, &mut problems), None);
    assert_eq!(
        problems.report(&sources).to_string(),
        "timeout: must be non-negative
 --> t.yaml:2:10
  |
2 | timeout: -1s
  |          ^^^

protocols: too many for these protocols
 --> t.yaml:3:1
  |
3 | protocols:
  | ^^^^^^^^^"
    );
}

#[test]
fn reports_mismatched_types() {
    for (text, expected) in [
        ("protocols: x", "protocols: expected a map, got 'string'"),
        ("protocols: [grpc]", "protocols: expected a map, got 'list'"),
        ("names: {a: 1}", "names: expected a list, got 'map'"),
        ("names: [~]", "names::0: expected type 'string', got null"),
        (
            "labels: {a: 1}",
            "labels::a: expected type 'string', got unconvertible type 'int' (quote it to make it a string)",
        ),
        (
            "factor: '2'",
            "factor: expected type 'float64', got unconvertible type 'string' (remove the quotes)",
        ),
        (
            "factor: many",
            "factor: expected type 'float64', got unconvertible type 'string'",
        ),
        (
            "count: 2.5",
            "count: expected type 'int', got unconvertible type 'float64'",
        ),
        (
            "count: 9223372036854775808",
            "count: 9223372036854775808 is out of range (-9223372036854775808 to 9223372036854775807)",
        ),
        (
            "timeout: true",
            "timeout: expected type 'duration', got unconvertible type 'bool' (quote it to make it a string)",
        ),
        (
            "timeout: {s: 1}",
            "timeout: expected type 'duration', got unconvertible type 'map'",
        ),
        (
            "headers: x",
            "headers: expected a map or a list, got 'string'",
        ),
        (
            "headers: [{name: a}]",
            "headers::0: missing required key \"value\"",
        ),
        (
            "headers: {a: [b]}",
            "headers::a: expected type 'string', got unconvertible type 'list'",
        ),
        (
            "servers: {a: {max_recv_msg_size_mib: 65536}}",
            "servers::a::max_recv_msg_size_mib: 65536 is out of range (0 to 65535)",
        ),
        (
            "servers: {a: {max_recv_msg_size_mib: -1}}",
            "servers::a::max_recv_msg_size_mib: -1 is out of range (0 to 65535)",
        ),
        (
            "servers: {a: {tls: {ca: x, ca_file: y}}}",
            "servers::a::tls: \"ca_file\" is set twice, by two spellings",
        ),
        (
            "servers: {a: {tls: {zzz: 1}}}",
            "servers::a::tls: has invalid keys: zzz (valid keys are ca_file)",
        ),
        (
            "Timeout: 1s",
            ": has invalid keys: Timeout (did you mean \"timeout\"?)",
        ),
        (
            "verbosity: [a]",
            "verbosity: expected type 'string', got unconvertible type 'list'",
        ),
    ] {
        let expected = match expected.strip_prefix(": ") {
            Some(of_the_whole) => format!("exporters::x: {of_the_whole}"),
            None => format!("exporters::x::{expected}"),
        };
        refused(text, &expected);
    }
}

#[test]
fn redacts_by_schema() {
    let all = accepted(
        "token: t\nproxy: http://u:p@h:1\nheaders: {k: v, e: ''}\nnames: [n]\nanything: {token: x}",
    );
    let mut json = serde_json::to_value(&all).expect("plain");
    redact(&mut json, &schema_of::<Everything>());
    assert_eq!(json["token"], "[REDACTED]");
    assert_eq!(json["proxy"], "http://[REDACTED]@h:1");
    assert_eq!(
        json["headers"],
        serde_json::json!([{"name": "k", "value": "[REDACTED]"}, {"name": "e", "value": ""}])
    );
    assert_eq!(
        (&json["names"][0], &json["anything"]["token"]),
        (&"n".into(), &"x".into())
    );
}

#[test]
fn schema_is_closed_and_documented() {
    let schema = schema_of::<Everything>();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["$defs"]["Server"]["additionalProperties"], false);
    assert_eq!(
        schema["$defs"]["Server"]["properties"]["include_metadata"]["type"],
        "boolean"
    );
    assert_eq!(
        schema["$defs"]["Server"]["properties"]["endpoint"]["default"],
        "localhost:4317"
    );
    assert_eq!(schema["properties"]["timeout"]["default"], "0s");
}

/// Errors from serde have a path and location too.
#[test]
fn custom_deserializers_report_the_location() {
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Outer {
        addresses: Vec<Address>,
    }
    #[derive(Debug, PartialEq, Serialize, JsonSchema)]
    #[schemars(transparent)]
    struct Address(String);
    impl<'de> Deserialize<'de> for Address {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            if text.contains(':') {
                Ok(Address(text))
            } else {
                Err(serde::de::Error::custom("misses a port"))
            }
        }
    }
    impl Config for Outer {}
    let (node, _) = parse("addresses: ['a:1', b]");
    let mut problems = Problems::default();
    assert_eq!(load::<Outer>(&node, &mut problems), None);
    let problem = problems.iter().next().expect("one");
    assert_eq!(problem.to_string(), "addresses::1: misses a port");
    assert_eq!(problem.at.map(|at| (at.line, at.column)), Some((1, 20)));
}

#[test]
fn reads_enums_with_data() {
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Exporter {
        Prometheus(Common),
        #[default]
        None,
    }
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct Pull {
        exporter: Exporter,
    }
    impl Config for Pull {}
    let read = |text: &str| {
        let mut problems = Problems::default();
        load::<Pull>(&parse(text).0, &mut problems).ok_or(problems.to_string())
    };
    let on = Common {
        include_metadata: true,
        tls: None,
    };
    assert_eq!(
        read("exporter: {prometheus: {include_metadata: true}}"),
        Ok(Pull {
            exporter: Exporter::Prometheus(on)
        })
    );
    assert_eq!(read("exporter: none"), Ok(Pull::default()));
    assert_eq!(
        read("exporter: {prometheus: {x: 1}}"),
        Err("exporter::prometheus: has invalid keys: x".to_owned())
    );
    assert_eq!(
        read("exporter: many"),
        Err("exporter: unknown value \"many\"".to_owned())
    );
}

#[test]
fn lists_options() {
    let rows = options(&schema_of::<Everything>());
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.path, row.kind))
        .collect();
    for expected in [
        "timeout duration",
        "verbosity basic | detailed | normal",
        "maybe basic | detailed | normal",
        "names list of string",
        "ids list of id",
        "labels map of string",
        "servers map of section",
        "servers::<key>::endpoint string",
        "protocols section",
        "protocols::grpc section",
        "protocols::grpc::tls::ca_file string",
        "headers map of secret | list of section",
        "token secret",
        "proxy string",
        "anything any",
    ] {
        assert!(
            shown.iter().any(|row| row == expected),
            "{expected:?} is not in {shown:#?}"
        );
    }
    let endpoint = rows
        .iter()
        .find(|row| row.path == "protocols::grpc::endpoint")
        .expect("listed");
    assert_eq!(endpoint.default, Some("localhost:4317".into()));
}

#[test]
fn a_report_hides_the_secrets_beside_a_problem() {
    let (node, sources) = parse("{headers: {authorization: hunter2}, token: 's3', count: big}");
    let mut problems = Problems::default();
    assert_eq!(load::<Everything>(&node, &mut problems), None);
    let report = problems.report(&sources).to_string();
    assert!(
        report.contains("1 | {headers: {authorization: *******}, token: ****, count: big}"),
        "{report}"
    );
}

#[test]
fn a_report_hides_the_values_of_unknown_keys() {
    let text = "{tokn: hunter2, tls: {heders: [hunter2]}, proxy: 'http://u:hunter2@h', count: big}";
    let (node, sources) = parse(text);
    let mut problems = Problems::default();
    assert_eq!(load::<Everything>(&node, &mut problems), None);
    let report = problems.report(&sources).to_string();
    assert!(report.contains("has invalid keys: tokn"), "{report}");
    assert!(!report.contains("hunter2"), "{report}");
}
