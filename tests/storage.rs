//! Queues on disk with the real program: kills, full disks, damaged files.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use profcol_component::testkit::profiles;
use profcol_net::grpc::{Code, Status};
use profcol_profile::Profiles;
use profcol_test_harness::backend::{
    Client, ClosedPort, Destination, Mode, endpoint_in, wait_until,
};
use profcol_test_harness::balance::{Balance, metric, served_at};
use profcol_test_harness::hosts::Hosts;
use profcol_test_harness::peers::{Process, free_address, profcol};
use profcol_test_harness::services::{of_services, services, side_by_side};
use profcol_test_harness::support::{Ended, SmallDisk, file, path, run};

/// The profcol under test with a queue on disk, between one client and one destination.
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
    /// Stores ten batches of a hundred samples, then kills profcol. Returns the file with the batches.
    fn store_ten(&self) -> PathBuf {
        let rig = self.start();
        for _ in 0..10 {
            rig.client.send(&profiles(100)).unwrap();
        }
        drop(rig);
        let segment = files(self.directory)
            .into_iter()
            .find(|it| it.extension().is_some_and(|it| it == "segment"));
        segment.unwrap()
    }

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
  shutdown_timeout: 60s
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
        )
    }

    fn start(&self) -> Rig {
        Rig::of(profcol(&self.config()))
    }
}

impl Rig {
    fn of(mut process: Process) -> Self {
        process.wait_for_output("to be ready", |output| {
            output.contains("Everything is ready")
        });
        let client = Client::new(endpoint_in(&process.output(), "grpc"));
        Rig { process, client }
    }

    /// Stops it; it must exit successfully.
    fn stop(self) -> String {
        drop(self.client);
        let (status, output) = self.process.stop();
        assert!(status.success(), "{status}: {output}");
        output
    }
}

/// The number of deliveries of each batch.
fn arrived(destination: &Destination) -> BTreeMap<Vec<u8>, usize> {
    let mut arrived = BTreeMap::new();
    for profiles in destination.taken() {
        *arrived.entry(profiles.to_wire().to_vec()).or_default() += 1;
    }
    arrived
}

#[test]
fn accepted_batches_survive_a_kill() {
    for fsync in ["always", "interval", "never"] {
        let folder = tempfile::tempdir().unwrap();
        let closed = ClosedPort::reserve();
        let storage = format!(", fsync: {fsync}");
        let setup = Setup {
            directory: folder.path(),
            destination: closed.address,
            storage: &storage,
            queue: "",
        };
        let mut accepted = Vec::new();
        for round in 0..3 {
            let rig = setup.start();
            for number in 0..30 {
                let batch = profiles(1 + round * 30 + number);
                rig.client.send(&batch).unwrap();
                accepted.push(batch.to_wire().to_vec());
            }
            // With SIGKILL.
            drop(rig);
        }
        let destination = Destination::on(closed.address, Mode::Take);
        let rig = setup.start();
        wait_until("all batches to arrive", || {
            arrived(&destination).len() >= accepted.len()
        });
        let output = rig.stop();
        let arrived = arrived(&destination);
        for batch in &accepted {
            assert!(
                arrived.contains_key(batch),
                "{fsync}: a batch is missing: {output}"
            );
        }
        assert_eq!(arrived.len(), accepted.len(), "{fsync}");
        assert_eq!(
            segments(folder.path()),
            0,
            "what is delivered gives back its room"
        );
        // Delivered batches are not sent again.
        let before = destination.taken().len();
        setup.start().stop();
        assert_eq!(destination.taken().len(), before, "{fsync}");
    }
}

#[test]
fn batches_in_flight_at_a_kill_are_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::new(Mode::Hang);
    let setup = Setup {
        directory: folder.path(),
        destination: destination.address,
        storage: "",
        queue: ", num_consumers: 3",
    };
    let rig = setup.start();
    for samples in 1..=5 {
        rig.client.send(&profiles(samples)).unwrap();
    }
    destination.wait_for_requests(3);
    drop(rig);
    destination.set(Mode::Take);
    let rig = setup.start();
    destination.wait_for_samples(1 + 2 + 3 + 4 + 5);
    rig.stop();
    assert_eq!(destination.samples(), 15, "each once");
}

