//! Connectors in the real program.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use profcol::REGISTRY;
use profcol_component::testkit::profiles;
use profcol_component::{
    Batch, BuildContext, BuildError, Entry, Factory, Meter, Output, Receiver, Registry, RunError,
    SelfTelemetry, Stop, entry,
};
use profcol_config::{Config, Input, SystemProviders, resolve};
use profcol_engine::{Document, Graph, Service};
use profcol_net::grpc::{Code, Status};
use profcol_profile::{KeyValue, Profiles};
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::rig::Rig;
use profcol_test_harness::support::{file, path, run};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

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
    let sent = 5 * rig.reload_under_load(30, version, |client| {
        let profiles = profiles(5);
        while let Err(refusal) = client.send(&profiles) {
            let message = refusal.message;
            assert!(message.contains("a reload has disconnected"), "{message}");
        }
    });
    let output = rig.stop();
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
fn batches_go_to_the_next_level_while_the_first_is_down_and_return() {
    let first = Destination::new(Mode::Refuse(Status::new(Code::Unavailable, "down")));
    let second = Destination::new(Mode::Take);
    let address = first.address;
    let rig = Rig::start(&config(
        &[("second", &second)],
        &format!(
            "  otlp_grpc/first:
    endpoint: {address}
    tls: {{insecure: true}}
    sending_queue: {{enabled: false}}
    retry_on_failure: {{enabled: false}}
connectors:
  failover: {{priority_levels: [[profiles/first], [profiles/second]], retry_interval: 200ms}}
service:
  pipelines:
    profiles/in: {{receivers: [otlp], exporters: [failover]}}
    profiles/first: {{receivers: [failover], exporters: [otlp_grpc/first]}}
    profiles/second: {{receivers: [failover], exporters: [otlp_grpc/second]}}
"
        ),
    ));
    let client = rig.client();
    for _ in 0..5 {
        client.send(&profiles(2)).unwrap();
    }
    second.wait_for_samples(10);
    rig.wait_for("A priority level refuses batches.", 1);
    first.set(Mode::Take);
    let mut sent = 10;
    wait_until("the return to the first level", || {
        client.send(&profiles(1)).unwrap();
        sent += 1;
        first.samples() > 0
    });
    rig.wait_for("A priority level accepts batches again.", 1);
    let output = rig.stop();
    assert_eq!(first.samples() + second.samples(), sent, "{output}");
}

/// Pushes a live batch, such as those of `ebpf_cpu`, for each number of samples that it gets.
struct Live;

static BATCHES: Mutex<Option<mpsc::UnboundedReceiver<usize>>> = Mutex::new(None);

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct LiveConfig {}

impl Config for LiveConfig {}

impl Factory for Live {
    const NAME: &'static str = "live";
    type Config = LiveConfig;
    type Component = dyn Receiver;

    fn build(_: &LiveConfig, _: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Live))
    }
}

#[async_trait]
impl Receiver for Live {
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let mut batches = BATCHES.lock().unwrap().take().unwrap();
        while let Some(samples) = batches.recv().await {
            let batch = Batch::live(profiles(samples));
            output.push(batch).await.map_err(RunError::new)?;
        }
        stop.cancelled().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_batches_go_to_the_next_level_while_the_first_is_down_and_return() {
    const LIVE: &[Entry<dyn Receiver>] = &[entry::<Live>()];
    let registry = Registry {
        receivers: LIVE,
        ..REGISTRY
    };
    let destination = |mode| tokio::task::block_in_place(|| Destination::new(mode));
    let down = Mode::Refuse(Status::new(Code::Unavailable, "down"));
    let (first, second) = (destination(down), destination(Mode::Take));
    let text = format!(
        "
receivers: {{live: }}
connectors: {{failover: {{priority_levels: [[profiles/first], [profiles/second]], retry_interval: 100ms}}}}
exporters:
  otlp_grpc/first: {{endpoint: '{}', tls: {{insecure: true}}, sending_queue: {{queue_size: 2}}, retry_on_failure: {{initial_interval: 50ms, max_interval: 50ms}}}}
  otlp_grpc/second: {{endpoint: '{}', tls: {{insecure: true}}}}
service:
  pipelines:
    profiles/in: {{receivers: [live], exporters: [failover]}}
    profiles/first: {{receivers: [failover], exporters: [otlp_grpc/first]}}
    profiles/second: {{receivers: [failover], exporters: [otlp_grpc/second]}}
",
        first.address, second.address
    );
    let input = Input {
        configs: vec![format!("yaml:{text}")],
        sets: Vec::new(),
    };
    let resolved = resolve(&input, &SystemProviders::default()).unwrap();
    let document = Document::read(&resolved.root, &registry)
        .unwrap_or_else(|problems| panic!("{}", problems.report(&resolved.sources)));
    let graph = Graph::build(&document, &SelfTelemetry::default()).unwrap();
    let (push, batches) = mpsc::unbounded_channel();
    *BATCHES.lock().unwrap() = Some(batches);
    let service = Service::start(graph, &Meter::default()).await.unwrap();

    // Two batches wait in the first queue.
    for samples in 1..=10 {
        push.send(samples).unwrap();
    }
    tokio::task::block_in_place(|| second.wait_for_samples((3..=10).sum()));
    assert_eq!(first.samples(), 0);
    first.set(Mode::Take);
    tokio::task::block_in_place(|| first.wait_for_samples(3));
    // Once the interval has passed, a batch tries the first level.
    let samples = AtomicUsize::new(55);
    let push_one = || {
        push.send(1).unwrap();
        let samples = samples.fetch_add(1, Ordering::Relaxed) + 1;
        wait_until("a batch to arrive", || {
            first.samples() + second.samples() == samples
        });
    };
    let taken = tokio::task::block_in_place(|| {
        wait_until("the return to the first level", || {
            push_one();
            first.samples() > 3
        });
        let taken = second.samples();
        (0..20).for_each(|_| push_one());
        taken
    });
    let samples = samples.into_inner();
    drop(push);
    let report = service.stop(Duration::from_secs(20)).await;
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let (first, second) = (first.samples(), second.samples());
    assert_eq!(first + second, samples, "{first} and {second}");
    assert_eq!(
        second, taken,
        "all of the last batches go to the first level"
    );
    assert_eq!(report.balance.lost(), 0);
    assert_eq!(
        report.balance.receivers(),
        format!("live: passed_on={samples}")
    );
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
