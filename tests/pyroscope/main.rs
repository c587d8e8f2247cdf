//! Pyroscope's query API, through Grafana's client and `curl`, returns the same data as the page.
//!
//! The client is a Go program (`client/`) with Pyroscope's generated code.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod host;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use profcol_test_harness::support::{root, skip};
use serde_json::{Value, json};

use self::host::{CPU, Host, SECONDS, http};

const SPACE: &str = "memory:alloc_space:bytes:space:bytes";

/// A call of the Go client.
#[derive(Clone)]
struct Call {
    method: &'static str,
    request: Value,
}

fn call(method: &'static str, request: Value) -> Call {
    Call { method, request }
}

/// The client, built once; `None` without Go.
fn client() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let go = Command::new("go").arg("version").output();
        if !go.is_ok_and(|go| go.status.success()) {
            skip("there is no Go to build Pyroscope's client with");
            return None;
        }
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pyroscope-client");
        let built = Command::new("go")
            .args(["build", "-buildvcs=false", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(root().join("tests/pyroscope/client"))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "go build failed: {stderr}");
        Some(program)
    };
    BUILT.get_or_init(build).as_ref()
}

/// The server's responses to the client, one per call.
fn ask(to: SocketAddr, authorization: &str, codec: &str, calls: &[Call]) -> Option<Vec<Value>> {
    let mut child = Command::new(client()?)
        .arg(format!("http://{to}"))
        .arg(authorization)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let calls = calls
        .iter()
        .map(|it| json!({"method": it.method, "request": it.request, "codec": codec}));
    let text = Value::from_iter(calls).to_string();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the client failed");
    let outcomes: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    Some(outcomes)
}