#[test]
fn shutdown_drops_nothing_and_reports_what_stays() {
    let folder = tempfile::tempdir().unwrap();
    let closed = ClosedPort::reserve();
    let setup = Setup {
        directory: folder.path(),
        destination: closed.address,
        storage: "",
        queue: "",
    };
    let rig = setup.start();
    for samples in 1..=20 {
        rig.client.send(&profiles(samples)).unwrap();
    }
    let output = rig.stop();
    for expected in [
        "The stored queue keeps undelivered batches for the next start.",
        "stored_batches=20 stored_samples=210",
        "otlp_grpc: delivered=0 stored=210",
    ] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    assert!(!output.contains("Dropping data"), "{output}");
    let destination = Destination::on(closed.address, Mode::Take);
    let rig = setup.start();
    destination.wait_for_samples(210);
    rig.client.send(&profiles(1)).unwrap();
    destination.wait_for_samples(211);
    let output = rig.stop();
    assert_eq!(destination.samples(), 211, "each once");
    assert_eq!(
        segments(folder.path()),
        0,
        "of an empty queue nothing stays"
    );
    assert!(
        output.contains("otlp_grpc: recovered=210 delivered=211"),
        "{output}"
    );
}

#[test]
fn small_batches_from_the_stored_queue_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let closed = ClosedPort::reserve();
    let setup = Setup {
        directory: folder.path(),
        destination: closed.address,
        storage: "",
        queue: ", batch: {min_size: 100, flush_timeout: 100ms}",
    };
    let rig = setup.start();
    for _ in 0..50 {
        rig.client.send(&profiles(10)).unwrap();
    }
    drop(rig);
    let destination = Destination::on(closed.address, Mode::Take);
    let rig = setup.start();
    destination.wait_for_samples(500);
    rig.stop();
    assert_eq!(destination.samples(), 500);
    assert!(
        destination.requests() <= 6,
        "{} requests",
        destination.requests()
    );
    assert_eq!(segments(folder.path()), 0);
}

#[test]
fn a_dead_exporter_does_not_affect_another_one_in_the_same_storage() {
    let folder = tempfile::tempdir().unwrap();
    let (closed, good) = (ClosedPort::reserve(), Destination::new(Mode::Take));
    let setup = Setup {
        directory: folder.path(),
        destination: good.address,
        storage: ", max_bytes: 1048576, when_full: drop_newest",
        queue: "",
    };
    let dead = format!(
        "  otlp_grpc/dead: {{endpoint: {}, tls: {{insecure: true}}, sending_queue: {{storage: file_storage}}}}\nservice:",
        closed.address
    );
    let config = setup.config();
    let config = config.replace("service:", &dead);
    let config = config.replace(
        "exporters: [otlp_grpc]",
        "exporters: [otlp_grpc, otlp_grpc/dead]",
    );
    let rig = Rig::of(profcol(&config));
    let sent = send(&rig.client, 60, 1000);
    assert_eq!(sent, 60_000, "all is accepted");
    good.wait_for_samples(60_000);
    let output = rig.stop();
    assert!(output.contains("otlp_grpc: delivered=60000;"), "{output}");
    let dead = count(&output, "otlp_grpc/dead:", "stored=")
        + count(&output, "otlp_grpc/dead:", "queue_full=");
    assert_eq!(dead, 60_000, "{output}");
    assert!(
        count(&output, "otlp_grpc/dead:", "queue_full=") > 0,
        "{output}"
    );
}

/// Adds a second exporter to the pipeline, `otlp_grpc/second`.
fn with_second(config: &str, address: SocketAddr) -> String {
    let second = format!(
        "  otlp_grpc/second: {{endpoint: {address}, timeout: 60s, tls: {{insecure: true}}, sending_queue: {{storage: file_storage}}, retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}}}\nservice:"
    );
    // What times out is sent again, and no destination of these tests hangs.
    let config = config.replace("timeout: 2s", "timeout: 60s");
    let config = config.replace("service:", &second);
    config.replace(
        "exporters: [otlp_grpc]",
        "exporters: [otlp_grpc, otlp_grpc/second]",
    )
}

