//! Queues on disk, by the real program: it is killed, its disk fills up, its files are damaged.

#![allow(
    clippy::unwrap_used,
    reason = "what is unwrapped wrongly fails the test, as it should"
)]

#[path = "backend/mod.rs"]
mod backend;
#[path = "peers/mod.rs"]
mod peers;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use backend::{Client, Destination, Mode, Nobody, endpoint_in, wait_until};
use peers::{Process, profcol};

/// The profcol under test, from one client to one destination, with its queue on disk.
struct Rig {
    process: Process,
    client: Client,
}

struct Setup<'a> {
    directory: &'a Path,
    destination: SocketAddr,
    /// More options of `file_storage`.
    storage: &'a str,
    /// More options of `sending_queue`.
    queue: &'a str,
}

impl Setup<'_> {
    fn config(&self) -> String {
        let Setup {
            directory,
            destination,
            storage,
            queue,
        } = self;
        let directory = directory.display();
        format!(
            "\
extensions:
  file_storage: {{directory: {directory}{storage}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  otlp_grpc:
    endpoint: {destination}
    tls: {{insecure: true}}
    timeout: 2s
    sending_queue: {{storage: file_storage{queue}}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}
service:
  shutdown_timeout: 10s
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
        )
    }

    fn start(&self) -> Rig {
        let mut process = profcol(&self.config());
        process.wait_for_output("to be ready", |said| said.contains("Everything is ready"));
        let client = Client::new(endpoint_in(&process.output(), "grpc"));
        Rig { process, client }
    }
}

impl Rig {
    /// Stops it; it has to end well.
    fn stop(self) -> String {
        drop(self.client);
        let (status, said) = self.process.stop();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

/// How often each of the batches arrived.
fn arrived(destination: &Destination) -> BTreeMap<Vec<u8>, usize> {
    let mut arrived = BTreeMap::new();
    for profiles in destination.taken() {
        *arrived.entry(profiles.to_wire().to_vec()).or_default() += 1;
    }
    arrived
}

#[test]
fn what_was_accepted_arrives_although_the_process_is_killed() {
    for fsync in ["always", "interval", "never"] {
        let folder = tempfile::tempdir().unwrap();
        let nobody = Nobody::new();
        let storage = format!(", fsync: {fsync}");
        let setup = Setup {
            directory: folder.path(),
            destination: nobody.address,
            storage: &storage,
            queue: "",
        };
        let mut accepted = Vec::new();
        for round in 0..3 {
            let rig = setup.start();
            for number in 0..30 {
                let batch = profcol_component::testkit::profiles(1 + round * 30 + number);
                rig.client.send(&batch).unwrap();
                accepted.push(batch.to_wire().to_vec());
            }
            // With SIGKILL.
            drop(rig);
        }
        let destination = Destination::on(nobody.address, Mode::Take);
        let rig = setup.start();
        wait_until("all batches to arrive", || {
            arrived(&destination).len() >= accepted.len()
        });
        let said = rig.stop();
        let arrived = arrived(&destination);
        for batch in &accepted {
            assert!(
                arrived.contains_key(batch),
                "{fsync}: a batch is missing: {said}"
            );
        }
        assert_eq!(arrived.len(), accepted.len(), "{fsync}");
        assert_eq!(
            segments(folder.path()),
            0,
            "what is delivered gives back its room"
        );
        // What is delivered stays delivered.
        let before = destination.taken().len();
        setup.start().stop();
        assert_eq!(destination.taken().len(), before, "{fsync}");
    }
}

fn segments(directory: &Path) -> usize {
    files(directory)
        .iter()
        .filter(|path| path.extension().is_some_and(|it| it == "segment"))
        .count()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let queue = fs::read_dir(directory.join("exporter_otlp_grpc")).unwrap();
    let mut files: Vec<PathBuf> = queue.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
