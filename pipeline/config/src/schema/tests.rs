use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ComponentId, Config, Duration, Headers, Node, Present, Problems, Secret, Sources, load, yaml,
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
fn nothing_written_is_all_defaults() {
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
fn says_everything_that_is_wrong_at_once() {
    refused(
        "protocols: {grpc: {endpiont: 'x:1', max_recv_msg_size_mib: big}, htttp: {}}\nverbosity: loud\nmaybe: 3\n\
         timeout: 5parsecs\ncount: '1'\nids: [x/]",
        "exporters::x::protocols::grpc: has invalid keys: endpiont (did you mean \"endpoint\"?)\n\
         exporters::x::protocols::grpc::max_recv_msg_size_mib: expected type 'int', got unconvertible type 'string'\n\
         exporters::x::protocols: has invalid keys: htttp (did you mean \"http\"?)\n\
         exporters::x::verbosity: unknown metrics level \"loud\" (expected one of basic, detailed, normal)\n\
         exporters::x::maybe: expected type 'string', got unconvertible type 'int' (put it in quotes to make it text)\n\
         exporters::x::timeout: time: unknown unit \"parsecs\" in duration \"5parsecs\" (write a number with a unit, such \
         as \"300ms\", \"1.5s\", \"2m\" or \"1h30m\")\n\
         exporters::x::count: expected type 'int', got unconvertible type 'string' (leave the quotes out)\n\
         exporters::x::ids::0: in \"x/\" id: the part after / should not be empty (an id is `type` or `type/name`)",
    );
}