/// Bytes of all queues and of what they share.
fn stored_bytes(directory: &Path) -> u64 {
    let directories = fs::read_dir(directory).unwrap();
    let directories = directories.map(|entry| entry.unwrap().path());
    let files = directories.filter_map(|it| fs::read_dir(it).ok()).flatten();
    files.map(|it| it.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_batch_for_two_exporters_is_stored_once_and_reaches_both_after_kills() {
    let folder = tempfile::tempdir().unwrap();
    let (closed, second) = (ClosedPort::reserve(), ClosedPort::reserve());
    let mut setup = Setup {
        directory: folder.path(),
        destination: closed.address,
        storage: "",
        queue: "",
    };
    let config = with_second(&setup.config(), second.address);
    let (mut sent, mut batches) = (0, 0);
    for _ in 0..3 {
        let rig = Rig::of(profcol(&config));
        for _ in 0..10 {
            let profiles = profiles(1000 + batches);
            batches += 1;
            sent += profiles.to_wire().len() as u64;
            rig.client.send(&profiles).unwrap();
        }
        // Killed.
        drop(rig);
    }
    let stored = stored_bytes(folder.path());
    assert!(stored < sent + sent / 10, "{stored} bytes for {sent}");
    let exported = tempfile::tempdir().unwrap();
    let exported = exported.path().join("exported.pb");
    let (directory, exported) = (path(folder.path()), path(&exported));
    let inspected = run(&["storage", "inspect", directory, "--export", exported]);
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
    for expected in [
        "otlp_grpc: 30 batches",
        "otlp_grpc/second: 30 batches",
        "shared by the queues: ",
        "10 batches, needed 20 times",
    ] {
        assert!(inspected.stdout.contains(expected), "{inspected:?}");
    }
    assert_eq!(records_in(exported).len(), 60);

    // The second one is not configured for a while.
    let first = Destination::new(Mode::Take);
    setup.destination = first.address;
    let rig = setup.start();
    let all = (1000..1030).sum();
    first.wait_for_samples(all);
    rig.client.send(&profiles(1000)).unwrap();
    first.wait_for_samples(all + 1000);
    rig.stop();
    let second = Destination::new(Mode::Take);
    let rig = Rig::of(profcol(&with_second(&setup.config(), second.address)));
    second.wait_for_samples(all);
    rig.stop();
    assert_eq!((first.samples(), second.samples()), (all + 1000, all));
    assert_eq!(stored_bytes(folder.path()), 0, "the space is given back");
}

const SECOND: &str = "otlp_grpc/second";

/// Ten batches that wait for two exporters when profcol is killed, which share what they store.
struct SharedBacklog {
    folder: tempfile::TempDir,
    config: String,
    closed: [ClosedPort; 2],
    /// The samples of each batch, and all.
    batches: Vec<usize>,
    all: usize,
}

impl SharedBacklog {
    fn store() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let closed = [ClosedPort::reserve(), ClosedPort::reserve()];
        let setup = Setup {
            directory: folder.path(),
            destination: closed[0].address,
            storage: "",
            queue: "",
        };
        let config = with_second(&setup.config(), closed[1].address);
        let rig = Rig::of(profcol(&config));
        let batches: Vec<usize> = (100..110).collect();
        for &samples in &batches {
            rig.client.send(&profiles(samples)).unwrap();
        }
        // Killed.
        drop(rig);
        Self {
            folder,
            config,
            closed,
            all: batches.iter().sum(),
            batches,
        }
    }

    fn bodies(&self) -> PathBuf {
        self.folder.path().join("batches")
    }

    fn inspect(&self) -> Ended {
        run(&["storage", "inspect", path(self.folder.path())])
    }

    fn destinations(&self) -> [Destination; 2] {
        let at = |closed: &ClosedPort| Destination::on(closed.address, Mode::Take);
        [at(&self.closed[0]), at(&self.closed[1])]
    }
}

/// The samples of each batch that arrived.
fn sizes(destination: &Destination) -> Vec<usize> {
    let mut sizes: Vec<_> = destination.deliveries().into_iter().collect();
    sizes.sort_unstable();
    assert!(sizes.iter().all(|(_, times)| *times == 1), "{sizes:?}");
    sizes.into_iter().map(|(samples, _)| samples).collect()
}

#[test]
fn a_flipped_byte_in_what_two_exporters_share_costs_each_the_same_batch() {
    // The last one, too: its record is no torn end.
    for damaged in [4, 8, 9] {
        let backlog = SharedBacklog::store();
        let body = profiles(backlog.batches[damaged]).to_wire();
        let segment = backlog.bodies().join("00000000000000000001.segment");
        let mut bytes = fs::read(&segment).unwrap();
        let mut places = bytes.windows(body.len());
        let at = places.position(|it| it == body).unwrap();
        bytes[at + body.len() / 2] ^= 1;
        fs::write(&segment, bytes).unwrap();
        let lost = backlog.batches[damaged];
        let all = backlog.all;
        let inspected = backlog.inspect();
        assert_eq!(inspected.code, Some(1), "{inspected:?}");

        let destinations = backlog.destinations();
        let rig = Rig::of(profcol(&backlog.config));
        for destination in &destinations {
            destination.wait_for_samples(all - lost);
        }
        let output = rig.stop();
        let mut expected = backlog.batches.clone();
        expected.remove(damaged);
        let balance = Balance::read(&output);
        for (exporter, destination) in ["otlp_grpc", SECOND].into_iter().zip(&destinations) {
            assert_eq!(sizes(destination), expected, "{damaged}: {output}");
            for (key, samples) in [
                ("recovered", all),
                ("delivered", all - lost),
                ("corrupt", lost),
            ] {
                let counted = balance.of(exporter, key);
                assert_eq!(counted, samples as u64, "{damaged}, {key}: {output}");
            }
            let said = output.lines().filter(|line| {
                let is_own = line.contains(&format!("otelcol.component.id={exporter} "));
                is_own && line.contains("Dropping data.")
            });
            let said: Vec<_> = said.collect();
            assert_eq!(said.len(), 1, "{damaged}: {output}");
            let number = format!("dropped_samples={lost}");
            assert!(said[0].contains(&number), "{damaged}: {said:?}");
        }
        assert_eq!(stored_bytes(backlog.folder.path()), 0);
    }
}

#[test]
fn deleted_shared_batches_are_counted_and_logged_for_each_exporter() {
    let backlog = SharedBacklog::store();
    let all = backlog.all as u64;
    fs::remove_dir_all(backlog.bodies()).unwrap();
    let inspected = backlog.inspect();
    assert_eq!(inspected.code, Some(1), "{inspected:?}");
    assert!(
        inspected.stdout.contains(", 10 without what they share"),
        "{inspected:?}"
    );

    let destinations = backlog.destinations();
    let metrics = free_address();
    let served = format!("metrics: {}", served_at(metrics));
    let config = backlog.config.replace("metrics: {level: none}", &served);
    let rig = Rig::of(profcol(&config));
    for exporter in ["\"otlp_grpc\"", SECOND] {
        let missing = metric(metrics, "profcol_storage_missing_batches", exporter);
        assert_eq!(missing, Some(10), "{exporter}");
    }
    rig.client.send(&profiles(500)).unwrap();
    for destination in &destinations {
        destination.wait_for_samples(500);
    }
    let output = rig.stop();
    let balance = Balance::read(&output);
    for exporter in ["otlp_grpc", SECOND] {
        let counted = ["recovered", "delivered", "corrupt"].map(|key| balance.of(exporter, key));
        assert_eq!(counted, [all, 500, all], "{exporter}: {output}");
    }
    let said = format!("batches=10 dropped_samples={all}");
    let said = output.lines().filter(|line| line.contains(&said));
    let directory = format!("directory={}", backlog.bodies().display());
    let said: Vec<_> = said.filter(|line| line.contains(&directory)).collect();
    assert_eq!(said.len(), 2, "{output}");
    // Once.
    let output = Rig::of(profcol(&backlog.config)).stop();
    assert_eq!(Balance::read(&output).dropped("otlp_grpc"), 0, "{output}");
    assert!(!output.contains("Dropping data"), "{output}");
    assert_eq!(destinations.map(|it| it.samples()), [500, 500]);
}

#[test]
fn a_dead_exporter_evicts_its_oldest_batches_and_the_other_one_gets_all() {
    let folder = tempfile::tempdir().unwrap();
    let (dead, good) = (ClosedPort::reserve(), Destination::new(Mode::Take));
    let setup = Setup {
        directory: folder.path(),
        destination: good.address,
        storage: ", max_bytes: 1048576, when_full: drop_oldest",
        queue: "",
    };
    let config = with_second(&setup.config(), dead.address);
    let rig = Rig::of(profcol(&config));
    // Each about 50 KB; none has the size of another.
    let batches: Vec<usize> = (1000..1060).collect();
    for &samples in &batches {
        rig.client.send(&profiles(samples)).unwrap();
    }
    let accepted: usize = batches.iter().sum();
    good.wait_for_samples(accepted);
    let output = rig.stop();
    assert_eq!(sizes(&good), batches);
    let balance = Balance::read(&output);
    assert_eq!(balance.of("otlp_grpc", "delivered"), accepted as u64);
    assert_eq!(balance.dropped("otlp_grpc"), 0, "{output}");
    let (evicted, stored) = (balance.of(SECOND, "evicted"), balance.of(SECOND, "stored"));
    assert!(evicted > 0 && stored > 0, "{output}");
    assert_eq!(evicted + stored, accepted as u64, "{output}");
    assert_eq!(balance.dropped(SECOND), evicted, "{output}");

    let back = Destination::on(dead.address, Mode::Take);
    let rig = Rig::of(profcol(&config));
    back.wait_for_samples(stored as usize);
    let output = rig.stop();
    let delivered = sizes(&back);
    assert!(delivered.len() < batches.len());
    let is_newest = batches.ends_with(&delivered);
    let sent: usize = delivered.iter().sum();
    assert_eq!(sent as u64, stored);
    // What was being sent when it ran full is not dropped.
    let in_flight = delivered.iter().filter(|samples| **samples < 1010).count();
    assert!(is_newest || in_flight > 0, "{delivered:?}");
    assert_eq!(Balance::read(&output).of(SECOND, "delivered"), stored);
    assert_eq!(good.samples(), accepted, "each once");
    assert_eq!(stored_bytes(folder.path()), 0);
}

/// Sends batches until one is refused; returns the number of accepted samples.
fn send(client: &Client, batches: usize, samples: usize) -> u64 {
    let mut accepted = 0;
    for _ in 0..batches {
        match client.send(&profiles(samples)) {
            Ok(()) => accepted += samples as u64,
            Err(refused) => {
                assert_eq!(refused.code, Code::Unavailable, "{refused}");
                assert!(refused.message.contains("full"), "{refused}");
                break;
            }
        }
    }
    accepted
}

/// The value of `key` in an exporter's balance.
fn count(output: &str, exporter: &str, key: &str) -> u64 {
    let balance = output
        .lines()
        .find(|line| line.contains("Sample balance"))
        .unwrap();
    let own = balance.split(exporter).nth(1).unwrap_or_default();
    let own = own.split([';', '"']).next().unwrap_or_default();
    let number = own.split(key).nth(1).unwrap_or_default();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// Fills a queue without a destination up to its own limit, `queue_size` or the disk; then starts the destination.
fn fills_up(directory: &Path, storage: &str, queue: &str) {
    let closed = ClosedPort::reserve();
    for when_full in ["block", "drop_oldest", "drop_newest"] {
        let case = format!("{when_full}{storage}{queue}");
        let storage = format!("{storage}, when_full: {when_full}");
        let directory = directory.join(when_full);
        let setup = Setup {
            directory: &directory,
            destination: closed.address,
            storage: &storage,
            queue,
        };
        let rig = setup.start();
        // Each about 50 KB.
        let accepted = send(&rig.client, 60, 1000);
        assert_eq!(
            accepted < 60_000,
            when_full == "block",
            "{case}: {accepted}"
        );
        let output = rig.stop();
        let reason = match when_full {
            "drop_oldest" => "evicted=",
            _ => "queue_full=",
        };
        let dropped = count(&output, "otlp_grpc:", reason);
        assert_eq!(dropped > 0, when_full != "block", "{case}: {output}");
        let destination = Destination::on(closed.address, Mode::Take);
        let rig = setup.start();
        destination.wait_for_samples((accepted - dropped) as usize);
        // And there is room again.
        assert_eq!(send(&rig.client, 3, 500), 1500);
        rig.stop();
        assert_eq!(
            destination.samples() as u64,
            accepted - dropped + 1500,
            "{case}"
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}

#[test]
fn a_full_queue_behaves_as_configured_and_counts_refusals() {
    let folder = tempfile::tempdir().unwrap();
    fills_up(folder.path(), ", max_bytes: 1048576", "");
    fills_up(folder.path(), "", ", queue_size: 20, num_consumers: 2");
}

#[test]
fn a_full_disk_does_the_same() {
    if let Some(disk) = SmallDisk::mount("size=1500k") {
        fills_up(disk.path(), ", max_bytes: 4194304", ", num_consumers: 2");
    }
}

#[test]
fn a_waiting_sender_continues_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::new(Mode::Refuse(Status::new(Code::Unavailable, "not now")));
    let setup = Setup {
        directory: folder.path(),
        destination: destination.address,
        storage: ", max_bytes: 1048576",
        queue: ", block_on_overflow: true",
    };
    let rig = setup.start();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&rig.client, 60, 1000));
        destination.wait_for_requests(10);
        // It gets no answer while the queue is full.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!sending.is_finished(), "it does not wait");
        destination.set(Mode::Take);
        assert_eq!(sending.join().unwrap(), 60_000);
    });
    destination.wait_for_samples(60_000);
    rig.stop();
}