fn post(to: SocketAddr, method: &str, content_type: &str, body: &[u8]) -> (u16, Value) {
    let path = format!("/querier.v1.QuerierService/{method}");
    let headers = format!("content-type: {content_type}\r\n");
    let (status, body) = http(to, "POST", &path, &headers, body);
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn get(to: SocketAddr, path: &str) -> Value {
    let (status, body) = http(to, "GET", path, "", b"");
    let text = String::from_utf8_lossy(&body);
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// The queries of Grafana's data source and app.
fn questions(host: &Host) -> Vec<Call> {
    let [start, end] = [host.start, host.end].map(|it| it.to_string());
    let of = |selector: &str, more: Value| {
        let mut request = json!({
            "profileTypeID": CPU, "labelSelector": selector, "start": start, "end": end,
        });
        let fields = request.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        request
    };
    let one = |name: &str| {
        of(
            &format!("{{process_executable_name=\"{name}\"}}"),
            json!({}),
        )
    };
    vec![
        call("ProfileTypes", json!({})),
        call("ProfileTypes", json!({"start": start, "end": end})),
        call("GetProfileStats", json!({})),
        call("GetSettings", json!({})),
        call(
            "LabelNames",
            json!({"matchers": ["{}"], "start": start, "end": end}),
        ),
        call("LabelNames", json!({"matchers": [""]})),
        call(
            "LabelValues",
            json!({"name": "service_name", "matchers": ["{}"], "start": start, "end": end}),
        ),
        call(
            "LabelValues",
            json!({"name": "__profile_type__", "matchers": ["{service_name=\"shop\"}"]}),
        ),
        call(
            "Series",
            json!({"labelNames": ["service_name", "__profile_type__"], "start": start, "end": end}),
        ),
        call(
            "Series",
            json!({"matchers": ["{__type__=\"alloc_space\"}"]}),
        ),
        call("SelectSeries", of("{}", json!({"step": 15.0}))),
        call(
            "SelectSeries",
            of(
                "{}",
                json!({"step": 2.0, "groupBy": ["service_name"], "limit": "1"}),
            ),
        ),
        call(
            "SelectMergeStacktraces",
            of("{}", json!({"maxNodes": "16384"})),
        ),
        call(
            "SelectMergeStacktraces",
            of("{}", json!({"format": "PROFILE_FORMAT_PPROF"})),
        ),
        call(
            "SelectMergeStacktraces",
            of("{service_name=\"nobody\"}", json!({})),
        ),
        call("SelectMergeProfile", of("{}", json!({}))),
        call(
            "Diff",
            json!({"left": one("webserver"), "right": one("database")}),
        ),
    ]
}

/// Both codecs, and compressed requests: the client reads the same from each, and its JSON equals the server's
/// own JSON.
#[test]
fn grafanas_client_reads_the_same_in_each_codec() {
    let host = Host::start("");
    let calls = questions(&host);
    let Some(answers) = ask(host.page, "", "proto", &calls) else {
        return;
    };
    for (call, outcome) in calls.iter().zip(&answers) {
        assert!(outcome.get("code").is_none(), "{}: {outcome}", call.method);
    }
    for codec in ["json", "gzip"] {
        assert_eq!(
            ask(host.page, "", codec, &calls).unwrap(),
            answers,
            "{codec}"
        );
    }
    for (call, outcome) in calls.iter().zip(&answers) {
        if call.method == "GetSettings" {
            continue;
        }
        let body = call.request.to_string();
        let (status, answer) = post(host.page, call.method, "application/json", body.as_bytes());
        assert_eq!(
            (status, as_doubles(&answer)),
            (200, as_doubles(&outcome["answer"])),
            "{}",
            call.method
        );
    }
}

#[test]
fn grafanas_client_gets_the_same_data_as_the_page() {
    let host = Host::start("");
    let calls = questions(&host);
    let Some(outcomes) = ask(host.page, "", "proto", &calls) else {
        return;
    };
    let mut answers = outcomes.iter().map(|it| &it["answer"]);
    let mut next = || answers.next().unwrap();
    let page = |path: &str, more: &str| {
        let (from, until) = (host.start, host.end);
        get(
            host.page,
            &format!("/api/v1/{path}?type=cpu&from={from}&until={until}{more}"),
        )
    };

    let types: Vec<&str> = texts(&next()["profileTypes"], "ID");
    assert_eq!(types, [SPACE, CPU]);
    let kind = &next()["profileTypes"][1];
    assert_eq!(
        *kind,
        json!({
            "ID": CPU, "name": "process_cpu", "sampleType": "cpu", "sampleUnit": "nanoseconds",
            "periodType": "cpu", "periodUnit": "nanoseconds",
        })
    );

    let status = page("status", "");
    let stats = next();
    assert_eq!(stats["dataIngested"], true);
    assert_eq!(stats["oldestProfileTime"], status["oldest"].to_string());
    assert_eq!(stats["newestProfileTime"], status["newest"].to_string());
    assert_eq!(*next(), json!({}));

    for _ in 0..2 {
        let names: Vec<&str> = strings(&next()["names"]);
        let own: Vec<&str> = names
            .iter()
            .filter(|it| !it.starts_with("__"))
            .copied()
            .collect();
        assert_eq!(own, strings(&page("labels", "")));
        assert!(names.contains(&"__profile_type__"), "{names:?}");
    }
    assert_eq!(strings(&next()["names"]), ["database", "shop"]);
    assert_eq!(strings(&next()["names"]), [SPACE, CPU]);

    let pairs = |labels: &Value| -> Vec<(String, String)> {
        let labels = labels["labels"].as_array().unwrap().iter();
        let text = |it: &Value| it.as_str().unwrap().to_owned();
        labels
            .map(|it| (text(&it["name"]), text(&it["value"])))
            .collect()
    };
    let sets = next()["labelsSet"].as_array().unwrap();
    let sets: Vec<Vec<String>> = sets
        .iter()
        .map(|set| pairs(set).into_iter().map(|(_, value)| value).collect())
        .collect();
    assert_eq!(sets, [[SPACE, "shop"], [CPU, "database"], [CPU, "shop"]]);
    let space = pairs(&next()["labelsSet"][0]);
    for (name, value) in [
        ("__profile_type__", SPACE),
        ("process_executable_name", "webserver"),
        ("service_name", "shop"),
    ] {
        assert!(
            space.contains(&(name.to_owned(), value.to_owned())),
            "{space:?}"
        );
    }

    // Total CPU, and CPU by service, over time.
    let whole = page("profile", "");
    let total = whole["total"].as_u64().unwrap();
    assert_eq!(total, host.total("webserver") + host.total("database"));
    let sum = |series: &Value| -> f64 {
        let points = series["points"].as_array().unwrap().iter();
        points.map(|it| it["value"].as_f64().unwrap()).sum()
    };
    let all = next();
    assert_eq!(all["series"].as_array().unwrap().len(), 1);
    assert!((sum(&all["series"][0]) - total as f64).abs() < 1.0, "{all}");
    let heaviest = next();
    assert_eq!(heaviest["series"].as_array().unwrap().len(), 1);
    let heaviest = &heaviest["series"][0];
    assert_eq!(
        heaviest["labels"],
        json!([{"name": "service_name", "value": "shop"}])
    );
    assert!((sum(heaviest) - host.total("webserver") as f64).abs() < 1.0);
    assert_eq!(
        heaviest["points"].as_array().unwrap().len() as u64,
        SECONDS / 2
    );

    // The flame graph: each function has the values of the page's table.
    let graph = &next()["flamegraph"];
    assert_eq!(number(&graph["total"]), total);
    assert_eq!(number(&graph["levels"][0]["values"][1]), total);
    let mut own = own_values(graph, 4);
    let mut table = functions(&whole);
    own.sort();
    table.sort();
    assert_eq!(own, table);

    // pprof, from both endpoints.
    let pprof = &next()["pprof"]["profile"];
    assert_eq!(*next(), json!({}), "no flame graph of nobody");
    assert_eq!(pprof, next());
    let samples = pprof["sample"].as_array().unwrap().iter();
    let values: u64 = samples.map(|it| number(&it["value"][0])).sum();
    assert_eq!(values, total);

    let diff = &next()["flamegraph"];
    assert_eq!(number(&diff["leftTicks"]), host.total("webserver"));
    assert_eq!(number(&diff["rightTicks"]), host.total("database"));
}

/// The client requests gzip, so the other tests here also cover compressed responses.
#[test]
fn large_responses_are_compressed_on_request() {
    let host = Host::start("");
    let request = json!({
        "profileTypeID": CPU, "labelSelector": "{}", "start": host.start, "end": host.end,
    });
    let body = |more: &str| {
        let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
        let headers = format!("content-type: application/json\r\n{more}");
        http(
            host.page,
            "POST",
            path,
            &headers,
            request.to_string().as_bytes(),
        )
        .1
    };
    let (plain, packed) = (body(""), body("accept-encoding: gzip\r\n"));
    assert!(
        plain.starts_with(b"{") && plain.len() > 1024,
        "{}",
        plain.len()
    );
    assert!(packed.starts_with(b"\x1f\x8b") && packed.len() < plain.len() / 2);
}

/// Stacks below a function, the average of a step, several selectors, another type.
#[test]
fn stacks_types_and_selectors_filter_the_result() {
    let host = Host::start("");
    let ask = |method, request: Value| {
        let (status, answer) = post(
            host.page,
            method,
            "application/json",
            request.to_string().as_bytes(),
        );
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let of = |kind: &str, selector: &str| {
        json!({
            "profileTypeID": kind, "labelSelector": selector,
            "start": host.start, "end": host.end, "step": 15,
        })
    };
    let total =
        |request: Value| number(&ask("SelectMergeStacktraces", request)["flamegraph"]["total"]);
    let web = host.total("webserver");
    assert_eq!(total(of(CPU, "{service_name='shop'}")), web);
    assert_eq!(
        total(of(CPU, "{service_name!=\"shop\"}")),
        host.total("database")
    );
    assert_eq!(total(of(CPU, "{service_name=~\"sh.*|x\", pid=\"1\"}")), web);
    assert_eq!(
        total(of(CPU, "{service_name!~`sh`, service_name=~`d.+`}")),
        host.total("database")
    );
    assert_eq!(
        total(of(&format!("{CPU}:delta"), "{__type__=\"cpu\", pid=\"1\"}")),
        web
    );
    assert_eq!(total(of(SPACE, "{}")), SECONDS * 4096);

    let below = |names: &[&str]| {
        let mut request = of(CPU, "{pid=\"1\"}");
        let sites = names.iter().map(|name| json!({"name": name}));
        request["stackTraceSelector"] = json!({"callSite": sites.collect::<Value>()});
        request
    };
    let template = SECONDS * host::WEB[0].1;
    assert_eq!(total(below(&["main"])), web);
    assert_eq!(total(below(&["main", "render"])), template);
    assert_eq!(ask("SelectMergeStacktraces", below(&["render"])), json!({}));
    let points = ask("SelectSeries", below(&["main", "render"]));
    let point = &points["series"][0]["points"][0]["value"];
    assert!(
        (point.as_f64().unwrap() - template as f64).abs() < 1.0,
        "{points}"
    );

    let mut average = of(CPU, "{pid=\"1\"}");
    average["aggregation"] = json!("TIME_SERIES_AGGREGATION_TYPE_AVERAGE");
    let average = ask("SelectSeries", average);
    let value = average["series"][0]["points"][0]["value"].as_f64().unwrap();
    assert!((value - (web / SECONDS) as f64).abs() < 1.0, "{average}");

    let values = |matchers: Value| {
        let request = json!({"name": "service_name", "matchers": matchers});
        strings(&ask("LabelValues", request)["names"]).join(" ")
    };
    assert_eq!(values(json!([])), "database shop");
    assert_eq!(values(json!(["{pid=\"1\"}"])), "shop");
    assert_eq!(
        values(json!(["{pid=\"1\"}", "{pid=\"2\"}"])),
        "database shop"
    );
    assert_eq!(values(json!(["{__profile_type__=\"x\"}"])), "");

    // Truncated to the largest: the remainder is not a function.
    let mut few = of(CPU, "{}");
    few["maxNodes"] = json!(2);
    let few = ask("SelectMergeStacktraces", few);
    let graph = &few["flamegraph"];
    assert_eq!(number(&graph["total"]), web + host.total("database"));
    assert!(strings(&graph["names"]).len() <= 3, "{graph}");
    assert!(!strings(&graph["names"]).contains(&"other"), "{graph}");
}

#[test]
fn the_legacy_endpoints_return_a_single_json() {
    let host = Host::start("");
    let (from, until) = (host.start, host.end);
    let query = |selector: &str| host::encoded(&format!("{CPU}{selector}"));
    let answer = get(
        host.page,
        &format!(
            "/pyroscope/render?query={}&from={from}&until={until}&groupBy=service_name",
            query("{}")
        ),
    );
    let total = host.total("webserver") + host.total("database");
    assert_eq!(answer["flamebearer"]["numTicks"], total);
    assert_eq!(answer["flamebearer"]["levels"][0], json!([0, total, 0, 0]));
    assert_eq!(answer["metadata"]["format"], "single");
    assert_eq!(answer["metadata"]["sampleRate"], 1_000_000_000);
    let timeline = &answer["timeline"];
    let sum = |timeline: &Value| -> u64 {
        let samples = timeline["samples"].as_array().unwrap().iter();
        samples.map(|it| it.as_u64().unwrap()).sum()
    };
    assert_eq!(timeline["durationDelta"], 15);
    assert_eq!(sum(timeline), total);
    assert_eq!(sum(&answer["groups"]["shop"]), host.total("webserver"));
    let nobody = get(
        host.page,
        &format!("/pyroscope/render?query={}", query("{pid=\"9\"}")),
    );
    assert_eq!(nobody["flamebearer"]["levels"], json!([[0, 0, 0, 0]]));

    let sides = [("left", "{pid=\"1\"}"), ("right", "{pid=\"2\"}")].map(|(side, selector)| {
        format!(
            "{side}Query={}&{side}From={from}&{side}Until={until}",
            query(selector)
        )
    });
    let diff = get(
        host.page,
        &format!("/pyroscope/render-diff?{}", sides.join("&")),
    );
    assert_eq!(diff["metadata"]["format"], "double");
    assert_eq!(diff["leftTicks"], host.total("webserver"));
    assert_eq!(diff["rightTicks"], host.total("database"));
    let values = get(host.page, "/pyroscope/label-values?label=service_name");
    assert_eq!(values, json!(["database", "shop"]));

    for path in [
        "/pyroscope/render".to_owned(),
        "/pyroscope/render?query=cpu".to_owned(),
        format!("/pyroscope/render?query={}", query("{pid=")),
        format!("/pyroscope/render?query={}&from=yesterday", query("{}")),
        format!("/pyroscope/render?query={}&format=dot", query("{}")),
        format!("/pyroscope/render?query={}&max-nodes=x", query("{}")),
        format!("/pyroscope/render?query={}&aggregation=max", query("{}")),
        format!("/pyroscope/render-diff?leftQuery={}", query("{}")),
        "/pyroscope/label-values".to_owned(),
    ] {
        let (status, body) = http(host.page, "GET", &path, "", b"");
        let error: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (status, &error["code"]),
            (400, &json!("invalid_argument")),
            "{path}"
        );
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn failed_queries_state_the_reason() {
    let host = Host::start("");
    let whole = json!({
        "profileTypeID": CPU, "labelSelector": "{}",
        "start": host.start, "end": host.end, "step": 15,
    });
    let with = |field: &str, value: Value| {
        let mut request = whole.clone();
        request[field] = value;
        request.to_string()
    };
    let stacktraces = "SelectMergeStacktraces";
    let many = format!("{{{}}}", vec!["a=\"b\""; 40].join(","));
    for (method, body, status, code, message) in [
        (
            stacktraces,
            "{".to_owned(),
            400,
            "invalid_argument",
            "invalid request",
        ),
        (
            stacktraces,
            "{}".to_owned(),
            400,
            "invalid_argument",
            "invalid profile type \"\", expected",
        ),
        (
            stacktraces,
            with("profileTypeID", json!("cpu")),
            400,
            "invalid_argument",
            "ProfileTypes lists",
        ),
        (
            stacktraces,
            with("labelSelector", json!("{a=\"b\"")),
            400,
            "invalid_argument",
            "add `}` at its end",
        ),
        (
            stacktraces,
            with("labelSelector", json!("{a=~\"(\"}")),
            400,
            "invalid_argument",
            "regular expression",
        ),
        (
            stacktraces,
            with("labelSelector", json!("{a=~\"(x{1000}){1000}\"}")),
            400,
            "invalid_argument",
            "regular expression",
        ),
        (
            stacktraces,
            with("labelSelector", json!(many)),
            400,
            "invalid_argument",
            "more than 32 matchers",
        ),
        (
            stacktraces,
            with("end", json!(host.start)),
            400,
            "invalid_argument",
            "must be before `end`",
        ),
        (
            stacktraces,
            with("start", json!("18446744073709551615")),
            400,
            "invalid_argument",
            "64-bit integer",
        ),
        (
            stacktraces,
            with("format", json!("PROFILE_FORMAT_DOT")),
            501,
            "unimplemented",
            "PROFILE_FORMAT_PPROF",
        ),
        (
            stacktraces,
            with("spanSelector", json!(["a"])),
            501,
            "unimplemented",
            "use labels",
        ),
        (
            stacktraces,
            with("stackTraceSelector", json!({"goPgo": {}})),
            501,
            "unimplemented",
            "go_pgo",
        ),
        (
            stacktraces,
            with("labelSelector", json!("x".repeat(70_000))),
            413,
            "resource_exhausted",
            "65536",
        ),
        (
            "SelectSeries",
            with("step", json!(0)),
            400,
            "invalid_argument",
            "positive",
        ),
        (
            "SelectSeries",
            with("step", json!(-1)),
            400,
            "invalid_argument",
            "positive",
        ),
        (
            "SelectSeries",
            with("step", json!(1e300)),
            400,
            "invalid_argument",
            "positive",
        ),
        (
            "SelectSeries",
            with("step", json!(0.001)),
            400,
            "invalid_argument",
            "more than 11,000 points",
        ),
        (
            "SelectSeries",
            with("aggregation", json!(7)),
            400,
            "invalid_argument",
            "`aggregation`",
        ),
        (
            "LabelValues",
            "{}".to_owned(),
            400,
            "invalid_argument",
            "`name` is missing",
        ),
        (
            "LabelNames",
            json!({"matchers": vec!["{}"; 5]}).to_string(),
            400,
            "invalid_argument",
            "more than 4",
        ),
        (
            "SelectSeries",
            with("groupBy", json!(vec!["a"; 65])),
            400,
            "invalid_argument",
            "`group_by` has 65 labels",
        ),
        (
            "Series",
            json!({"labelNames": vec!["a"; 65]}).to_string(),
            400,
            "invalid_argument",
            "`label_names` has 65 labels",
        ),
        (
            "Diff",
            json!({"left": whole}).to_string(),
            400,
            "invalid_argument",
            "one is missing",
        ),
        (
            "SelectHeatmap",
            "{}".to_owned(),
            501,
            "unimplemented",
            "README of live_view",
        ),
    ] {
        let (found, error) = post(host.page, method, "application/json", body.as_bytes());
        let text = error["message"].as_str().unwrap_or("");
        assert_eq!(
            (found, error["code"].as_str()),
            (status, Some(code)),
            "{method} {body}: {error}"
        );
        assert!(text.contains(message), "{message}: {text}");
    }
    let types = "/querier.v1.QuerierService/ProfileTypes";
    let json_type = "content-type: application/json\r\n";
    for (method, headers, body, status) in [
        (
            "POST",
            "content-type: application/proto\r\n",
            &b"\x08\x80"[..],
            400,
        ),
        ("POST", "content-type: text/plain\r\n", b"{}", 415),
        (
            "POST",
            "content-type: application/grpc\r\n",
            b"\0\0\0\0\0",
            415,
        ),
        (
            "POST",
            "content-type: application/json\r\ncontent-encoding: gzip\r\n",
            b"{}",
            400,
        ),
        (
            "POST",
            "content-type: application/json\r\ncontent-encoding: rot13\r\n",
            b"{}",
            415,
        ),
        (
            "POST",
            "content-type: application/json\r\nconnect-protocol-version: 2\r\n",
            b"{}",
            400,
        ),
        (
            "POST",
            "content-type: application/json\r\nconnect-timeout-ms: soon\r\n",
            b"{}",
            400,
        ),
        (
            "POST",
            "content-type: application/json\r\nconnect-timeout-ms: 10000\r\n",
            b"{}",
            200,
        ),
        ("GET", json_type, b"", 405),
    ] {
        let (found, _) = http(host.page, method, types, headers, body);
        assert_eq!(found, status, "{method} {headers}");
    }
    let (found, _) = http(
        host.page,
        "POST",
        "/querier.v1.Querier/ProfileTypes",
        json_type,
        b"{}",
    );
    assert_eq!(found, 404);
    // A foreign host name that resolves to this server (DNS rebinding).
    let evil = format!("{json_type}x-host: evil.example\r\n");
    let (found, _) = http(host.page, "POST", types, &evil, b"{}");
    assert_eq!(found, 421);

    let errors = [
        call("SelectHeatmap", json!({})),
        call(stacktraces, json!({"profileTypeID": "cpu"})),
    ];
    for codec in ["proto", "json"] {
        let Some(outcomes) = ask(host.page, "", codec, &errors) else {
            return;
        };
        assert_eq!(
            texts(&Value::from(outcomes), "code"),
            ["unimplemented", "invalid_argument"]
        );
    }
}

#[test]
fn queries_need_the_same_authentication_as_the_page() {
    let host = Host::start("auth: {authenticator: basicauth}");
    let calls = [call("ProfileTypes", json!({}))];
    // user:password
    let authorization = "Basic dXNlcjpwYXNzd29yZA==";
    let Some(outcomes) = ask(host.page, "", "proto", &calls) else {
        return;
    };
    assert_eq!(outcomes[0]["code"], "unauthenticated", "{outcomes:?}");
    let outcomes = ask(host.page, authorization, "proto", &calls).unwrap();
    assert_eq!(
        texts(&outcomes[0]["answer"]["profileTypes"], "ID"),
        [SPACE, CPU]
    );
    let (status, _) = http(
        host.page,
        "GET",
        "/pyroscope/label-values?label=service_name",
        "",
        b"",
    );
    assert_eq!(status, 401);
}

/// Runs each `curl` of the README against this host.
#[test]
fn the_examples_of_the_readme_work() {
    if !Command::new("curl")
        .arg("--version")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        skip("there is no curl for the README's examples");
        return;
    }
    let host = Host::start("");
    let readme =
        std::fs::read_to_string(root().join("components/exporters/live_view/README.md")).unwrap();
    let commands: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    assert!(commands.len() > 6, "{commands:?}");
    for command in commands {
        assert!(command.starts_with("curl -s"), "{command}");
        let own = command
            .replacen("curl -s", "curl --fail-with-body -s", 1)
            .replace("localhost:7071", &host.page.to_string());
        let output = Command::new("sh").args(["-c", &own]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}: {stdout}");
        if command.contains("querier.v1") || command.contains("render") {
            let answer: Value = serde_json::from_str(&stdout).unwrap();
            assert!(
                answer.as_object().is_some_and(|it| !it.is_empty()),
                "{command}: {stdout}"
            );
        }
    }
}

/// Makes `1.0` and `1` equal.
fn as_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(as_doubles).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), as_doubles(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|it| it[field].as_str()).collect()
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).collect()
}

