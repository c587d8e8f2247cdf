//! Startup errors name the path of the setting, and have an exit code of their own.

use std::net::TcpListener;
use std::path::Path;

use profcol_test_harness::peers::profcol;
use profcol_test_harness::support::{Ended, file, path, run};

/// The failed start of profcol with these receivers and exporters.
fn started(receivers: &str, exporters: &str) -> Ended {
    let config = file("config.yaml", config(receivers, exporters));
    run(&["--config", path(&config.path)])
}

fn config(receivers: &str, exporters: &str) -> String {
    format!(
        "\
receivers:
  {receivers}
exporters:
  {exporters}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp/front], exporters: [otlp_grpc/back]}}
"
    )
}

const BACK: &str = "otlp_grpc/back: {endpoint: 127.0.0.1:1, tls: {insecure: true}}";
const FRONT: &str = "otlp/front: {protocols: {http: {endpoint: 127.0.0.1:0}}}";

fn check(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "no {word} in {last}");
    }
}

#[test]
fn names_a_port_in_use_with_its_path() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    for protocol in ["grpc", "http"] {
        let receivers =
            format!("otlp/front: {{protocols: {{{protocol}: {{endpoint: \"{address}\"}}}}}}");
        let path = format!("receivers::otlp/front::protocols::{protocol}::endpoint");
        check(
            &started(&receivers, BACK),
            &[&path, &address, "address already in use"],
        );
    }
}

#[test]
fn names_a_metrics_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let config = format!(
        "\
receivers: {{nop: }}
exporters: {{nop: }}
service:
  telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {port}}}}}}}}}]}}}}
  pipelines:
    profiles: {{receivers: [nop], exporters: [nop]}}
"
    );
    let config = file("config.yaml", config);
    let ended = run(&["--config", path(&config.path)]);
    check(&ended, &[&port, "in use"]);
}

/// Certificates in files: `good`, `old` and `other`, each with its key.
fn certificates() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("can create a temporary directory");
    for (name, year) in [("good", 2090), ("old", 2020), ("other", 2090)] {
        let mut params =
            rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a host name");
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("can generate a key");
        let certificate = params.self_signed(&key).expect("can sign the certificate");
        let write = |kind: &str, text: String| {
            std::fs::write(directory.path().join(format!("{name}.{kind}")), text).expect("a file");
        };
        write("pem", certificate.pem());
        write("key", key.serialize_pem());
    }
    directory
}

fn server_tls(directory: &Path, protocol: &str, cert: &str, key: &str) -> String {
    let at = |name| directory.join(name).display().to_string();
    format!(
        "otlp/front: {{protocols: {{{protocol}: {{endpoint: 127.0.0.1:0, tls: {{cert_file: {}, key_file: {}}}}}}}}}",
        at(cert),
        at(key)
    )
}

#[test]
fn names_invalid_tls_files_with_their_path() {
    let directory = certificates();
    let directory = directory.path();
    for protocol in ["grpc", "http"] {
        let path = format!("receivers::otlp/front::protocols::{protocol}::tls");
        for (cert, key, words) in [
            ("nowhere.pem", "good.key", &["nowhere.pem", "cert_file"][..]),
            ("good.pem", "nowhere.key", &["nowhere.key", "key_file"]),
            ("good.pem", "other.key", &["good.pem", "other.key"]),
            ("good.key", "good.key", &["good.key", "certificate"]),
        ] {
            let ended = started(&server_tls(directory, protocol, cert, key), BACK);
            check(&ended, &[&[&*path][..], words].concat());
        }
    }
    for exporter in ["endpoint: localhost:1", "endpoint: https://localhost:1"] {
        let ca = directory.join("nowhere.pem");
        let ca = ca.display();
        let back = format!("otlp_grpc/back: {{{exporter}, tls: {{ca_file: {ca}}}}}");
        let ended = started(FRONT, &back);
        let path = "exporters::otlp_grpc/back::tls";
        check(&ended, &[path, "nowhere.pem", "ca_file"]);
    }
    let at = |name| directory.join(name).display().to_string();
    let pair = format!(
        "cert_file: {}, key_file: {}",
        at("good.pem"),
        at("other.key")
    );
    let grpc = format!("otlp_grpc/back: {{endpoint: localhost:1, tls: {{{pair}}}}}");
    let http = format!("otlp_http/back: {{endpoint: \"https://localhost:1\", tls: {{{pair}}}}}");
    for (exporter, section) in [
        (grpc, "exporters::otlp_grpc/back::tls"),
        (http, "exporters::otlp_http/back::tls"),
    ] {
        let back = exporter.split(':').next().unwrap_or_default();
        let config = config(FRONT, &exporter).replace("[otlp_grpc/back]", &format!("[{back}]"));
        let config = file("config.yaml", config);
        let ended = run(&["--config", path(&config.path)]);
        check(&ended, &[section, "good.pem", "other.key"]);
    }
}

/// An expired certificate must not prevent a restart: it may be renewed in place.
#[test]
fn warns_about_an_expired_certificate() {
    let directory = certificates();
    let receivers = server_tls(directory.path(), "grpc", "old.pem", "old.key");
    let mut process = profcol(&config(&receivers, BACK));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
    let line = output
        .lines()
        .find(|line| line.contains("expired at 2020-01-01"));
    assert!(
        line.is_some_and(|line| line.contains("old.pem")),
        "{output}"
    );
}
