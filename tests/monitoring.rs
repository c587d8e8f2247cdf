//! The alerts and the dashboard use existing metrics.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers::free_address;
use profcol_test_harness::support::{file, path, profcol, root, yaml};
use serde_json::Value;

#[test]
fn alerts_use_existing_metrics() {
    let text = fs::read_to_string(root().join("deploy/monitoring/rules.yaml")).unwrap();
    let rules = yaml(&text);
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let mut names = BTreeSet::new();
    for rule in rules {
        let alert = rule["alert"].as_str().unwrap();
        assert!(names.insert(alert), "duplicate {alert}");
        for key in ["summary", "description"] {
            assert!(rule["annotations"][key].is_string(), "{alert} has no {key}");
        }
        check(alert, rule["expr"].as_str().unwrap());
    }
    assert!(names.len() > 5);
}

#[test]
fn the_dashboard_uses_existing_metrics() {
    let text = fs::read_to_string(root().join("deploy/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = 0;
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap();
            check(title, expr);
            queries += 1;
        }
    }
    assert!(queries > 10);
}

/// The list of common metrics matches those of a running pipeline.
#[test]
fn common_metrics_are_documented() {
    let [metrics, otlp] = [free_address(), free_address()];
    let (host, port) = (metrics.ip(), metrics.port());
    let config = file(
        "metrics.yaml",
        format!(
            "
receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}
processors: {{memory_limiter: {{check_interval: 1s, limit_mib: 4000}}}}
exporters: {{nop: {{}}, otlp_grpc: {{endpoint: '127.0.0.1:1', tls: {{insecure: true}}}}}}
service:
  telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: {host}, port: {port}}}}}}}}}]}}}}
  pipelines: {{profiles: {{receivers: [otlp], processors: [memory_limiter], exporters: [nop, otlp_grpc]}}}}
"
        ),
    );
    let started = profcol(&["--config", path(&config.path)])
        .stderr(Stdio::null())
        .spawn();
    let mut started = started.unwrap();
    let mut text = String::new();
    wait_until("the receiver to run", || {
        text = scraped(metrics);
        text.contains("otelcol_receiver_accepted_profile_samples")
    });
    let _ = started.kill();
    let _ = started.wait();
    let readme = fs::read_to_string(root().join("deploy/monitoring/README.md")).unwrap();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: BTreeSet<&str> = families.filter_map(|line| line.split(' ').next()).collect();
    let listed: BTreeSet<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| is_metric(name))
        .collect();
    let gone: Vec<_> = listed.difference(&families).collect();
    assert!(
        gone.is_empty(),
        "listed, and not served: {gone:?} of {families:?}"
    );
    // Component-specific metrics are documented in their READMEs.
    let unlisted: Vec<_> = families
        .difference(&listed)
        .filter(|name| {
            is_metric(name) && !name.contains("memory_limiter") && !documented().contains(**name)
        })
        .collect();
    assert!(
        unlisted.is_empty(),
        "served, and listed nowhere: {unlisted:?}"
    );
}

/// Prometheus scrapes pods at their address: the configurations listen there, on the port that the manifest names.
#[test]
fn pods_serve_their_metrics() {
    for (manifest, config, variable, name) in [
        ("daemonset", "kubernetes-daemonset", "POD_IP", "metrics"),
        ("gateway", "gateway", "LISTEN", "metrics"),
        ("gateway", "gateway-stored", "LISTEN", "metrics"),
        ("sidecar", "sidecar", "POD_IP", "profcol-metrics"),
    ] {
        let manifest = root().join(format!("deploy/kubernetes/{manifest}.yaml"));
        let manifest = fs::read_to_string(manifest).unwrap();
        assert!(manifest.contains(&format!("- name: {variable}\n")));
        let printed = profcol(&["print-config", "--config"])
            .arg(root().join(format!("config-examples/{config}.yaml")))
            .env(variable, "fd00::7")
            .output()
            .unwrap();
        let printed = yaml(&String::from_utf8(printed.stdout).unwrap());
        let reader = &printed["service"]["telemetry"]["metrics"]["readers"][0]["pull"];
        let prometheus = &reader["exporter"]["prometheus"];
        assert_eq!(prometheus["host"], "fd00::7", "{config}");
        let port = format!("{{name: {name}, containerPort: {}}}", prometheus["port"]);
        assert!(manifest.contains(&port), "{config}: {port}");
    }
}

/// The page sums up counters of dropped samples by their names (`metrics.js` of the viewer).
#[test]
fn the_page_finds_counters_of_dropped_samples() {
    let counted_elsewhere = [
        // By `profcol_exporter_dropped_samples`, too.
        "otelcol_exporter_send_failed_profile_samples",
        "otelcol_exporter_file_ungrouped_profile_samples",
        "otelcol_exporter_parca_given_up_profile_samples",
    ];
    let mut found = 0;
    for page in pages_below(&root().join("components")) {
        let text = fs::read_to_string(page).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        for (name, meaning) in rows.filter_map(|row| row.split_once("` | ")) {
            let drops = [
                "samples dropped",
                "samples lost",
                "undelivered samples in dropped",
            ];
            let is_drop = is_metric(name) && drops.iter().any(|it| meaning.starts_with(it));
            if !is_drop || counted_elsewhere.contains(&name) {
                continue;
            }
            let of_receiver = name == "otelcol_receiver_failed_profile_samples";
            let stem = name
                .trim_end_matches("_samples")
                .trim_end_matches("_profile");
            let is_found = of_receiver || stem.ends_with("_dropped") || stem.ends_with("_lost");
            assert!(is_found, "the page does not know that {name} counts drops");
            found += 1;
        }
    }
    assert!(found > 6, "{found}");
}

/// The response of `/metrics`, once it is listening.
fn scraped(address: SocketAddr) -> String {
    let mut connected = None;
    wait_until("profcol to listen", || {
        connected = TcpStream::connect(address).ok();
        connected.is_some()
    });
    let mut stream = connected.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn check(name: &str, expr: &str) {
    let count = |wanted: char| expr.chars().filter(|&c| c == wanted).count();
    for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
        assert_eq!(
            count(open),
            count(close),
            "{name}: {open} and {close} in {expr}"
        );
    }
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: BTreeSet<&str> = words
        .filter(|word| *word == "up" || is_metric(word))
        .collect();
    assert!(!metrics.is_empty(), "{name} uses no metrics: {expr}");
    let documented = documented();
    for metric in metrics {
        let family = metric.trim_end_matches("_bucket");
        assert!(
            documented.contains(family),
            "{name}: there is no metric {metric}"
        );
    }
}

/// The metrics in the READMEs; `up` is Prometheus' own.
fn documented() -> BTreeSet<String> {
    let mut found: BTreeSet<String> = ["up".to_owned()].into();
    for directory in ["components", "deploy"] {
        for page in pages_below(&root().join(directory)) {
            let text = fs::read_to_string(page).unwrap();
            let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
            // Some rows list several metrics.
            let names = rows.flat_map(|row| row.split('`'));
            found.extend(names.filter(|name| is_metric(name)).map(str::to_owned));
        }
    }
    found
}

fn is_metric(name: &str) -> bool {
    ["otelcol_", "profcol_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn pages_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => pages_below(&path),
        false => vec![path],
    });
    found
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect()
}