/// `load_balancing` with a queue on disk and this resolver.
fn balanced(directory: &Path, resolver: &str) -> String {
    let directory = directory.display();
    format!(
        "\
extensions:
  file_storage: {{directory: {directory}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}}}
exporters:
  load_balancing:
    protocol:
      otlp:
        tls: {{insecure: true}}
        timeout: 2s
        sending_queue: {{storage: file_storage}}
        retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}
    resolver: {{{resolver}}}
service:
  shutdown_timeout: 10s
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [load_balancing]}}
"
    )
}

fn fixed(addresses: &[SocketAddr]) -> String {
    let hostnames: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    format!("static: {{hostnames: [{}]}}", hostnames.join(", "))
}

const SERVICES: usize = 20;

/// A sample of each service.
fn of_all_services() -> Profiles {
    of_services(&profiles(1), 0..SERVICES)
}

/// The samples of each service at all destinations together.
fn at_all(destinations: &[Destination]) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for (service, samples) in destinations.iter().flat_map(services) {
        *all.entry(service).or_default() += samples;
    }
    all
}

fn sum(destinations: &[Destination]) -> usize {
    destinations.iter().map(Destination::samples).sum()
}

#[test]
fn balanced_batches_survive_kills_and_reach_the_endpoints_of_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let destinations = side_by_side(3);
    let addresses: Vec<_> = destinations.iter().map(|it| it.address).collect();
    let set = |mode: fn() -> Mode| destinations.iter().for_each(|it| it.set(mode()));
    set(|| Mode::Refuse(Status::new(Code::Unavailable, "not now")));
    let start =
        |addresses: &[SocketAddr]| Rig::of(profcol(&balanced(folder.path(), &fixed(addresses))));
    const BATCHES: usize = 30;
    for _ in 0..3 {
        let rig = start(&addresses);
        for _ in 0..BATCHES {
            rig.client.send(&of_all_services()).unwrap();
        }
        // With SIGKILL.
        drop(rig);
    }
    assert_eq!(sum(&destinations), 0);
    set(|| Mode::Take);
    // The last endpoint is gone since.
    let rig = start(&addresses[..2]);
    let all = 3 * BATCHES * SERVICES;
    wait_until("all to arrive", || sum(&destinations) >= all);
    let output = rig.stop();
    let arrived = at_all(&destinations);
    assert_eq!(arrived.len(), SERVICES);
    assert!(arrived.values().all(|it| *it == 3 * BATCHES), "{arrived:?}");
    let each: Vec<_> = destinations.iter().map(Destination::samples).collect();
    assert!(each[0] > 0 && each[1] > 0 && each[2] == 0, "{each:?}");
    assert_eq!(segments(folder.path()), 0);
    let balance = format!("load_balancing: recovered={all} delivered={all}");
    assert!(output.contains(&balance), "{output}");
}

