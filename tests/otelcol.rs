//! Recorded exports of a real profiler, sent through real Collectors.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use profcol_test_harness::peers::{Process, free_address, otelcol, post_profiles, profcol};

/// The recorded exports and the number of samples in each.
const EXPORTS: [(&str, usize); 8] = [
    ("export-01.pb", 19),
    ("export-02.pb", 79),
    ("export-03.pb", 127),
    ("export-04.pb", 47),
    ("export-05.pb", 39),
    ("export-06.pb", 41),
    ("export-07.pb", 29),
    ("export-08.pb", 28),
];

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn profcol_between_two_collectors_changes_nothing() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/otlp/profiler");
    let alone = {
        let (from, to) = (free_address(), free_address());
        let last = collector_that_prints(to);
        let _first = collector_that_forwards(from, to);
        send_all(&directory, from, last)
    };
    let due: usize = EXPORTS.iter().map(|(_, samples)| samples).sum();
    let arrived = alone
        .lines()
        .filter(|line| line.starts_with("    Sample #"))
        .count();
    assert_eq!(arrived, due, "{alone}");

    let (from, between, to) = (free_address(), free_address(), free_address());
    let last = collector_that_prints(to);
    let middle = profcol_that_forwards(between, to);
    let _first = collector_that_forwards(from, between);
    let through_profcol = send_all(&directory, from, last);
    assert!(
        through_profcol == alone,
        "{through_profcol}\n--- without profcol:\n{alone}"
    );
    let (status, output) = middle.stop();
    assert!(status.success(), "{output}");
}

/// Posts the exports to `from` one by one, waits for each to arrive at `last`, and returns the output of `last`.
fn send_all(directory: &Path, from: SocketAddr, mut last: Process) -> String {
    for (sent, (name, samples)) in EXPORTS.iter().enumerate() {
        let body = fs::read(directory.join(name)).expect("the recording exists");
        let answer = post_profiles(from, "application/x-protobuf", &body);
        assert_eq!(answer, "HTTP/1.1 200 OK", "{name}");
        let due = format!("\"sample records\": {samples}}}");
        last.wait_for_output(&format!("to print {name}"), |printed| {
            let arrived: Vec<&str> = printed
                .lines()
                .filter(|line| line.starts_with("Profiles\t"))
                .collect();
            arrived.len() == sent + 1 && arrived.last().is_some_and(|line| line.ends_with(&due))
        });
    }
    let (status, printed) = last.stop();
    assert!(status.success(), "{printed}");
    printed
}

/// OTLP over HTTP in, OTLP over gRPC to `to` out.
fn collector_that_forwards(listen: SocketAddr, to: SocketAddr) -> Process {
    otelcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{http: {{endpoint: {listen}}}}}}}
exporters:
  otlp_grpc: {{endpoint: {to}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    ))
    .listens_on(listen)
}

/// OTLP over gRPC in, OTLP over gRPC to `to` out.
fn profcol_that_forwards(listen: SocketAddr, to: SocketAddr) -> Process {
    profcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: {listen}}}}}}}
exporters:
  otlp_grpc: {{endpoint: {to}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    ))
    .listens_on(listen)
}

/// OTLP over gRPC in, all details of each sample out.
fn collector_that_prints(listen: SocketAddr) -> Process {
    otelcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: {listen}}}}}}}
exporters:
  debug: {{verbosity: detailed, use_internal_logger: false}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [debug]}}
"
    ))
    .listens_on(listen)
}
