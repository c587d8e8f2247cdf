//! One exporter gives up on a batch that another one has delivered, and its source sends it again: the other one does not
//! get it twice. `tests/parca` and `tests/kafka` have the same for `padata` and `kafka`.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::io::Write;
use std::path::Path;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{Client, Destination, Mode, endpoint_in};
use profcol_test_harness::peers::{Process, profcol};

const BATCHES: usize = 10;
/// In all of them together.
const SAMPLES: usize = 55;

fn refusing() -> Mode {
    Mode::Refuse(Status::new(Code::Unavailable, "later"))
}

/// Runs profcol with two destinations, `otlp_grpc/good` and `otlp_grpc/flaky`, which soon gives up. `rest` has the receivers,
/// and the pipelines.
fn start(good: &Destination, flaky: &Destination, rest: &str) -> Process {
    let [good, flaky] = [good, flaky].map(Destination::impatient_exporter);
    let mut process = profcol(&format!(
        "exporters:\n  otlp_grpc/good: {good}\n  otlp_grpc/flaky: {flaky}\n{rest}"
    ));
    process.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    process
}

const SERVICE: &str = "\
service:
  shutdown_timeout: 60s
  telemetry: {metrics: {level: none}, logs: {sampling: {enabled: false}}}
  pipelines:
";

/// Each batch once, by its number of samples.
fn assert_each_once(good: &Destination) {
    let once = (1..=BATCHES).map(|samples| (samples, 1)).collect();
    assert_eq!(good.deliveries(), once);
}

fn append(file: &Path) {
    let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
    for samples in 1..=BATCHES {
        let record = profiles(samples).to_wire();
        let length = u32::try_from(record.len()).unwrap().to_be_bytes();
        file.write_all(&[&length[..], &record].concat()).unwrap();
    }
}

/// Sends records of a file through these pipelines, while the one exporter gives up on them and then takes them.
/// It gives up more often than there are batches before it takes them.
fn send_records(pipelines: &str, batches: usize) -> (Destination, Destination) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.otlp");
    fs::write(&file, "").unwrap();
    let (good, flaky) = (Destination::new(Mode::Take), Destination::new(refusing()));
    let file_name = file.display();
    let rest = format!(
        "\
receivers:
  otlp_file: {{include: [{file_name}], poll_interval: 20ms}}
processors:
  attributes: {{actions: [{{key: seen, value: 'yes', action: upsert}}]}}
  batch: {{timeout: 1s, send_batch_size: 20, send_batch_max_size: 20}}
connectors:
  forward:
{SERVICE}{pipelines}"
    );
    let mut process = start(&good, &flaky, &rest);
    append(&file);
    // Of those that it has pushed again, too.
    process.wait_for_output("to give up twice", |output| {
        output.matches("The recording keeps the data.").count() > batches
    });
    flaky.set(Mode::Take);
    flaky.wait_for_samples(SAMPLES);
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
    (good, flaky)
}

fn records_arrive_once(pipelines: &str) {
    let (good, flaky) = send_records(pipelines, BATCHES);
    assert_each_once(&good);
    assert_each_once(&flaky);
}

#[test]
fn records_of_files_reach_each_exporter_once() {
    records_arrive_once(
        "    profiles: {receivers: [otlp_file], exporters: [otlp_grpc/good, otlp_grpc/flaky]}\n",
    );
}

#[test]
fn records_reach_each_exporter_once_through_processors_and_connectors() {
    records_arrive_once(
        "    profiles/in: {receivers: [otlp_file], processors: [attributes], exporters: [forward]}
    profiles/good: {receivers: [forward], processors: [attributes], exporters: [otlp_grpc/good]}
    profiles/flaky: {receivers: [forward], exporters: [otlp_grpc/flaky]}
",
    );
}

#[test]
fn merged_records_reach_each_exporter_once() {
    let (good, flaky) = send_records(
        "    profiles: {receivers: [otlp_file], processors: [batch], exporters: [otlp_grpc/good, otlp_grpc/flaky]}\n",
        // Of 20 samples or fewer.
        4,
    );
    assert_eq!((good.samples(), flaky.samples()), (SAMPLES, SAMPLES));
}

#[test]
fn a_client_that_learns_of_the_failure_reaches_each_exporter_once() {
    let (good, flaky) = (Destination::new(Mode::Take), Destination::new(refusing()));
    let rest = format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}, answer_when: delivered}}
{SERVICE}    profiles: {{receivers: [otlp], exporters: [otlp_grpc/good, otlp_grpc/flaky]}}
"
    );
    let process = start(&good, &flaky, &rest);
    let client = Client::new(endpoint_in(&process.output(), "grpc"));
    for samples in 1..=BATCHES {
        let batch = profiles(samples);
        assert!(client.send(&batch).is_err(), "{samples}");
        flaky.set(Mode::Take);
        client.send(&batch).unwrap();
        flaky.set(refusing());
    }
    drop(client);
    let (status, output) = process.stop();
    assert!(status.success(), "{output}");
    assert_each_once(&good);
    assert_each_once(&flaky);
}