#[test]
fn what_is_stored_for_a_dead_endpoint_moves_when_it_is_gone_also_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut destinations = side_by_side(3);
    let addresses: Vec<_> = destinations.iter().map(|it| it.address).collect();
    let named = |addresses: &[SocketAddr]| -> Vec<_> {
        let addresses = addresses.iter();
        addresses.map(|it| (it.ip(), "backend.test")).collect()
    };
    let Some(hosts) = Hosts::new(&named(&addresses)) else {
        return;
    };
    let port = addresses[0].port();
    let resolver =
        format!("dns: {{hostname: backend.test, port: {port}, interval: 50ms, timeout: 10s}}");
    let start = || Rig::of(hosts.profcol(&balanced(folder.path(), &resolver)));
    let rig = start();
    rig.client.send(&of_all_services()).unwrap();
    wait_until("one each to arrive", || sum(&destinations) == SERVICES);
    let dead = destinations.pop().unwrap();
    let moved = services(&dead).len();
    assert!(moved > 0);
    drop(dead);
    // Far more than is in memory for one endpoint.
    const BATCHES: usize = 200;
    let send = |rig: &Rig| {
        for _ in 0..BATCHES {
            rig.client.send(&of_all_services()).unwrap();
        }
    };
    send(&rig);
    let stayed = SERVICES - moved;
    let of_others = |batches: usize| (1 + batches) * stayed;
    wait_until("the others to get theirs", || {
        sum(&destinations) == of_others(BATCHES)
    });
    let waiting = format!("with {} samples wait", BATCHES * moved);
    wait_until("it to be on disk that they are delivered", || {
        let inspected = run(&["storage", "inspect", path(folder.path())]);
        inspected.stdout.contains(&waiting)
    });
    drop(rig);

    // The endpoint is still listed.
    let rig = start();
    send(&rig);
    wait_until("the others to get theirs", || {
        sum(&destinations) == of_others(2 * BATCHES)
    });
    hosts.set(&named(&addresses[..2]));
    let all = (1 + 2 * BATCHES) * stayed + 2 * BATCHES * moved;
    wait_until("the rest to arrive", || sum(&destinations) >= all);
    let output = rig.stop();
    assert_eq!(sum(&destinations), all, "each once: {output}");
    assert_eq!(segments(folder.path()), 0);
    let arrived = at_all(&destinations);
    let expected = |samples: &usize| [2 * BATCHES, 1 + 2 * BATCHES].contains(samples);
    assert!(arrived.values().all(expected), "{arrived:?}");
}