/// Protobuf's JSON encodes 64-bit numbers as strings.
fn number(value: &Value) -> u64 {
    value.as_str().unwrap_or("0").parse().unwrap()
}

/// The self value of each function in a flame graph.
fn own_values(graph: &Value, stride: usize) -> Vec<(String, u64)> {
    let names = strings(&graph["names"]);
    let mut own = std::collections::BTreeMap::new();
    for level in graph["levels"].as_array().unwrap() {
        for bar in level["values"].as_array().unwrap().chunks(stride) {
            let name = names[usize::try_from(number(&bar[3])).unwrap()];
            *own.entry(name.to_owned()).or_insert(0) += number(&bar[2]);
        }
    }
    own.retain(|_, value| *value > 0);
    own.into_iter().collect()
}

/// The same in the page's table.
fn functions(document: &Value) -> Vec<(String, u64)> {
    let numbers = |column: &Value| -> Vec<u64> {
        column
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_u64().unwrap())
            .collect()
    };
    let strings = strings(&document["strings"]);
    let names = numbers(&document["frames"]["name"]);
    let table = &document["functions"];
    let rows = numbers(&table["frame"])
        .into_iter()
        .zip(numbers(&table["self"]));
    let mut own = std::collections::BTreeMap::new();
    for (frame, value) in rows {
        let name = strings[usize::try_from(names[usize::try_from(frame).unwrap()]).unwrap()];
        *own.entry(name.to_owned()).or_insert(0) += value;
    }
    own.retain(|_, value| *value > 0);
    own.into_iter().collect()
}
