//! What an operator lives through: an agent sends to a gateway under load, the backend is away, the gateway is killed twice, and its
//! disk fills up. All comes back, the totals are equal to the sample, and the gateway's log tells it in few lines.
//!
//! `PROFCOL_OUTAGE_SECONDS=600` is how long `cargo xtask nightly` has the backend away.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use profcol_component::testkit::profiles;
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::balance::{metric, served_at};
use profcol_test_harness::peers::free_address;
use profcol_test_harness::rig::Rig;
use profcol_test_harness::support::{SmallDisk, path};

const CLIENTS: usize = 2;
const SAMPLES: usize = 20;
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// A dozen for what happens, five for each start, and three for the stop. Longer outages are mentioned again.
const MAX_LINES: usize = 36;

struct Addresses {
    gateway: SocketAddr,
    gateway_metrics: SocketAddr,
    backend: SocketAddr,
}

fn agent(addresses: &Addresses, directory: &Path) -> String {
    config(
        "127.0.0.1:0",
        "{}",
        addresses.gateway,
        directory,
        "{level: none}",
    )
}

fn gateway(addresses: &Addresses, directory: &Path) -> String {
    config(
        &addresses.gateway.to_string(),
        "{window: 1h}",
        addresses.backend,
        directory,
        &served_at(addresses.gateway_metrics),
    )
}

fn backend(addresses: &Addresses, destination: &Destination, directory: &Path) -> String {
    config(
        &addresses.backend.to_string(),
        "{window: 1h}",
        destination.address,
        directory,
        "{level: none}",
    )
}

/// One link of the chain: receives, stores, sends on.
fn config(
    listens: &str,
    deduplicate: &str,
    to: SocketAddr,
    directory: &Path,
    metrics: &str,
) -> String {
    let directory = path(directory);
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: \"{listens}\"}}}}, deduplicate: {deduplicate}}}
exporters:
  otlp_grpc: {{endpoint: \"{to}\", timeout: 5s, tls: {{insecure: true}}, sending_queue: {{queue_size: 1000000, storage: file_storage}}, retry_on_failure: {{initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0s}}}}
extensions:
  file_storage: {{directory: \"{directory}/queues\"}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {metrics}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    )
}

#[test]
#[expect(clippy::print_stdout, reason = "the log is to be read")]
fn an_operator_loses_nothing_and_can_read_why() {
    let away = std::env::var("PROFCOL_OUTAGE_SECONDS").map_or(6, |text| text.parse().unwrap());
    let away = Duration::from_secs(away);
    let Some(disk) = SmallDisk::mount("size=256m") else {
        return;
    };
    let directories = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let addresses = Addresses {
        gateway: free_address(),
        gateway_metrics: free_address(),
        backend: free_address(),
    };
    let destination = Destination::counting(Mode::Take);
    let start_gateway = || Rig::start(&gateway(&addresses, disk.path()));
    let start_backend = || Rig::start(&backend(&addresses, &destination, directories[1].path()));
    let stored = || metric(addresses.gateway_metrics, "profcol_storage_batches", "");

    let running_backend = start_backend();
    let running_gateway = start_gateway();
    let agent = Rig::start(&agent(&addresses, directories[0].path()));
    let (has_ended, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut story = String::new();
    let (backend, gateway) = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let client = agent.client();
            let (has_ended, accepted) = (&has_ended, &accepted);
            scope.spawn(move || {
                let batch = profiles(SAMPLES);
                while !has_ended.load(Ordering::Relaxed) {
                    client.send(&batch).unwrap();
                    accepted.fetch_add(SAMPLES, Ordering::Relaxed);
                    thread::sleep(PAUSE);
                }
            });
        }
        destination.wait_for_samples(CLIENTS * SAMPLES);

        let began = Instant::now();
        running_backend.stop();
        wait_until("batches to be stored", || stored() > Some(10));
        thread::sleep(away / 3);
        let gateway = kill(running_gateway, &mut story, start_gateway);
        let filler = disk.path().join("filler");
        disk.fill(&filler);
        gateway.wait_for("The sending queue refuses batches.", 1);
        thread::sleep(away / 3);
        fs::remove_file(filler).unwrap();
        thread::sleep(away.saturating_sub(began.elapsed()));

        let backend = start_backend();
        let arrived = destination.samples();
        destination.wait_for_samples(arrived + CLIENTS * SAMPLES);
        let gateway = kill(gateway, &mut story, start_gateway);
        let arrived = destination.samples();
        destination.wait_for_samples(arrived + CLIENTS * SAMPLES);
        has_ended.store(true, Ordering::Relaxed);
        (backend, gateway)
    });
    let accepted = accepted.into_inner();
    let back = Instant::now();
    while destination.samples() < accepted && back.elapsed() < away + Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    let dropped = metric(
        addresses.gateway_metrics,
        "profcol_exporter_dropped_samples",
        "otlp_grpc",
    );
    // In the order of the flow: each hands over what it has.
    agent.stop();
    story += &gateway.stop();
    backend.stop();
    println!(
        "accepted {accepted}, delivered {}, dropped {dropped:?}, {:.1?} after all were back\n{story}",
        destination.samples(),
        back.elapsed()
    );
    assert_eq!(
        destination.samples() + usize::try_from(dropped.unwrap()).unwrap(),
        accepted
    );
    assert_eq!(dropped, Some(0));
    let lines = story.lines().count();
    assert!(lines <= MAX_LINES, "{lines} lines");
    for event in [
        "Exporting failed. Will retry",
        "The sending queue refuses batches.",
        "The sending queue accepts batches again.",
        "Opened the stored queue.",
        "Exporting succeeds again.",
    ] {
        assert!(story.contains(event), "no {event:?}");
    }
}

/// With SIGKILL, and starts the next one.
fn kill(rig: Rig, story: &mut String, start: impl Fn() -> Rig) -> Rig {
    *story += &rig.output();
    drop(rig);
    start()
}