/// Kills at any time, and another list of endpoints at each start. What was in flight may arrive twice.
#[test]
fn kills_while_balanced_batches_are_sent_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let destinations = side_by_side(4);
    let addresses: Vec<_> = destinations.iter().map(|it| it.address).collect();
    destinations[3].set(Mode::Slow(Duration::from_millis(30)));
    let mut sent = 0;
    for round in 0..8 {
        let first = round % 3;
        let config = balanced(folder.path(), &fixed(&addresses[first..]));
        let mut rig = Rig::of(profcol(&config));
        for _ in 0..20 + 7 * round {
            rig.client.send(&of_all_services()).unwrap();
            sent += 1;
        }
        assert!(!rig.process.has_ended());
        drop(rig);
    }
    let rig = Rig::of(profcol(&balanced(folder.path(), &fixed(&addresses[1..]))));
    let has_all = || {
        let arrived = at_all(&destinations);
        arrived.len() == SERVICES && arrived.values().all(|samples| *samples >= sent)
    };
    wait_until("all to arrive", has_all);
    let output = rig.stop();
    assert_eq!(segments(folder.path()), 0, "{output}");
    // For each kill, at most what each endpoint had in memory.
    let twice: usize = at_all(&destinations).values().map(|it| it - sent).sum();
    assert!(twice <= 8 * 4 * 20 * SERVICES, "{twice}");
}

