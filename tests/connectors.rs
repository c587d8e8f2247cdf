//! Connectors in the real program.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_profile::{KeyValue, Profiles};
use profcol_test_harness::backend::{Destination, Mode};
use profcol_test_harness::rig::{RELOADED, Rig};
use profcol_test_harness::support::{file, path, run};

/// Receives on a port of its own, sends to these destinations by `otlp_grpc/<name>`, and connects them as in `rest`.
fn config(destinations: &[(&str, &Destination)], rest: &str) -> String {
    let exporters: String = destinations
        .iter()
        .map(|(name, destination)| {
            let address = destination.address;
            format!("  otlp_grpc/{name}: {{endpoint: \"{address}\", tls: {{insecure: true}}}}\n")
        })
        .collect();
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
{exporters}{rest}  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
"
    )
}

#[test]
fn joined_pipelines_deliver_everything_once_although_they_are_stopped() {
    let slow = Destination::new(Mode::Slow(Duration::from_millis(200)));
    let fast = Destination::new(Mode::Take);
    let rig = Rig::start(&config(
        &[("slow", &slow), ("fast", &fast)],
        "processors:
  batch/before: {timeout: 10s}
  batch/after: {timeout: 10s}
connectors:
  forward:
  forward/again:
service:
  pipelines:
    profiles/end: {receivers: [forward/again], processors: [batch/after], exporters: [otlp_grpc/slow]}
    profiles/copy: {receivers: [forward], exporters: [otlp_grpc/fast]}
    profiles/way: {receivers: [forward], processors: [batch/after], exporters: [forward/again]}
    profiles/in: {receivers: [otlp], processors: [batch/before], exporters: [forward]}
",
    ));
    let client = rig.client();
    for _ in 0..50 {
        client.send(&profiles(3)).unwrap();
    }
    // All batches are held before the first connector, and pass the others during the shutdown.
    assert_eq!((slow.samples(), fast.samples()), (0, 0));
    let output = rig.stop();
    assert_eq!((slow.samples(), fast.samples()), (150, 150), "{output}");
    assert!(output.contains("otlp: passed_on=150"), "{output}");
}

#[test]
fn reloads_of_joined_pipelines_lose_and_double_nothing() {
    let [kept, changing] = [(), ()].map(|()| Destination::new(Mode::Take));
    let version = |number: usize| {
        let (more, process) = match number % 3 {
            0 => ("", ""),
            1 => ("", "batch"),
            _ => (
                "    profiles/more: {receivers: [forward], exporters: [otlp_grpc/changing]}\n",
                "",
            ),
        };
        config(
            &[("kept", &kept), ("changing", &changing)],
            &format!(
                "processors: {{batch: {{timeout: 10ms}}}}
connectors: {{forward: }}
service:
  pipelines:
    profiles/in: {{receivers: [otlp], processors: [{process}], exporters: [forward]}}
    profiles/out: {{receivers: [forward], exporters: [otlp_grpc/kept]}}
{more}"
            ),
        )
    };
    let rig = Rig::start(&version(0));
    let (has_ended, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            let client = rig.client();
            let (has_ended, sent) = (&has_ended, &sent);
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    let profiles = profiles(5);
                    while let Err(refusal) = client.send(&profiles) {
                        let message = refusal.message;
                        assert!(message.contains("a reload has disconnected"), "{message}");
                    }
                    sent.fetch_add(5, Ordering::Relaxed);
                }
            });
        }
        for number in 1..=30 {
            rig.write(&number.to_string(), &version(number));
            rig.signal("-HUP");
            rig.wait_for(RELOADED, number);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    let output = rig.stop();
    let sent = sent.into_inner();
    assert!(sent > 0 && changing.samples() > 0);
    assert_eq!(kept.samples(), sent, "{output}");
    assert!(output.contains("connector forward"), "{output}");
}

/// Profiles with this number of samples for each service.
fn services(services: &[(&str, usize)]) -> Profiles {
    let of_one = services.iter().map(|(service, samples)| {
        let mut profiles = profiles(*samples);
        profiles.update_resources(|resource| {
            resource.attributes = vec![KeyValue::new("service.name", *service)];
            true
        });
        profiles
    });
    Profiles::merge(of_one)
}

#[test]
fn resources_are_routed_and_batches_take_turns() {
    let [a, b, other] = [(), (), ()].map(|()| Destination::new(Mode::Take));
    let rig = Rig::start(&config(
        &[("a", &a), ("b", &b), ("other", &other)],
        "connectors:
  round_robin:
  routing:
    default_pipelines: [profiles/other]
    table:
      - condition: IsMatch(attributes[\"service.name\"], \"^(checkout|search)$\")
        pipelines: [profiles/shop]
      - statement: route() where attributes[\"service.name\"] == \"both\"
        pipelines: [profiles/shop, profiles/other]
service:
  pipelines:
    profiles/in: {receivers: [otlp], exporters: [routing]}
    profiles/shop: {receivers: [routing], exporters: [round_robin]}
    profiles/a: {receivers: [round_robin], exporters: [otlp_grpc/a]}
    profiles/b: {receivers: [round_robin], exporters: [otlp_grpc/b]}
    profiles/other: {receivers: [routing], exporters: [otlp_grpc/other]}
",
    ));
    let client = rig.client();
    client
        .send(&services(&[("checkout", 1), ("mail", 2)]))
        .unwrap();
    client
        .send(&services(&[("search", 4), ("both", 8)]))
        .unwrap();
    client.send(&services(&[("checkout", 16)])).unwrap();
    let output = rig.stop();
    let samples = [&a, &b, &other].map(Destination::samples);
    assert_eq!(samples, [17, 12, 10], "{output}");
}

#[test]
fn a_wrong_condition_is_reported_with_its_place() {
    let text = "receivers: {otlp: {protocols: {grpc: }}}
exporters: {nop: }
connectors:
  routing:
    table:
      - condition: attributes[\"a\"] < 1
        pipelines: [profiles/out]
service:
  pipelines:
    profiles/in: {receivers: [otlp], exporters: [routing]}
    profiles/out: {receivers: [routing], exporters: [nop]}
";
    let config = file("config.yaml", text);
    let answer = run(&["validate", "--config", path(&config.path)]);
    assert_eq!(answer.code, Some(78), "{}", answer.stderr);
    for expected in [
        "connectors::routing::table::0::condition: character 17: expected `==` or `!=`, found '<'",
        "config.yaml:6:20",
        "supported are `attributes",
    ] {
        assert!(answer.stderr.contains(expected), "{}", answer.stderr);
    }
}
