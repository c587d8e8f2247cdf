//! Positions in files with the real program: kills, a destination that hangs or refuses, damaged positions.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_test_harness::backend::{Destination, Mode, wait_until};
use profcol_test_harness::peers::{Process, profcol};
use profcol_test_harness::support::{path, run};

/// A file of length-prefixed records, and a storage, between runs of profcol that send it to one destination. Records
/// differ in their number of samples.
struct Rig {
    folder: tempfile::TempDir,
    destination: SocketAddr,
}

impl Rig {
    fn new(destination: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.otlp"), "").unwrap();
        Self {
            folder,
            destination,
        }
    }

    fn append(&self, records: RangeInclusive<usize>) {
        let mut options = fs::OpenOptions::new();
        let opened = options.append(true).open(self.folder.path().join("a.otlp"));
        let mut file = opened.unwrap();
        for samples in records {
            let record = profiles(samples).to_wire();
            let length = u32::try_from(record.len()).unwrap().to_be_bytes();
            file.write_all(&[&length[..], &record].concat()).unwrap();
        }
    }

    fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    fn stored(&self) -> PathBuf {
        self.storage().join("receiver_otlp_file.checkpoint")
    }

    /// Runs profcol with these options of `sending_queue`.
    fn start(&self, queue: &str) -> Process {
        let Self {
            folder,
            destination,
        } = self;
        let folder = folder.path().display();
        let mut process = profcol(&format!(
            "\
extensions:
  file_storage: {{directory: {folder}/storage}}
receivers:
  otlp_file: {{include: [{folder}/*.otlp], poll_interval: 20ms, storage: file_storage}}
exporters:
  otlp_grpc:
    endpoint: {destination}
    tls: {{insecure: true}}
    sending_queue: {{{queue}}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 200ms}}
service:
  shutdown_timeout: 60s
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp_file], exporters: [otlp_grpc]}}
"
        ));
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        process
    }
}

/// Stops it; it must exit successfully.
fn stop(process: Process) -> String {
    let (status, output) = process.stop();
    assert!(status.success(), "{status}: {output}");
    output
}

fn wait_for(destination: &Destination, records: RangeInclusive<usize>) {
    wait_until("all records to arrive", || {
        let arrived = destination.deliveries();
        records.clone().all(|record| arrived.contains_key(&record))
    });
}

#[test]
fn records_survive_kills_and_are_not_sent_again_after_a_stop() {
    let destination = Destination::new(Mode::Hang);
    let rig = Rig::new(destination.address);
    for (round, queue) in ["num_consumers: 3", "enabled: false"]
        .into_iter()
        .enumerate()
    {
        let requests = destination.requests();
        let process = rig.start(queue);
        rig.append(round * 20 + 1..=round * 20 + 20);
        destination.wait_for_requests(requests + 1);
        // With SIGKILL.
        drop(process);
    }
    // Appended while it is down, before a run with another configuration.
    rig.append(41..=50);
    destination.set(Mode::Take);
    let process = rig.start("storage: file_storage");
    wait_for(&destination, 1..=50);
    stop(process);
    let before = destination.deliveries();
    assert_eq!(before.len(), 50);
    rig.append(51..=51);
    let process = rig.start("");
    wait_for(&destination, 51..=51);
    stop(process);
    let mut after = destination.deliveries();
    assert_eq!(after.remove(&51), Some(1));
    assert_eq!(after, before, "records were sent again");
}

#[test]
fn records_that_the_exporter_gave_up_on_are_pushed_again() {
    let refusing = || Mode::Refuse(Status::new(Code::Unavailable, "later"));
    let destination = Destination::new(refusing());
    let rig = Rig::new(destination.address);
    let mut process = rig.start("");
    rig.append(1..=10);
    let gave_up = "The recording keeps the data.";
    process.wait_for_output("to give up", |output| output.matches(gave_up).count() >= 10);
    destination.set(Mode::Take);
    wait_for(&destination, 1..=10);
    destination.set(refusing());
    rig.append(11..=20);
    process.wait_for_output("to give up again", |output| {
        output.matches(gave_up).count() >= 20
    });
    // With SIGKILL.
    drop(process);
    destination.set(Mode::Take);
    let process = rig.start("");
    wait_for(&destination, 11..=20);
    stop(process);
}

#[test]
fn with_damaged_positions_records_are_sent_again_and_none_is_lost() {
    let destination = Destination::new(Mode::Take);
    let rig = Rig::new(destination.address);
    let process = rig.start("");
    rig.append(1..=10);
    wait_for(&destination, 1..=10);
    stop(process);
    let storage = rig.storage();
    let inspect = ["storage", "inspect", path(&storage)];
    let inspected = run(&inspect);
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
    assert!(
        inspected.stdout.contains(" bytes of positions\n"),
        "{inspected:?}"
    );

    let stored = fs::read(rig.stored()).unwrap();
    let mut flipped = stored.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (round, damaged) in [&stored[..stored.len() / 2], &flipped[..], &[]]
        .into_iter()
        .enumerate()
    {
        fs::write(rig.stored(), damaged).unwrap();
        let inspected = run(&inspect);
        assert_eq!(inspected.code, Some(1), "{inspected:?}");
        let record = 11 + round;
        rig.append(record..=record);
        let process = rig.start("");
        wait_for(&destination, 1..=record);
        let output = stop(process);
        assert!(output.contains("is damaged"), "{output}");
        assert_eq!(destination.deliveries()[&1], 2 + round, "{output}");
    }
}