#[test]
fn only_one_process_uses_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let closed = ClosedPort::reserve();
    let setup = Setup {
        directory: folder.path(),
        destination: closed.address,
        storage: "",
        queue: "",
    };
    let rig = setup.start();
    let (status, output) = profcol(&setup.config()).ended();
    assert_eq!(status.code(), Some(1), "{output}");
    let pid = rig.process.pid();
    let expected = format!(
        "failed to start extension file_storage: directory {} is in use by process {pid}: stop that process, or use another directory",
        folder.path().display()
    );
    assert!(output.contains(&expected), "{output}");
    drop(rig);
    // A kill leaves the file, but releases the lock.
    setup.start().stop();
}

#[test]
fn a_flipped_byte_costs_one_batch_which_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let closed = ClosedPort::reserve();
    let setup = Setup {
        directory: folder.path(),
        destination: closed.address,
        storage: "",
        queue: "",
    };
    let segment = setup.store_ten();
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();

    let directory = path(folder.path());
    let export = folder.path().join("export.bin");
    let export = path(&export);
    let inspected = run(&["storage", "inspect", directory, "--export", export]);
    assert_eq!(inspected.code, Some(1), "{inspected:?}");
    for expected in [
        "otlp_grpc: 9 batches with 900 samples wait",
        "1 damaged places",
        "exported 9 batches",
    ] {
        assert!(
            inspected.stdout.contains(expected),
            "{expected}: {inspected:?}"
        );
    }

    let destination = Destination::on(closed.address, Mode::Take);
    let rig = setup.start();
    destination.wait_for_samples(900);
    let output = rig.stop();
    assert_eq!(destination.samples(), 900);
    assert!(
        output.contains("otlp_grpc: recovered=1000 delivered=900 corrupt=100"),
        "{output}"
    );
    assert!(
        output.contains("A batch in the stored queue is damaged. Dropping data."),
        "{output}"
    );
    // The export has exactly the delivered batches.
    assert_eq!(
        records_in(export),
        arrived(&destination)
            .keys()
            .next()
            .map(|wire| vec![wire.clone(); 9])
            .unwrap()
    );
}

