//! A wall clock that jumps: timers do not follow it, and each accepted sample is delivered once.

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{Client, Destination, Mode};
use profcol_test_harness::balance::Balance;
use profcol_test_harness::faults::Faults;

use crate::Rig;

const EXPORTERS: [&str; 2] = ["otlp_grpc/memory", "otlp_grpc/stored"];

/// Everything that waits for a time: batches, retries, syncs, the files and the page of local exporters.
fn config(destinations: &[Destination; 2], folder: &str) -> String {
    let [memory, stored] = destinations.each_ref().map(|it| it.address);
    let retry =
        "tls: {insecure: true}, retry_on_failure: {initial_interval: 50ms, max_interval: 100ms}";
    format!(
        "\
extensions:
  file_storage: {{directory: {folder}/queues, fsync_interval: 50ms}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: 127.0.0.1:0}}
      http: {{endpoint: 127.0.0.1:0}}
processors:
  batch: {{timeout: 50ms}}
exporters:
  otlp_grpc/memory: {{endpoint: \"{memory}\", {retry}}}
  otlp_grpc/stored: {{endpoint: \"{stored}\", {retry}, sending_queue: {{storage: file_storage}}}}
  file: {{path: {folder}/profiles.jsonl, rotation: {{max_megabytes: 1}}}}
  live_view: {{endpoint: 127.0.0.1:0, directory: {folder}/history, flush_interval: 100ms}}
service:
  shutdown_timeout: 60s
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [batch], exporters: [otlp_grpc/memory, otlp_grpc/stored, file, live_view]}}
"
    )
}

#[test]
fn jumps_of_the_clock_stall_lose_and_double_nothing() {
    // No file is touched.
    let Some(faults) = Faults::of(&[]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let destinations = [(), ()].map(|()| Destination::new(Mode::Take));
    let config = config(&destinations, folder.path().to_str().unwrap());
    let rig = Rig::started(faults.profcol(&config));
    let client = Client::new(rig.grpc);
    let mut sent = 0;
    let mut send = || {
        for samples in 1..=10 {
            client.send(&profiles(samples)).unwrap();
            sent += samples;
        }
        sent
    };
    let wait_for = |samples| {
        for destination in &destinations {
            destination.wait_for_samples(samples);
        }
    };
    const HOUR: i64 = 3600;
    let jumps: [&dyn Fn(); 6] = [
        &|| faults.set_clock_ahead(HOUR),
        &|| faults.set_clock_ahead(0),
        &|| faults.set_clock_ahead(-HOUR),
        &|| faults.set_clock_to_1970(),
        &|| faults.set_clock_ahead(0),
        &|| faults.set_clock_ahead(24 * 365 * HOUR),
    ];
    for jump in jumps {
        // While batches wait for the next attempt.
        for destination in &destinations {
            let refused = Status::new(Code::Unavailable, "not now");
            destination.set(Mode::Refuse(refused));
        }
        send();
        let requests = destinations.each_ref().map(Destination::requests);
        let wait_for_attempts = |after: usize| {
            for (destination, requests) in destinations.iter().zip(requests) {
                destination.wait_for_requests(requests + after);
            }
        };
        wait_for_attempts(1);
        jump();
        wait_for_attempts(4);
        send();
        for destination in &destinations {
            destination.set(Mode::Take);
        }
        wait_for(send());
        // And while nothing waits.
        wait_for(send());
    }
    let sent = send();
    drop(client);
    let output = rig.stop();
    let balance = Balance::read(&output);
    for (destination, exporter) in destinations.iter().zip(EXPORTERS) {
        assert_eq!(destination.samples(), sent, "{exporter}: {output}");
        let delivered = balance.of(exporter, "delivered");
        assert_eq!(delivered, sent as u64, "{exporter}: {output}");
        assert_eq!(balance.dropped(exporter), 0, "{exporter}: {output}");
    }
    assert!(!output.contains("panicked"), "{output}");
}