#[test]
fn a_torn_end_is_truncated_and_the_other_batches_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let closed = ClosedPort::reserve();
    let setup = Setup {
        directory: folder.path(),
        destination: closed.address,
        storage: "",
        queue: "",
    };
    let segment = setup.store_ten();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.set_len(file.metadata().unwrap().len() - 7).unwrap();
    let directory = path(folder.path());
    let inspected = run(&["storage", "inspect", directory]);
    assert_eq!(
        inspected.code,
        Some(0),
        "a torn end is no damage: {inspected:?}"
    );
    assert!(
        inspected.stdout.contains("bytes torn at the end"),
        "{inspected:?}"
    );
    let destination = Destination::on(closed.address, Mode::Take);
    let rig = setup.start();
    destination.wait_for_samples(900);
    let output = rig.stop();
    assert_eq!(destination.samples(), 900);
    assert!(
        output.contains("stored_batches=9 stored_samples=900"),
        "{output}"
    );
}

#[test]
fn a_missing_storage_is_reported_before_startup() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        directory: folder.path(),
        destination: "127.0.0.1:1".parse().unwrap(),
        storage: "",
        queue: "",
    };
    for (from, to, expected) in [
        (
            "extensions: [file_storage]",
            "extensions: []",
            "extension \"file_storage\" is not running: configure it under `extensions`",
        ),
        (
            "storage: file_storage",
            "storage: file_storage, wait_for_result: true",
            "`wait_for_result` is not supported with a persistent queue configured with `storage`",
        ),
        (
            "{directory:",
            "{compaction: {on_start: true}, directory:",
            "files are removed once their batches are delivered",
        ),
        (
            "{directory:",
            "{max_bytes: 1000, directory:",
            "must be at least 1048576",
        ),
    ] {
        let config = file("config.yaml", setup.config().replace(from, to));
        let validated = run(&["validate", "--config", path(&config.path)]);
        assert_eq!(validated.code, Some(78), "{to}: {validated:?}");
        assert!(validated.stderr.contains(expected), "{to}: {validated:?}");
    }
    // The Collector's values.
    for fsync in ["true", "false"] {
        let config = setup
            .config()
            .replace("{directory:", &format!("{{fsync: {fsync}, directory:"));
        let config = file("config.yaml", config);
        let validated = run(&["validate", "--config", path(&config.path)]);
        assert_eq!(validated.code, Some(0), "{fsync}: {validated:?}");
    }
}

/// The records of a file of length-prefixed protobuf.
fn records_in(path: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (record, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
        records.push(record.to_vec());
        rest = behind;
    }
    records
}

fn segments(directory: &Path) -> usize {
    files(directory)
        .iter()
        .filter(|path| path.extension().is_some_and(|it| it == "segment"))
        .count()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let queues = ["exporter_otlp_grpc", "exporter_load_balancing"];
    let queue = queues
        .iter()
        .find_map(|it| fs::read_dir(directory.join(it)).ok());
    let queue = queue.expect("a queue was opened");
    let mut files: Vec<PathBuf> = queue.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_gateway_takes_what_was_in_flight_at_a_kill_once() {
    let folder = tempfile::tempdir().unwrap();
    let destination = Destination::new(Mode::Hang);
    let mut gateway = profcol(&format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: 127.0.0.1:0}}}}, answer_when: delivered, deduplicate: {{window: 1h}}}}
exporters:
  otlp_grpc:
    endpoint: {}
    tls: {{insecure: true}}
    timeout: 1s
    retry_on_failure: {{initial_interval: 50ms, max_interval: 100ms, max_elapsed_time: 0s}}
service:
  shutdown_timeout: 60s
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
",
        destination.address
    ));
    gateway.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let agent = Setup {
        directory: folder.path(),
        destination: endpoint_in(&gateway.output(), "grpc"),
        storage: "",
        queue: "",
    };
    let rig = agent.start();
    for _ in 0..10 {
        rig.client.send(&profiles(100)).unwrap();
    }
    // The gateway has each of them, and the agent, whose attempts time out, has no answer.
    destination.wait_for_requests(10);
    drop(rig);
    let rig = agent.start();
    destination.set(Mode::Take);
    destination.wait_for_samples(1000);
    rig.stop();
    let (status, output) = gateway.stop();
    assert!(status.success(), "{status}: {output}");
    assert_eq!(destination.samples(), 1000);
}
